# SPDX-License-Identifier: MIT
"""Writes what transformers computes with a model's weights, for tests to compare with.

    python3 training/golden.py MODEL OUT

MODEL is a Hugging Face folder, or a GGUF file, whose weights are expanded to float32. For
every prompt OUT gets a folder like those of tests/golden: tokens.txt (ids), shape.txt (n n_vocab)
and logprobs.bin (little-endian float32 [n, n_vocab], the log-softmax at the last n positions).
Computed in float32 with eager attention on one CPU thread; the last prompt is longer than two
windows.
"""

import sys
from pathlib import Path

import torch

from corpus import chat_text
from model import HERE, load
from rows import encode

POSITIONS = 8
PROMPTS = {
    "story": chat_text([("Tell me a story about a fox and a lantern.", "")], True),
    "sum": chat_text([("What is 17 + 25?", "17 + 25 = 42"), ("And 9 x 8?", "")], True),
    "raw": "Once upon a time, there lived a little fox",
    "page": (HERE / "heldout" / "page1.txt").read_text()[:1050],
}


@torch.no_grad()
def main() -> None:
    model, out = load(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)  # sums in one order
    for name, text in PROMPTS.items():
        ids = encode(text)
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -POSITIONS:]
        found = torch.log_softmax(logits.double(), -1).float()
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokens.txt").write_text(" ".join(map(str, ids)) + "\n")
        (folder / "shape.txt").write_text(f"{found.shape[0]} {found.shape[1]}\n")
        (folder / "logprobs.bin").write_bytes(found.numpy().astype("<f4").tobytes())


if __name__ == "__main__":
    main()
