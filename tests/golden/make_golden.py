#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the golden folders: tiny random Gemma 3 checkpoints and what transformers says of them.

    python3 tests/golden/make_golden.py [folder]

The folder is the script's own unless given; each golden folder in it is made anew. PyTorch and
transformers 5 are needed, no GPU and no network; README.md names the versions last used.

Every golden folder holds a checkpoint as save_pretrained writes it, a tokenizer.model of the right
size, the prompt (tokens.txt) and the log-probabilities of the whole vocabulary at every position of
the prompt (logprobs.bin: little-endian float32, [n_tokens, n_vocab], sizes in shape.txt).

The weights are rounded to the type they are stored in first and the logits then computed from them
in float32, so that a reader of the checkpoint starts from the very same numbers. They are drawn
large enough that attention is peaked and logits differ by several units: with the usual small
initial values every position attends to all others alike and a wrong window or a wrong angle would
drown in rounding. Each golden is therefore also computed with deliberately wrong configurations,
and the script fails unless every one of them moves the log-probabilities visibly.
"""

import copy
import json
import shutil
import struct
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator, NamedTuple

import torch
from transformers import (
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    PreTrainedModel,
    SiglipVisionConfig,
)

PAD, EOS, BOS, UNK = range(4)
N_FIXED_PIECES = 4 + 256  # the control pieces and one piece a byte

SIZE_LIMIT = 3_000_000  # bytes of all golden folders together
PREFIX_TOLERANCE = 1e-4  # a position's logits with and without the tokens after it
RELOAD_TOLERANCE = 1e-6  # logits before saving and after loading
VISIBLE = 1e-2  # the least a wrong configuration must move some log-probability


class Shape(NamedTuple):
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    window: int


@dataclass(frozen=True)
class Golden:
    name: str
    n_tokens: int
    shape: Shape
    dtype: torch.dtype = torch.bfloat16
    rope_factor: float | None = None  # linear scaling of the global layers
    theta_global: float = 1e6
    theta_local: float = 1e4
    text: dict = field(default_factory=dict)  # further fields of Gemma3TextConfig
    multimodal: bool = False
    shard_bytes: int | None = None
    old_pattern: int | None = None  # write config.json as transformers 4, with this pattern


def layer_types(letters: str) -> list[str]:
    """'LLG' -> two local layers and a global one, in the words of config.json."""
    return [{"L": "sliding_attention", "G": "full_attention"}[letter] for letter in letters]


# Columns of Shape: layers hidden heads kv_heads head_dim ffn vocab window.
GOLDENS = (
    Golden("one_layer", 40, Shape(1, 36, 2, 2, 18, 50, 301, 8), torch.float32),
    Golden("gqa4", 33, Shape(6, 44, 4, 1, 16, 52, 290, 5)),
    Golden("scaled", 40, Shape(7, 40, 4, 2, 20, 38, 277, 8), rope_factor=8.0),
    Golden("scale_27b", 36, Shape(2, 36, 2, 1, 128, 40, 270, 8), rope_factor=8.0,
           text={"query_pre_attn_scalar": 168, "layer_types": layer_types("LG")}),
    Golden("head_256", 34, Shape(2, 20, 4, 1, 256, 30, 263, 9),
           text={"layer_types": layer_types("GL")}),
    Golden("layer_types", 37, Shape(8, 32, 8, 2, 8, 44, 271, 6), rope_factor=8.0,
           text={"layer_types": layer_types("GLLGGLGL")}),
    Golden("untied", 35, Shape(6, 36, 3, 3, 14, 42, 301, 7), torch.float16,
           text={"tie_word_embeddings": False}),
    Golden("softcap", 41, Shape(2, 70, 2, 1, 34, 50, 283, 8),
           text={"final_logit_softcapping": 30.0, "query_pre_attn_scalar": 41,
                 "layer_types": layer_types("LG")}),
    Golden("eps", 33, Shape(2, 42, 6, 3, 10, 31, 283, 5), torch.float32,
           text={"rms_norm_eps": 0.02}),
    Golden("multimodal", 40, Shape(7, 40, 2, 1, 16, 36, 299, 8), rope_factor=8.0, multimodal=True),
    Golden("sharded", 38, Shape(8, 32, 4, 4, 12, 50, 265, 11), shard_bytes=80_000),
    Golden("dialect_4", 40, Shape(7, 36, 4, 2, 16, 40, 281, 8), rope_factor=4.0,
           theta_global=5e5, theta_local=8e3, text={"layer_types": layer_types("LLGLLGL")},
           old_pattern=3),
    Golden("wide_window", 70, Shape(6, 30, 2, 1, 16, 34, 287, 512)),
)


def text_config(g: Golden) -> Gemma3TextConfig:
    full = {"rope_type": "default", "rope_theta": g.theta_global}
    if g.rope_factor:
        full |= {"rope_type": "linear", "factor": g.rope_factor}
    fields = {
        "num_hidden_layers": g.shape.layers,
        "hidden_size": g.shape.hidden,
        "num_attention_heads": g.shape.heads,
        "num_key_value_heads": g.shape.kv_heads,
        "head_dim": g.shape.head_dim,
        "intermediate_size": g.shape.ffn,
        "vocab_size": g.shape.vocab,
        "sliding_window": g.shape.window,
        "query_pre_attn_scalar": g.shape.head_dim,
        "max_position_embeddings": 1024,
        "rope_parameters": {
            "full_attention": full,
            "sliding_attention": {"rope_type": "default", "rope_theta": g.theta_local},
        },
    }
    return Gemma3TextConfig(**(fields | g.text))


def new_model(config: Gemma3TextConfig | Gemma3Config) -> PreTrainedModel:
    multimodal = isinstance(config, Gemma3Config)
    model = (Gemma3ForConditionalGeneration if multimodal else Gemma3ForCausalLM)(config)
    model.set_attn_implementation("eager")
    return model.float().eval()


def golden_config(g: Golden) -> Gemma3TextConfig | Gemma3Config:
    text = text_config(g)
    if not g.multimodal:
        return text
    vision = SiglipVisionConfig(
        hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
        image_size=8, patch_size=4, vision_use_head=False,
    )
    return Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)


def weight_spread(name: str, shape: torch.Size) -> tuple[float, float]:
    """The mean and standard deviation a parameter is drawn with."""
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return 0.4, 0.5
    if len(shape) == 1:
        return 0.0, 0.3
    if name.endswith(("embed_tokens.weight", "lm_head.weight")):
        return 0.0, 2.5 / shape[1] ** 0.5
    return 0.0, 1.5 / shape[1:].numel() ** 0.5


@torch.no_grad()
def draw_weights(model: PreTrainedModel, dtype: torch.dtype, rng: torch.Generator) -> None:
    for name, p in model.named_parameters():
        mean, std = weight_spread(name, p.shape)
        p.copy_((torch.randn(p.shape, generator=rng) * std + mean).to(dtype))


@torch.no_grad()
def logits_of(model: PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]  # [n_tokens, n_vocab]


def log_probs(logits: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(logits.double(), dim=-1)


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a.double() - b.double()).abs().max().item()


def require(holds: bool, g: Golden, what: str) -> None:
    if not holds:
        raise SystemExit(f"{g.name}: {what}")


def check_prefixes(
    g: Golden, model: PreTrainedModel, tokens: list[int], logits: torch.Tensor
) -> None:
    for n in range(1, len(tokens)):
        d = distance(logits_of(model, tokens[:n])[-1], logits[n - 1])
        require(d <= PREFIX_TOLERANCE, g, f"position {n - 1} changes by {d:.2e} with what follows")


def check_reload(g: Golden, folder: Path, tokens: list[int], logits: torch.Tensor) -> None:
    cls = Gemma3ForConditionalGeneration if g.multimodal else Gemma3ForCausalLM
    model = cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    d = distance(logits_of(model, tokens), logits)
    require(d <= RELOAD_TOLERANCE, g, f"logits change by {d:.2e} when the folder is loaded again")


def wrong_fields(text: Gemma3TextConfig, n_tokens: int) -> Iterator[dict]:
    """Changes of the text configuration, each of them a mistake an engine could make."""
    if text.sliding_window < n_tokens:
        yield {"sliding_window": text.sliding_window - 1}
        yield {"sliding_window": text.sliding_window + 1}
    yield {"query_pre_attn_scalar": text.query_pre_attn_scalar * 3 // 4}
    for kind in sorted(set(text.layer_types)):
        rope = copy.deepcopy(text.rope_parameters)
        rope[kind]["rope_theta"] /= 10
        yield {"rope_parameters": rope}
    if "factor" in text.rope_parameters["full_attention"]:
        rope = copy.deepcopy(text.rope_parameters)
        rope["full_attention"]["factor"] = 1.0
        yield {"rope_parameters": rope}
    if text.rms_norm_eps != 1e-6:
        yield {"rms_norm_eps": 1e-6}
    if text.final_logit_softcapping:
        yield {"final_logit_softcapping": None}


def least_visible(
    g: Golden, model: PreTrainedModel, tokens: list[int], logits: torch.Tensor
) -> float:
    """Computes the golden with every wrong configuration; returns the smallest move of them."""
    least = float("inf")
    for fields in wrong_fields(model.config.get_text_config(), g.n_tokens):
        config = copy.deepcopy(model.config)
        for key, value in fields.items():
            setattr(config.get_text_config(), key, value)
        wrong = new_model(config)
        wrong.load_state_dict(model.state_dict())
        d = distance(log_probs(logits_of(wrong, tokens)), log_probs(logits))
        require(d >= VISIBLE, g, f"{fields} moves no log-probability by more than {d:.2e}")
        least = min(least, d)
    return least


def write_old_config(g: Golden, folder: Path) -> None:
    """Rewrites config.json in the words of transformers 4."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    for key in ("layer_types", "_sliding_window_pattern"):
        config.pop(key, None)
    config |= {
        "rope_theta": rope["full_attention"]["rope_theta"],
        "rope_local_base_freq": rope["sliding_attention"]["rope_theta"],
        "rope_scaling": {"factor": g.rope_factor, "rope_type": "linear"},
        "sliding_window_pattern": g.old_pattern,
        "torch_dtype": config.pop("dtype"),
        "transformers_version": "4.50.0",
    }
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def proto_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def proto_int(number: int, value: int) -> bytes:
    return proto_varint(number << 3) + proto_varint(value)


