# SPDX-License-Identifier: MIT
"""Reads the weights of a GGUF file back into transformers' model, expanded to float32.

So the reference implementation can be asked about the very numbers that a quantised file holds.
Knows what the bundled files have: GGUF version 3, float32 and q8_0 (blocks of 32: a float16 scale,
then 32 int8).
"""

import struct
from pathlib import Path

import numpy as np

ALIGNMENT = 32
F32, Q8_0 = 0, 8
STRING, ARRAY = 8, 9
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # type -> bytes

# A GGUF name's last part -> transformers'.
IN_LAYER = {
    "attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTSIDE = {"token_embd": "embed_tokens", "output_norm": "norm"}


class Cursor:
    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, form: str):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def string(self) -> str:
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def skip(self, kind: int) -> None:
        """Over a value of the metadata."""
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            of, n = self.take("I"), self.take("Q")
            for _ in range(n):
                self.skip(of)
        else:
            self.at += SCALARS[kind]


def tensors(path: str | Path) -> dict[str, np.ndarray]:
    """Every tensor of the file in float32, rightmost dimension contiguous."""
    data = Path(path).read_bytes()
    cursor = Cursor(data)
    magic, version, n_tensors, n_keys = cursor.take("4sIQQ")
    if magic != b"GGUF" or version != 3:
        raise ValueError(f"{path}: not a GGUF file of version 3")
    for _ in range(n_keys):
        cursor.string()
        cursor.skip(cursor.take("I"))
    infos = []
    for _ in range(n_tensors):
        name = cursor.string()
        shape = [cursor.take("Q") for _ in range(cursor.take("I"))][::-1]
        infos.append((name, shape, cursor.take("I"), cursor.take("Q")))
    start = -(-cursor.at // ALIGNMENT) * ALIGNMENT
    return {name: floats(data, start + off, shape, kind) for name, shape, kind, off in infos}


def floats(data: bytes, at: int, shape: list[int], kind: int) -> np.ndarray:
    n = int(np.prod(shape))
    if kind == F32:
        return np.frombuffer(data, "<f4", n, at).reshape(shape).copy()
    if kind == Q8_0:
        blocks = np.frombuffer(data, np.dtype([("scale", "<f2"), ("q", "i1", 32)]), n // 32, at)
        values = blocks["scale"].astype("f4")[:, None] * blocks["q"].astype("f4")
        return values.reshape(shape)
    raise ValueError(f"a tensor of type {kind}, expected {F32} or {Q8_0}")


def transformers_name(name: str) -> str:
    """blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight"""
    parts = name.removesuffix(".weight").split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{IN_LAYER[parts[2]]}.weight"
    return f"model.{OUTSIDE[parts[0]]}.weight"


def state(path: str | Path) -> dict[str, np.ndarray]:
    """The weights under transformers' names. GGUF has norms around 1, transformers around 0."""
    return {transformers_name(name): w - np.float32(1) if name.endswith("norm.weight") else w
            for name, w in tensors(path).items()}
