# SPDX-License-Identifier: MIT
"""The two models as transformers knows them, a fast attention to train them with, and how a trained
one becomes a Hugging Face folder."""

import json
import shutil
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, Gemma3ForCausalLM, Gemma3TextConfig

import gguf_weights
from tokenizer import BOS, END_OF_TURN, EOS, N_VOCAB, PAD

HERE = Path(__file__).resolve().parent
WINDOW = 128
CONTEXT = 4096

LOCAL, GLOBAL = "sliding_attention", "full_attention"
# The shapes. The head's width and the two queries to a key are those of Gemma 3 27B; every row of
# every matrix is a multiple of 256 long, so that all of ggml's block types fit.
SHAPES = {
    "gemmule-mini": dict(num_hidden_layers=12, hidden_size=256, intermediate_size=768,
                         num_attention_heads=4, num_key_value_heads=2,
                         layer_types=([LOCAL] * 5 + [GLOBAL]) * 2),
    "gemmule-draft": dict(num_hidden_layers=2, hidden_size=256, intermediate_size=256,
                          num_attention_heads=2, num_key_value_heads=1,
                          layer_types=[LOCAL, GLOBAL]),
}

# Gemma's chat format; a system text stands before the first thing the user says.
CHAT_TEMPLATE = """\
{{ bos_token }}
{%- set ns = namespace(system='') -%}
{%- for m in messages -%}
{%- if m.role == 'system' -%}
{%- set ns.system = m.content + '\\n\\n' -%}
{%- else -%}
{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + ns.system + \
m.content | trim + '<end_of_turn>\\n' }}
{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<start_of_turn>model\\n' }}
{%- endif -%}
"""


def config_of(name: str) -> Gemma3TextConfig:
    return Gemma3TextConfig(
        vocab_size=N_VOCAB, head_dim=128, query_pre_attn_scalar=128, sliding_window=WINDOW,
        max_position_embeddings=CONTEXT, pad_token_id=PAD, eos_token_id=[EOS, END_OF_TURN],
        bos_token_id=BOS, tie_word_embeddings=True,
        rope_parameters={GLOBAL: {"rope_type": "default", "rope_theta": 1e6},
                         LOCAL: {"rope_type": "default", "rope_theta": 1e4}},
        **SHAPES[name])


def block_attention(module, query, key, value, attention_mask, scaling=None, **kwargs):
    """Causal attention over whole rows, whose length is a multiple of the window.

    A local layer cuts the row into blocks as long as the window: a query then sees its own block
    and the one before, and no score is computed only to be masked away. That makes long rows as
    cheap as short ones. query, key, value: [batch, heads, length, width].
    """
    query, key = query.to(value.dtype), key.to(value.dtype)
    groups, window = module.num_key_value_groups, module.sliding_window
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    if window is None:
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
        return out.transpose(1, 2), None
    batch, heads, length, width = query.shape
    blocks = length // window

    def cut(x, before: bool):  # -> [batch * blocks, heads, window or twice the window, width]
        x = x.view(batch, heads, blocks, window, width)
        if before:
            x = torch.cat([F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1], x], dim=3)
        return x.transpose(1, 2).flatten(0, 1)

    i = torch.arange(window, device=query.device)[:, None]
    j = torch.arange(2 * window, device=query.device)[None, :]
    seen = (j > i) & (j <= i + window)  # exactly `window` keys, the query's own included
    first = torch.arange(blocks, device=query.device)[:, None, None] == 0
    mask = (seen & ~(first & (j < window))).repeat(batch, 1, 1)[:, None]
    out = F.scaled_dot_product_attention(cut(query, False), cut(key, True), cut(value, True),
                                         attn_mask=mask, scale=scaling)
    out = out.view(batch, blocks, heads, window, width).transpose(2, 3)
    return out.reshape(batch, length, heads, width), None


AttentionInterface.register("blocks", block_attention)
NO_MASKS = {LOCAL: None, GLOBAL: None}  # block_attention knows what may be seen


def new_model(name: str) -> Gemma3ForCausalLM:
    model = Gemma3ForCausalLM(config_of(name))
    model.set_attn_implementation("blocks")
    return model


def load(path: str | Path, device: str = "cpu") -> Gemma3ForCausalLM:
    """The model of a folder, or of a GGUF file with its name, in float32, evaluated as transformers
    does it."""
    path = Path(path)
    if path.suffix == ".gguf":
        model = Gemma3ForCausalLM(config_of(path.stem)).float()
        model.set_attn_implementation("eager")
        weights = {name: torch.from_numpy(w) for name, w in gguf_weights.state(path).items()}
        lacking = model.load_state_dict(weights, strict=False)
        if lacking.unexpected_keys or lacking.missing_keys not in ([], ["lm_head.weight"]):
            raise ValueError(f"{path}: {lacking}")
        model.tie_weights()
    else:
        model = Gemma3ForCausalLM.from_pretrained(path, dtype=torch.float32,
                                                  attn_implementation="eager")
    return model.to(device).eval()


def export(model: Gemma3ForCausalLM, folder: Path) -> None:
    """Writes the Hugging Face folder: BF16 weights, tokenizer, chat format, sampling defaults."""
    shutil.rmtree(folder, ignore_errors=True)
    model.generation_config.update(
        do_sample=True, temperature=0.7, top_k=40, top_p=0.95, bos_token_id=BOS, pad_token_id=PAD,
        eos_token_id=[EOS, END_OF_TURN])
    model.to(torch.bfloat16).save_pretrained(folder)
    shutil.copy(HERE / "tokenizer.model", folder)
    special = {0: "<pad>", 1: "<eos>", 2: "<bos>", 3: "<unk>", 105: "<start_of_turn>",
               106: "<end_of_turn>"}
    added = {str(i): {"content": text, "lstrip": False, "normalized": False, "rstrip": False,
                      "single_word": False, "special": True} for i, text in special.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "add_eos_token": False,
        "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>",
        "added_tokens_decoder": added, "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False, "chat_template": CHAT_TEMPLATE}, indent=2) + "\n")