def proto_bytes(number: int, value: bytes) -> bytes:
    return proto_varint(number << 3 | 2) + proto_varint(len(value)) + value


def proto_piece(text: str, score: float, kind: int) -> bytes:
    body = proto_bytes(1, text.encode()) + proto_varint(2 << 3 | 5) + struct.pack("<f", score)
    return proto_bytes(1, body + proto_int(3, kind))


def filler_pieces(n: int) -> list[str]:
    """A space, the letters, then pairs of letters: n pieces of text."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return ["\u2581", *letters, *(a + b for a in letters for b in letters)][:n]


def sentencepiece_model(n_vocab: int) -> bytes:
    """A ModelProto of Gemma's kind: BPE with byte fallback and no change of the text."""
    normal, unknown, control, byte = 1, 2, 3, 6
    special = {"<pad>": control, "<eos>": control, "<bos>": control, "<unk>": unknown}
    pieces = [proto_piece(text, 0.0, kind) for text, kind in special.items()]
    pieces += [proto_piece(f"<0x{value:02X}>", 0.0, byte) for value in range(256)]
    pieces += [proto_piece(text, -float(rank), normal)
               for rank, text in enumerate(filler_pieces(n_vocab - N_FIXED_PIECES))]
    trainer = (proto_int(3, 2) + proto_int(4, n_vocab) + proto_int(35, 1)  # BPE, byte fallback
               + proto_int(40, UNK) + proto_int(41, BOS) + proto_int(42, EOS) + proto_int(43, PAD)
               + proto_bytes(45, b"<unk>") + proto_bytes(46, b"<bos>")
               + proto_bytes(47, b"<eos>") + proto_bytes(48, b"<pad>"))
    normalizer = proto_bytes(1, b"identity") + b"".join(proto_int(n, 0) for n in (3, 4))
    return b"".join(pieces) + proto_bytes(2, trainer) + proto_bytes(3, normalizer)


