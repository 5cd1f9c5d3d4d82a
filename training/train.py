# SPDX-License-Identifier: MIT
"""Trains one of the models and writes its Hugging Face folder and its loss curve.

    python3 training/train.py gemmule-mini OUT [--steps N] [--minutes M]
    python3 training/train.py gemmule-draft OUT

One GPU; the text is made by worker processes while it trains and no document is seen twice. The
learning rate falls in a line to zero at --steps or, if that comes first, at --minutes, so that a
slower machine ends with a shorter training instead of a broken one.
"""

import argparse
import csv
import math
import os
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from model import CONTEXT, NO_MASKS, export, new_model
from rows import batch, batches

SEED = 1
ROWS = 16  # of CONTEXT tokens a step
WARMUP = 150  # steps
DECAY = 0.05  # of matrices, not of norms
WATCHED = ("fresh", "pairs", "nouns", "plots")  # splits whose loss the curve has
LEARNING_RATE = {"gemmule-mini": 2e-3, "gemmule-draft": 4e-3}


def head_loss(hidden, weight, ids):
    """Cross-entropy of the next token. hidden [rows, length, d]; ids [rows, length]."""
    logits = F.linear(hidden[:, :-1], weight).float()
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def optimizer_of(model, rate: float) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.ndim > 1]
    norms = [p for p in model.parameters() if p.ndim == 1]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY},
                              {"params": norms, "weight_decay": 0.0}],
                             lr=rate, betas=(0.9, 0.95), fused=torch.cuda.is_available())


def to_device(ids, device: str) -> torch.Tensor:
    return torch.from_numpy(ids).long().to(device, non_blocking=True)


class Trainer:
    def __init__(self, name: str, device: str):
        torch.manual_seed(SEED)
        self.device = device
        self.model = new_model(name).to(device).train()
        self.peak = LEARNING_RATE[name]
        self.optimizer = optimizer_of(self.model, self.peak)
        self.head_loss = head_loss
        if device == "cuda":
            torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as it is
            for layer in self.model.model.layers:  # alike layers share their code
                layer.compile()
            self.head_loss = torch.compile(head_loss)
        self.watch = {split: to_device(batch(0, split, 4, CONTEXT), device) for split in WATCHED}

    def loss(self, ids: torch.Tensor) -> torch.Tensor:
        with torch.autocast(self.device, torch.bfloat16):
            hidden = self.model.model(input_ids=ids, attention_mask=NO_MASKS,
                                      use_cache=False).last_hidden_state
            return self.head_loss(hidden, self.model.lm_head.weight, ids)

    def step(self, ids: torch.Tensor, rate: float) -> torch.Tensor:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self.loss(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    @torch.no_grad()
    @torch.compiler.set_stance("force_eager")  # the other shape would be compiled anew
    def watched(self) -> list[float]:
        return [self.loss(ids).item() for ids in self.watch.values()]


def train(trainer: Trainer, args: argparse.Namespace, curve) -> None:
    out = csv.writer(curve)
    out.writerow(["step", "tokens", "seconds", "rate", "train", *WATCHED])
    every = max(1, args.steps // 20)
    start = time.monotonic()
    stream = batches("train", args.steps, ROWS, CONTEXT, args.workers)
    for number, ids in enumerate(stream, 1):
        seconds = time.monotonic() - start
        done = max(number / args.steps, seconds / (60 * args.minutes))
        rate = trainer.peak * min(1.0, number / WARMUP) * max(0.0, 1.0 - done)
        loss = trainer.step(to_device(ids, trainer.device), rate)
        if number % 20 and done < 1.0:
            continue
        watched = trainer.watched() if number % every < 20 or done >= 1.0 else []
        row = [number, number * ROWS * CONTEXT, f"{seconds:.1f}", f"{rate:.2e}"]
        row += [f"{x:.4f}" for x in (loss.item(), *watched)]
        out.writerow(row)
        print(*row, flush=True)
        if done >= 1.0:
            break
    stream.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(LEARNING_RATE))
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=2800)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    trainer = Trainer(args.name, "cuda" if torch.cuda.is_available() else "cpu")
    size = sum(p.numel() for p in trainer.model.parameters())
    print(f"{args.name}: {size} parameters", flush=True)
    with (args.out / f"{args.name}.csv").open("w", newline="") as curve:
        train(trainer, args, curve)
    export(trainer.model, args.out / args.name)


if __name__ == "__main__":
    main()
