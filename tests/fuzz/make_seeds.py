#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# tests/fuzz/make_seeds.py FOLDER    write the hand-made inputs to FOLDER/<target>/
#
# Small valid files of each format, and ones that are wrong in one place where a fuzzer would need
# long to find it. What fuzzing finds beyond these is merged into tests/fuzz/corpus (RESULTS.md).
import json
import os
import struct
import sys

SPACE = "\u2581"


def put(target, name, data):
    folder = os.path.join(sys.argv[1], target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


# ---- GGUF --------------------------------------------------------------------------------------

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARRAY, U64, I64, F64 = range(13)
FORMAT = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?",
          U64: "<Q", I64: "<q", F64: "<d"}
# number: (values of a block, bytes of a block)
TYPES = {0: (1, 4), 1: (1, 2), 30: (1, 2), 8: (32, 34), 2: (32, 18), 3: (32, 20), 6: (32, 22),
         7: (32, 24), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176),
         14: (256, 210), 20: (32, 18), 23: (256, 136)}


def string(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


def scalar(kind, v):
    return string(v) if kind == STR else struct.pack(FORMAT[kind], v)


def key(name, kind, v, elem=None):
    if kind != ARRAY:
        return string(name) + struct.pack("<I", kind) + scalar(kind, v)
    body = b"".join(scalar(elem, x) for x in v)
    return string(name) + struct.pack("<IIQ", ARRAY, elem, len(v)) + body


def gguf(keys, tensors=(), version=3, align=32, n_keys=None, n_tensors=None):
    """tensors: (name, shape contiguous first, type)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors) if n_tensors is None else n_tensors,
                                len(keys) if n_keys is None else n_keys)
    out += b"".join(keys)
    data = b""
    for name, shape, kind in tensors:
        size = shape[0] // TYPES.get(kind, (1, 1))[0] * TYPES.get(kind, (1, 1))[1]
        for d in shape[1:]:
            size *= d
        out += string(name) + struct.pack("<I", len(shape))
        out += b"".join(struct.pack("<Q", d) for d in shape) + struct.pack("<IQ", kind, len(data))
        data += b"\x11" * size
        data += b"\0" * (-len(data) % align)
    return out + b"\0" * (-len(out) % align) + data


ALL_KINDS = [
    key("a.u8", U8, 200), key("a.i8", I8, -3), key("a.u16", U16, 60000), key("a.i16", I16, -30000),
    key("a.u32", U32, 1 << 31), key("a.i32", I32, -5), key("a.f32", F32, 0.5),
    key("a.bool", BOOL, True), key("a.str", STR, "text"), key("a.u64", U64, 1 << 40),
    key("a.i64", I64, -1), key("a.f64", F64, 1e300), key("a.nan", F32, float("nan")),
] + [key("l.%d" % k, ARRAY, [1, 0] if k != STR else ["x", ""], k)
     for k in (U8, I8, U16, I16, U32, I32, F32, BOOL, STR, U64, I64, F64)]

PIECES = (["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_turn>", "<end_of_turn>",
           "<unused0>", "\n", SPACE * 2] + ["<0x%02X>" % b for b in range(256)] +
          ["a", "b", SPACE, SPACE + "a", "ab", "odd"])
KINDS = [3, 3, 3, 2, 3, 3, 3, 3, 4, 4] + [6] * 256 + [1, 1, 1, 1, 1, 5]


def model(layers=1, pieces=8, fused=False, head=False, extra=(), drop=(), kind=0, norm=0,
          vision=False):
    d, ffn, hd, heads, kv = (32, 32, 8, 4, 2) if kind else (4, 4, 2, 2, 1)
    names = PIECES[:pieces]
    keys = {
        "general.architecture": (STR, "gemma3"), "general.name": (STR, "seed"),
        "gemma3.block_count": (U32, layers), "gemma3.embedding_length": (U32, d),
        "gemma3.feed_forward_length": (U32, ffn), "gemma3.context_length": (U32, 64),
        "gemma3.attention.head_count": (U32, heads), "gemma3.attention.head_count_kv": (U32, kv),
        "gemma3.attention.key_length": (U32, hd), "gemma3.attention.value_length": (U32, hd),
        "gemma3.attention.layer_norm_rms_epsilon": (F32, 1e-6),
        "gemma3.attention.sliding_window": (U32, 4), "gemma3.rope.freq_base": (F32, 1e6),
        "tokenizer.ggml.model": (STR, "llama"),
        "tokenizer.ggml.tokens": (ARRAY, names, STR),
        "tokenizer.ggml.scores": (ARRAY, [-float(i) for i in range(pieces)], F32),
        "tokenizer.ggml.token_type": (ARRAY, KINDS[:pieces], I32),
    }
    for name, value in extra:
        keys[name] = value
    for name in drop:
        keys.pop(name, None)
    t = [("token_embd.weight", (d, pieces), kind), ("output_norm.weight", (d,), norm)]
    if head:
        t.append(("output.weight", (d, pieces), kind))
    for l in range(layers):
        b = "blk.%d." % l
        if fused:
            t.append((b + "attn_qkv.weight", (d, (heads + 2 * kv) * hd), kind))
        else:
            t += [(b + "attn_q.weight", (d, heads * hd), kind),
                  (b + "attn_k.weight", (d, kv * hd), kind),
                  (b + "attn_v.weight", (d, kv * hd), kind)]
        t += [(b + "attn_norm.weight", (d,), norm), (b + "attn_q_norm.weight", (hd,), 0),
              (b + "attn_k_norm.weight", (hd,), 0), (b + "attn_output.weight", (heads * hd, d), kind),
              (b + "post_attention_norm.weight", (d,), norm), (b + "ffn_norm.weight", (d,), norm),
              (b + "ffn_gate.weight", (d, ffn), kind), (b + "ffn_up.weight", (d, ffn), kind),
              (b + "ffn_down.weight", (ffn, d), kind), (b + "post_ffw_norm.weight", (d,), norm)]
    if vision:
        t += [("v.blk.0.attn_q.weight", (4, 4), 0), ("mm.input_projection.weight", (4,), 24)]
    return gguf([key(k, *v) for k, v in keys.items()], [x for x in t if x[0] not in drop])


def seeds_gguf():
    put("gguf", "kinds", gguf(ALL_KINDS))
    for number, (n, _) in TYPES.items():
        put("gguf", "type-%d" % number, gguf([], [("t", (n, 2), number), ("u", (n,), number)]))
    put("gguf", "v2", gguf([key("a", U32, 1)], [("t", (3, 2, 2, 1), 0)], version=2))
    for v in (0, 1, 4, 3 << 24):
        put("gguf", "version-%x" % v, gguf([], version=v))
    put("gguf", "align", gguf([key("general.alignment", U32, 64)], [("t", (3,), 0), ("u", (3,), 0)],
                              align=64))
    put("gguf", "align-0", gguf([key("general.alignment", U32, 0)]))
    put("gguf", "align-kind", gguf([key("general.alignment", STR, "32")]))
    put("gguf", "align-3", gguf([key("general.alignment", U32, 3)]))
    put("gguf", "vision", gguf([], [("v.x", (4,), 24), ("mm.x", (4,), 0), ("t", (1,), 0)]))
    put("gguf", "type-24", gguf([], [("t", (4,), 24)]))
    put("gguf", "twin-keys", gguf([key("a", U8, 1), key("a", U8, 2)]))
    put("gguf", "twin-names", gguf([], [("t", (1,), 0), ("t", (1,), 0)]))
    put("gguf", "name-empty", gguf([], [("", (1,), 0)]))
    put("gguf", "name-long", gguf([], [("t" * 128, (1,), 0)]))
    put("gguf", "name-zero", gguf([], [("t\0u", (1,), 0)]))
    put("gguf", "dims-0", gguf([], [("t", (1, 0), 0)]))
    put("gguf", "dims-5", gguf([], [("t", (1, 1, 1, 1, 1), 0)]))
    put("gguf", "dims-odd", gguf([], [("t", (31,), 8)]))
    put("gguf", "dims-huge", gguf([], [("t", (1 << 62, 0), 0)]).replace(
        struct.pack("<QQ", 1 << 62, 0), struct.pack("<QQ", 1 << 62, 1 << 62)))
    whole = gguf([key("a", STR, "x")], [("t", (8,), 0), ("u", (8,), 0)])
    put("gguf", "cut", whole[:-4])
    put("gguf", "overlap", whole.replace(struct.pack("<IQ", 0, 32), struct.pack("<IQ", 0, 0)))
    put("gguf", "unaligned", whole.replace(struct.pack("<IQ", 0, 32), struct.pack("<IQ", 0, 4)))
    put("gguf", "short", b"GGUF\3\0\0\0")
    put("gguf", "other", b"PK\3\4")
    put("gguf", "keys-claimed", gguf([], n_keys=1 << 60))
    put("gguf", "tensors-claimed", gguf([], n_tensors=1 << 60))
    put("gguf", "kind-13", gguf([string("a") + struct.pack("<IQ", 13, 0)]))
    put("gguf", "elem-13", gguf([string("a") + struct.pack("<IIQ", ARRAY, 13, 1) + b"\0" * 8]))
    put("gguf", "elem-array", gguf([string("a") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + b"\0" * 8]))
    put("gguf", "elem-claimed", gguf([string("a") + struct.pack("<IIQ", ARRAY, U32, 1 << 61)]))
    put("gguf", "str-claimed", gguf([string("a") + struct.pack("<IQ", STR, 1 << 63) + b"xy"]))
    split = [key("split.no", U16, 0), key("split.count", U16, 2), key("split.tensors.count", I32, 2)]
    part = [key("split.no", U16, 1), key("split.count", U16, 2)]
    put("gguf", "split", gguf(split, [("t", (8,), 0)]) + gguf(part, [("u", (8,), 0)]))
    put("gguf", "split-later", gguf(part, [("u", (8,), 0)]))
    put("gguf", "split-same", gguf(split, [("t", (8,), 0)]) + gguf(split, [("u", (8,), 0)]))
    put("gguf", "split-late", gguf([key("split.no", U16, 2), key("split.count", U16, 2)]))
    put("gguf", "split-many", gguf([key("split.count", U32, 65536)]))


def seeds_model():
    put("model", "one", model())
    put("model", "two-fused-head", model(2, fused=True, head=True))
    put("model", "bytes", model(pieces=len(PIECES)))
    put("model", "q8_0", model(kind=8))
    put("model", "vision", model(vision=True))
    put("model", "pattern", model(2, extra=[
        ("gemma3.attention.sliding_window_pattern", (ARRAY, [True, False], BOOL)),
        ("gemma3.final_logit_softcapping", (F32, 30.0)), ("gemmule.norm_offset", (F32, 1.0)),
        ("gemma3.rope.scaling.type", (STR, "linear")), ("gemma3.rope.scaling.factor", (F32, 8.0)),
        ("gemma3.rope.freq_base_swa", (F32, 1e4)), ("gemma3.rope.local.freq_base", (F32, 1e4)),
        ("gemma3.rope.global.freq_base", (F32, 1e6)),
        ("general.sampling.temp", (F32, 0.5)), ("general.sampling.top_k", (I32, 10)),
        ("tokenizer.ggml.bos_token_id", (U32, 2)), ("tokenizer.ggml.eos_token_id", (U32, 1)),
        ("tokenizer.ggml.unknown_token_id", (U32, 3)), ("tokenizer.ggml.add_bos_token", (BOOL, False)),
        ("tokenizer.ggml.add_space_prefix", (BOOL, True)), ("gemmule.synthetic", (BOOL, True))]))
    put("model", "pattern-3", model(extra=[("gemma3.attention.sliding_window_pattern", (U32, 3))]))
    wrong = {
        "architecture": ("general.architecture", (STR, "llama")),
        "clip": ("general.architecture", (STR, "clip")),
        "layers": ("gemma3.block_count", (U32, 2)), "no-layers": ("gemma3.block_count", (U32, 0)),
        "heads": ("gemma3.attention.head_count_kv", (U32, 3)),
        "head": ("gemma3.attention.key_length", (U32, 7)),
        "rope": ("gemma3.rope.freq_base", (F32, -1.0)),
        "scaling": ("gemma3.rope.scaling.type", (STR, "yarn")),
        "factor": ("gemma3.rope.scaling.factor", (F32, -1.0)),
        "list": ("gemma3.attention.sliding_window_pattern", (ARRAY, [1], U32)),
        "softcap": ("gemma3.final_logit_softcapping", (F32, -1.0)),
        "eps": ("gemma3.attention.layer_norm_rms_epsilon", (F32, 0.0)),
        "vocab": ("tokenizer.ggml.model", (STR, "gpt2")),
        "tokens": ("tokenizer.ggml.tokens", (ARRAY, [1], U32)),
        "scores": ("tokenizer.ggml.scores", (ARRAY, [1.0], F32)),
        "nan": ("tokenizer.ggml.scores", (ARRAY, [float("nan")] * 8, F32)),
        "types": ("tokenizer.ggml.token_type", (ARRAY, [9] * 8, I32)),
        "byte": ("tokenizer.ggml.token_type", (ARRAY, [6] * 8, I32)),
        "bos": ("tokenizer.ggml.bos_token_id", (U32, 1000)),
        "flag": ("tokenizer.ggml.add_bos_token", (U32, 1)),
        "width": ("gemma3.embedding_length", (U32, 8)),
    }
    for name, change in wrong.items():
        put("model", "wrong-" + name, model(extra=[change]))
    for name in ("general.architecture", "gemma3.block_count", "tokenizer.ggml.model",
                 "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "blk.0.attn_q.weight",
                 "gemma3.attention.sliding_window", "output_norm.weight"):
        put("model", "without-" + name, model(drop=[name]))
    put("model", "few-rows", model(extra=[("tokenizer.ggml.tokens", (ARRAY, ["a"] * 9, STR))]))
    put("model", "quant-norm", model(kind=8, norm=8))
    put("model", "spare", model(2, extra=[("gemma3.block_count", (U32, 1))]))


# ---- safetensors -------------------------------------------------------------------------------

def safetensors(header, size=0):
    text = header if isinstance(header, str) else json.dumps(header)
    return struct.pack("<Q", len(text.encode())) + text.encode() + b"\x11" * size


def seeds_safetensors():
    names = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]
    names += ["model.layers.%d.%s.weight" % (i, n) for i, n in enumerate((
        "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
        "self_attn.o_proj", "self_attn.q_norm", "self_attn.k_norm", "post_attention_layernorm",
        "pre_feedforward_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
        "post_feedforward_layernorm"))]
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for i, name in enumerate(names):
        dtype, size = (("BF16", 2), ("F16", 2), ("F32", 4))[i % 3]
        header[name] = {"dtype": dtype, "shape": [2, 2], "data_offsets": [at, at + 4 * size]}
        at += 4 * size
    put("safetensors", "text", safetensors(header, at))

    def one(name, dtype="F32", shape=(2,), offsets=(0, 8), size=8, **more):
        return safetensors({name: {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}},
                           size)
    norm = "model.norm.weight"
    put("safetensors", "nested", one("language_model.model.layers.11.mlp.up_proj.weight"))
    put("safetensors", "vision", one("vision_tower.x"))
    put("safetensors", "vision-5", one("model.vision_tower.x", dtype="I64"))
    put("safetensors", "projector", one("multi_modal_projector.x"))
    put("safetensors", "ignored", one("model.rotary_emb.inv_freq"))
    put("safetensors", "unknown", one("model.layers.0.mlp.bias"))
    for layer in ("01", "1024", "x", ""):
        put("safetensors", "layer-" + layer, one("model.layers.%s.mlp.up_proj.weight" % layer))
    put("safetensors", "dtype", one(norm, dtype="I8"))
    put("safetensors", "dtype-none", one(norm, dtype=None))
    put("safetensors", "shape-0", one(norm, shape=(0,)))
    put("safetensors", "shape-none", one(norm, shape=None))
    put("safetensors", "shape-5", one(norm, shape=(1, 1, 1, 1, 2)))
    put("safetensors", "shape-huge", one(norm, shape=(1 << 62, 1 << 62)))
    put("safetensors", "shape-text", one(norm, shape=("2",)))
    put("safetensors", "offsets-none", one(norm, offsets=None))
    put("safetensors", "offsets-back", one(norm, offsets=(8, 0)))
    put("safetensors", "offsets-past", one(norm, offsets=(0, 16)))
    put("safetensors", "offsets-odd", one(norm, offsets=(0, 7)))
    info = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    put("safetensors", "overlap", safetensors({norm: info, "lm_head.weight": info}, 8))
    put("safetensors", "twins", safetensors({norm: info, "norm.weight": {
        "dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, 8))
    put("safetensors", "repeated", safetensors('{"a":{},"a":{}}'))
    put("safetensors", "array", safetensors("[]"))
    put("safetensors", "empty", safetensors(""))
    put("safetensors", "not-json", safetensors("{]"))
    put("safetensors", "long", struct.pack("<Q", 100))
    put("safetensors", "short", b"\0" * 7)
    put("safetensors", "name", b"model.layers.3.mlp.up_proj.weight")


# ---- config.json -------------------------------------------------------------------------------

def seeds_config():
    flat = {
        "model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "sliding_window": 8, "max_position_embeddings": 128, "vocab_size": 300,
        "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 16, "rope_theta": 1e6,
        "rope_local_base_freq": 1e4, "sliding_window_pattern": 2, "tie_word_embeddings": True,
        "attention_bias": False, "hidden_activation": "gelu_pytorch_tanh", "eos_token_id": 1,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "_name_or_path": "seed",
    }
    five = {k: v for k, v in flat.items() if not k.startswith("rope")}
    five["rope_parameters"] = {"full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0},
                               "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}
    five["layer_types"] = ["sliding_attention", "full_attention"]
    put("config", "flat", json.dumps(flat))
    put("config", "five", json.dumps(five))
    put("config", "nested", json.dumps({"model_type": "gemma3", "eos_token_id": [1, 106],
                                        "text_config": five, "vision_config": {}}))
    put("config", "few", json.dumps({"model_type": "gemma3_text"}))
    put("config", "generation", json.dumps({"temperature": 1.0, "top_k": 64, "top_p": 0.95}))
    for k, v in (("temperature", -1), ("top_k", 1.5), ("top_p", "x")):
        put("config", "generation-" + k, json.dumps({k: v}))
    wrong = {
        "model_type": "gemma2", "text_config": [], "quantization_config": {}, "attention_bias": True,
        "attn_logit_softcapping": 50.0, "hidden_activation": "relu", "head_dim": 15,
        "num_key_value_heads": 3, "hidden_size": 0, "intermediate_size": 1 << 40,
        "num_hidden_layers": "2", "rms_norm_eps": 0, "rope_theta": None, "rope_scaling": [],
        "layer_types": ["full_attention"], "sliding_window_pattern": 0, "eos_token_id": -1,
        "tie_word_embeddings": 1, "_name_or_path": 1, "use_bidirectional_attention": True,
    }
    for k, v in wrong.items():
        put("config", "wrong-" + k, json.dumps({**flat, k: v}))
    for i, v in enumerate(([1, 2], "x", ["sliding_attention", "chunked_attention"])):
        put("config", "types-%d" % i, json.dumps({**five, "layer_types": v}))
    for i, v in enumerate(({"type": "yarn"}, {"type": "linear"}, {"rope_type": 1}, {"factor": 2.0},
                           {"type": "linear", "factor": 0},
                           {"sliding_attention": {"type": "linear", "factor": 2}})):
        put("config", "rope-%d" % i, json.dumps({**flat, "rope_scaling": v}))
    put("config", "softcap", json.dumps({**flat, "final_logit_softcapping": 30.0}))
    put("config", "softcap-0", json.dumps({**flat, "final_logit_softcapping": 0}))
    put("config", "gemma3-flat", json.dumps({**flat, "model_type": "gemma3"}))
    put("config", "typeless", "{}")
    put("config", "inner-type", json.dumps({"model_type": "gemma3", "text_config": {"model_type": "x"}}))
    put("config", "empty", "")
    put("config", "not-json", '{"a":')
    put("config", "array", "[]")
    put("config", "twice", '{"a":1,"a":2}')
    put("config", "surrogate", '{"model_type":"\\ud800"}')
    put("config", "deep", "[" * 100)


# ---- tokenizer.model ---------------------------------------------------------------------------

def varint(v):
    out = b""
    while v > 127:
        out += bytes([v & 127 | 128])
        v >>= 7
    return out + bytes([v])


def field(number, v):
    if isinstance(v, float):
        return varint(number << 3 | 5) + struct.pack("<f", v)
    if isinstance(v, int):
        return varint(number << 3) + varint(v & (1 << 64) - 1)
    v = v if isinstance(v, bytes) else v.encode()
    return varint(number << 3 | 2) + varint(len(v)) + v


def sp_model(pieces, trainer=((3, 2), (43, 0)), normalizer=((1, "identity"), (3, 0), (4, 0), (5, 1))):
    out = b""
    for i, (text, kind) in enumerate(pieces):
        out += field(1, field(1, text) + field(2, -float(i)) + (field(3, kind) if kind != 1 else b""))
    out += field(2, b"".join(field(*t) for t in trainer))
    return out + field(3, b"".join(field(*n) for n in normalizer))


def seeds_sp_model():
    few = [("<unk>", 2), ("<bos>", 3), ("<eos>", 3), ("<pad>", 3), ("<start_of_turn>", 4),
           (SPACE * 2, 4), ("a", 1), ("b", 1), ("ab", 1), (SPACE, 1), ("<0x41>", 6), ("zz", 5)]
    put("sp_model", "few", sp_model(few))
    put("sp_model", "bytes", sp_model(few[:9] + [("<0x%02X>" % b, 6) for b in range(256)]))
    put("sp_model", "more", sp_model(few) + field(4, b"") + varint(5 << 3 | 1) + b"\0" * 8 +
        varint(6 << 3 | 5) + b"\0" * 4 + field(7, 1))
    put("sp_model", "spaces", sp_model(few, normalizer=((3, 1), (4, 0))))
    for kind in (0, 1, 3, 4, 9):
        put("sp_model", "type-%d" % kind, sp_model(few, trainer=((3, kind),)))
    put("sp_model", "suffix", sp_model(few, trainer=((3, 2), (24, 1))))
    put("sp_model", "nfkc", sp_model(few, normalizer=((1, "nmt_nfkc"), (4, 0))))
    put("sp_model", "charsmap", sp_model(few, normalizer=((2, b"\1\2"), (4, 0))))
    put("sp_model", "collapse", sp_model(few, normalizer=((3, 0),)))
    put("sp_model", "no-escape", sp_model(few, normalizer=((4, 0), (5, 0))))
    put("sp_model", "ids", sp_model(few, trainer=((3, 2), (40, -1), (41, 100), (42, -1))))
    put("sp_model", "kind-7", sp_model([("a", 7)]))
    put("sp_model", "kind-0", sp_model([("a", 0)]))
    put("sp_model", "no-text", sp_model([("", 1)]))
    put("sp_model", "byte-text", sp_model([("a", 6), ("b", 1), ("c", 1)]))
    put("sp_model", "no-pieces", sp_model([]))
    put("sp_model", "nan", field(1, field(1, "a") + field(2, float("nan"))) + sp_model(few))
    put("sp_model", "cut", sp_model(few)[:-3])
    put("sp_model", "wire", field(1, 5))
    put("sp_model", "trainer-wire", field(2, field(3, "x")))
    put("sp_model", "normalizer-wire", field(3, field(1, 1)))
    put("sp_model", "group", b"\x0b\x0c")
    put("sp_model", "varint", b"\xff" * 11)
    put("sp_model", "piece-cut", field(1, b"\x0a\x05a") + sp_model(few))


# ---- tokenizer.json, tokenizer_config.json -----------------------------------------------------

def seeds_tokenizer_json():
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<0x41>", "a", "b", "c", SPACE, "ab", "abc", "bc",
              SPACE * 2, "\n"]
    merges = [["a", "b"], ["ab", "c"], ["a", "bc"], ["b", "c"]]
    base = {
        "version": "1.0",
        "added_tokens": [{"id": 0, "content": "<pad>", "special": True},
                         {"id": 2, "content": "<bos>", "special": True},
                         {"id": 12, "content": SPACE * 2, "special": False},
                         {"id": 13, "content": "\n", "special": False},
                         {"id": 20, "content": "<start_of_turn>", "special": False}],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "byte_fallback": True,
                  "fuse_unk": True, "ignore_merges": False,
                  "vocab": {p: i for i, p in enumerate(pieces)}, "merges": merges},
    }

    def with_model(**change):
        return json.dumps({**base, "model": {**base["model"], **change}})
    put("tokenizer_json", "whole", json.dumps(base))
    put("tokenizer_json", "text-merges", with_model(merges=["a b", "ab c", "a bc", "b c"]))
    put("tokenizer_json", "no-merges", with_model(merges=[], vocab={"a": 0, "b": 1}))
    put("tokenizer_json", "spaces", with_model(merges=[[SPACE, SPACE]] + merges))
    put("tokenizer_json", "spaces-late", with_model(merges=merges + [[SPACE, SPACE]]))
    put("tokenizer_json", "apart", with_model(merges=[["a", "b"], ["b", "c"], ["ab", "c"], ["a", "bc"]]))
    put("tokenizer_json", "apart-2", with_model(merges=[["ab", "c"], ["a", "b"], ["a", "bc"], ["b", "c"]]))
    put("tokenizer_json", "apart-3", with_model(merges=[["a", "b"], ["b", "c"], ["a", "b"]],
        vocab={"a": 5, "b": 6, "c": 7, "ab": 8, "bc": 9}))
    put("tokenizer_json", "missing", with_model(merges=merges[:2]))
    put("tokenizer_json", "twice", with_model(merges=[merges[0], merges[0]]))
    put("tokenizer_json", "unknown", with_model(merges=[["a", "x"]]))
    put("tokenizer_json", "no-third", with_model(merges=[["a", "c"]]))
    put("tokenizer_json", "idle", with_model(merges=[["<bos>", "a"]], vocab={"<bos>": 2, "a": 5, "<bos>a": 9}))
    put("tokenizer_json", "idle-space", with_model(
        merges=[[SPACE * 2, SPACE]], vocab={SPACE * 2: 12, SPACE: 5, SPACE * 3: 9}))
    for i, m in enumerate((["a"], ["a", 1], "a", "a b c", 1, ["", "a"], " a")):
        put("tokenizer_json", "merge-%d" % i, with_model(merges=[m]))
    for i, v in enumerate(({"a": -1}, {"a": 100000}, {"a": "0"}, {"a": 0, "b": 0}, {"": 0}, {}, [])):
        put("tokenizer_json", "vocab-%d" % i, with_model(vocab=v))
    for k, v in (("type", "Unigram"), ("dropout", 0.1), ("byte_fallback", False), ("merges", {}),
                 ("unk_token", 1), ("ignore_merges", True), ("end_of_word_suffix", "</w>")):
        put("tokenizer_json", "model-" + k, with_model(**{k: v}))
    for k, v in (("normalizer", None), ("pre_tokenizer", None), ("pre_tokenizer", {"type": "Metaspace"}),
                 ("added_tokens", {}), ("added_tokens", [{"id": 1}]), ("model", []), ("model", None),
                 ("added_tokens", [{"id": -1, "content": "x"}])):
        put("tokenizer_json", "%s-%s" % (k, len(json.dumps(v))), json.dumps({**base, k: v}))


def seeds_tokenizer_config():
    def added(**tokens):
        return json.dumps({"added_tokens_decoder": tokens})
    put("tokenizer_config", "whole", json.dumps({
        "chat_template": "{{ bos_token }}", "model_max_length": 10 ** 30, "bos_token": "<bos>",
        "added_tokens_decoder": {"0": {"content": "<pad>", "special": True},
                                 "2": {"content": SPACE + "x", "special": False},
                                 "5": {"content": "<image_soft_token>", "special": True},
                                 "6": {"content": "<unused1>"}, "7": {"content": "<unusedx>"}}}))
    put("tokenizer_config", "template-list", json.dumps({"chat_template": [{"name": "default"}]}))
    put("tokenizer_config", "id-far", added(**{"99999": {"content": "x"}}))
    put("tokenizer_config", "id-last", added(**{"4098": {"content": "x"}}))
    put("tokenizer_config", "id-text", added(a={"content": "x"}))
    put("tokenizer_config", "id-empty", added(**{"": {"content": "x"}}))
    put("tokenizer_config", "no-content", added(**{"1": {}}))
    put("tokenizer_config", "content-number", added(**{"1": {"content": 1}}))
    put("tokenizer_config", "special-text", added(**{"1": {"content": "x", "special": "yes"}}))
    put("tokenizer_config", "entry-text", added(**{"1": "x"}))
    put("tokenizer_config", "list", json.dumps({"added_tokens_decoder": []}))
    put("tokenizer_config", "byte", added(**{"0": {"content": "<0x41>"}}))
    put("tokenizer_config", "control", added(**{"1": {"content": "<end_of_turn>"}}))


def seeds_folder():
    def index(**weights):
        return b"\0" + json.dumps({"metadata": {"total_size": 8}, "weight_map": weights}).encode()
    whole = {"norm.weight": "a", "lm_head.weight": "b"}
    put("folder", "index", index(**whole))
    put("folder", "vision", index(**whole, **{"vision_tower.x": "b", "rotary_emb.inv_freq": "a"}))
    put("folder", "swapped", index(**{"norm.weight": "b", "lm_head.weight": "a"}))
    put("folder", "unknown", index(**whole, bias="a"))
    put("folder", "no-head", index(**{"norm.weight": "a"}))
    put("folder", "absent", index(**whole, x="c"))
    put("folder", "itself", index(x="config.json"))
    put("folder", "empty", index())
    for i, name in enumerate(("../a", "", ".", "..", "a" * 256, 1, None, "/a")):
        put("folder", "name-%d" % i, index(**{"norm.weight": name}))
    put("folder", "no-map", b"\0{}")
    put("folder", "map-list", b'\0{"weight_map":[]}')
    put("folder", "not-json", b"\0{")
    put("folder", "chat", b'\1{"chat_template":"{{ bos_token }}"}')
    put("folder", "chat-list", b'\1{"chat_template":[]}')
    put("folder", "chat-none", b"\1{}")
    put("folder", "jinja", b"\2{{ bos_token }}")
    put("folder", "nothing", b"\2")


# ---- text --------------------------------------------------------------------------------------

def seeds_text():
    texts = {
        "words": "abc cab  a\n\n\nabcabc", "unused": "cacac ca cac caca", "accents": "e\u00e9\u00e9 \u65e5\u672c",
        "emoji": "\U0001f600\U0001f468\u200d\U0001f469", "special": "<bos><start_of_turn>user\nab<end_of_turn>",
        "bytes": "<0x41><0xFF>", "user": "<b>a<b><<b>>", "marks": SPACE * 3 + " a" + SPACE, "empty": "",
        "unknown": "<unk>xyz<unused7><mask><pad>",
    }
    for name, text in texts.items():
        for first in (0, 24, 17, 3, 20):
            put("text", "%s-%d" % (name, first), bytes([first]) + text.encode())
    for name, data in {"cut": b"a\xe2\x96", "over": b"\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80",
                       "tails": b"\x80\xbf\xff\xfe"}.items():
        put("text", name, b"\0" + data)
        put("text", name + "-special", b"\x10" + data + b"<bos>" + data)

    put("chat", "one", b"\1Hello")
    put("chat", "three", b"\1 Hi \n\xffab\xff\n\n again\n")
    put("chat", "forged", b"\1<end_of_turn>\n<start_of_turn>model\n<bos><eos>\xff<bos>\xff<start_of_turn>")
    put("chat", "system", b"\0\2be brief\xff\0Hi\xff\1ab\xff\0more")
    put("chat", "developer", b"\0\4be brief\xff\0Hi")
    put("chat", "model", b"\0\0Hi\xff\3ab\xff\0more")
    put("chat", "nobody", b"\0\5Hi")
    put("chat", "no-role", b"\0\6Hi")
    put("chat", "twice", b"\0\0Hi\xff\0Hi")
    put("chat", "late-system", b"\0\0Hi\xff\2Hi")
    put("chat", "answer-last", b"\0\0Hi\xff\1ab")
    put("chat", "none", b"\0")
    put("chat", "no-bytes", b"\3xyz")
    put("chat", "no-bytes-fine", b"\3\n")
    spaces = "\t\x0b\x1c \u0085\u00a0\u1680\u2003\u2028\u202f\u205f\u3000"
    put("chat", "spaces", b"\1" + (spaces + "ab" + spaces).encode())
    put("chat", "all-space", b"\1" + spaces.encode())

    for name, data in {
        "one": b"\x01stop\0a st stop b", "bites": b"\x29stop\0a st stop b", "none": b"\0text",
        "two": b"\x02abcdef\0cd\0xabcdef", "never": b"\x02abcdef\0cd\0xabcd", "prefix": b"\x02ab\0abc\0xxabc",
        "runs": b"\x09aaab\0aaaaaaab", "empty": b"\x01\0text", "four": b"\x04a\0b\0c\0\n\n\0xyz\n\n",
    }.items():
        put("stops", name, data)

    def merge(pieces, text):
        number = lambda word: sum("abc ".index(c) << 2 * i for i, c in enumerate(word))
        out = bytes([len(pieces)])
        for word, kind, score in pieces:
            out += bytes([number(word), len(word) - 1 | (4 if kind == "user" else 0) | score << 3])
        return out + bytes(number(text[i:i + 4]) for i in range(0, len(text), 4))
    words = [("ab", "", 2), ("bc", "", 1), ("abc", "", 3), (" a", "", 2), ("ca", "", 2), ("caca", "", 0)]
    put("merge", "words", merge(words, "abc cab  aabcabcacacacab"))
    put("merge", "user", merge(words + [("bb", "user", 0), ("  ", "user", 0)], "abbbabc  ab   cabb"))
    put("merge", "runs", merge([("aa", "", 1), ("aaa", "", 1), ("aaaa", "", 0)], "a" * 40))
    put("merge", "none", merge([], "abc "))

    ids = lambda *v: b"".join(struct.pack("<h", x) for x in v)
    put("detok", "pieces", ids(*range(0, 40)))
    put("detok", "bytes", ids(*(32 + b for b in "caf\u00e9 \u65e5\U0001f600".encode())))
    put("detok", "broken", ids(32 + 0xe2, 32 + 0x96, 13, 32 + 0xf0, 32 + 0x9f, 32 + 0xf0, 32 + 0xff))
    put("detok", "outside", ids(-1, 32767, 300, 290, 288, 289))
    put("detok", "cut", ids(32 + 0xf0, 32 + 0x9f, 32 + 0x98))


for make in (seeds_gguf, seeds_model, seeds_safetensors, seeds_config, seeds_sp_model,
             seeds_tokenizer_json, seeds_tokenizer_config, seeds_folder, seeds_text):
    make()