def make(g: Golden, folder: Path) -> None:
    rng = torch.Generator().manual_seed(zlib.crc32(g.name.encode()))
    model = new_model(golden_config(g))
    draw_weights(model, g.dtype, rng)
    drawn = torch.randint(UNK + 1, g.shape.vocab, (g.n_tokens - 1,), generator=rng)
    tokens = [BOS, *drawn.tolist()]
    logits = logits_of(model, tokens)
    check_prefixes(g, model, tokens, logits)
    least = least_visible(g, model, tokens, logits)
    finer = logits_of(copy.deepcopy(model).double(), tokens)
    rounding = distance(log_probs(finer), log_probs(logits))

    shutil.rmtree(folder, ignore_errors=True)
    sharding = {"max_shard_size": g.shard_bytes} if g.shard_bytes else {}
    copy.deepcopy(model).to(g.dtype).save_pretrained(folder, **sharding)
    if g.old_pattern:
        write_old_config(g, folder)
    check_reload(g, folder, tokens, logits)

    n_tokens, n_vocab = logits.shape
    (folder / "tokens.txt").write_text(" ".join(map(str, tokens)) + "\n")
    (folder / "shape.txt").write_text(f"{n_tokens} {n_vocab}\n")
    (folder / "logprobs.bin").write_bytes(log_probs(logits).float().numpy().astype("<f4").tobytes())
    (folder / "tokenizer.model").write_bytes(sentencepiece_model(n_vocab))
    print(f"{g.name:12} {folder_size(folder):7} bytes, logits' std {logits.std():.2f}, "
          f"least visible mistake {least:.2f}, rounding {rounding:.1e}", flush=True)


def folder_size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent
    torch.set_num_threads(1)  # sums in one order
    for g in GOLDENS:
        make(g, root / g.name)
    total = sum(folder_size(root / g.name) for g in GOLDENS)
    print(f"{'together':12} {total:7} bytes")
    if total > SIZE_LIMIT:
        raise SystemExit(f"the golden folders take {total} bytes, at most {SIZE_LIMIT} are allowed")


if __name__ == "__main__":
    main()
