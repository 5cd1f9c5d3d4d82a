# SPDX-License-Identifier: MIT
"""The corpus as rows of token ids.

A row starts with a document and is filled with more of them, each behind a <bos>; the last one is
cut. Batch number i of a split is a function of i alone, however many workers make it.
"""

from collections.abc import Iterator
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import sentencepiece

from corpus import document
from tokenizer import BOS, EOS

DOCS_A_BATCH = 1 << 14  # numbers set aside for a batch, more than it can use


@cache
def tokens() -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(
        model_file=str(Path(__file__).resolve().parent / "tokenizer.model"))


def encode(text: str) -> list[int]:
    """Ids with <bos> before them; <eos> at the end of a plain text is the token."""
    body = text.removesuffix("<eos>")
    return [BOS, *tokens().encode(body)] + [EOS] * (body != text)


def batch(number: int, split: str, rows: int, length: int) -> np.ndarray:
    """Batch `number`: [rows, length] ids."""
    out = np.zeros((rows, length), dtype=np.int16)
    doc = number * DOCS_A_BATCH
    for row in out:
        filled = 0
        while filled < length:
            ids = encode(document(split, doc))[: length - filled]
            row[filled : filled + len(ids)] = ids
            filled += len(ids)
            doc += 1
    return out


def batches(split: str, count: int, rows: int, length: int, workers: int) -> Iterator[np.ndarray]:
    """The first `count` batches, in order, made by worker processes ahead of time."""
    with get_context("fork").Pool(workers) as pool:
        yield from pool.imap(partial(batch, split=split, rows=rows, length=length), range(count))
