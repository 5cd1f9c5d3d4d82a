# SPDX-License-Identifier: MIT
"""Makes tokenizer.model, the vocabulary of both models: Gemma's special ids, our own pieces.

    python3 training/tokenizer.py [OUT] [--docs N]

SentencePiece learns byte pair merges from the corpus; its pieces are then laid out as in Gemma's
vocabulary, so that every id below 494 means what it means there:

    0 <pad>  1 <eos>  2 <bos>  3 <unk>  4 <mask>  5 [multimodal]  6-104 <unused0>-<unused98>
    105 <start_of_turn>  106 <end_of_turn>  107-137 newlines  138-167 runs of spaces
    168-237 <unused99>-<unused168>  238-493 bytes  494- merged pieces, then single characters

Digits are pieces of their own. The text is not normalised and no space is put before it.
"""

import argparse
import struct
import tempfile
from pathlib import Path

import sentencepiece

from corpus import document

N_VOCAB = 4096
PAD, EOS, BOS, UNK, START_OF_TURN, END_OF_TURN = 0, 1, 2, 3, 105, 106
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6  # SentencePiece's types of pieces


def fixed_pieces() -> list[tuple[str, int]]:
    """The pieces below 494 with their types."""
    pieces = [("<pad>", CONTROL), ("<eos>", CONTROL), ("<bos>", CONTROL), ("<unk>", UNKNOWN),
              ("<mask>", USER), ("[multimodal]", USER)]
    pieces += [(f"<unused{n}>", USER) for n in range(99)]
    pieces += [("<start_of_turn>", USER), ("<end_of_turn>", USER)]
    pieces += [("\n" * n, USER) for n in range(1, 32)]
    pieces += [("\u2581" * n, USER) for n in range(2, 32)]
    pieces += [(f"<unused{n}>", USER) for n in range(99, 169)]
    return pieces + [(f"<0x{value:02X}>", BYTE) for value in range(256)]


def learned_pieces(n: int, docs: int) -> list[str]:
    """n pieces learned from the corpus: merges in order of rank, then characters."""
    with tempfile.TemporaryDirectory() as folder:
        text, prefix = Path(folder) / "text", Path(folder) / "bpe"
        with text.open("w") as out:
            for number in range(docs):
                clean = document("train", number).replace("<eos>", "")
                for mark in ("<start_of_turn>user\n", "<start_of_turn>model\n", "<end_of_turn>"):
                    clean = clean.replace(mark, "\n")
                out.write(clean + "\nuser\nmodel\n")
            # Every printable ASCII character must have a piece.
            out.write((" ".join(map(chr, range(33, 127))) + "\n") * 50)
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(prefix), model_type="bpe", vocab_size=n + 3,
            character_coverage=1.0, split_digits=True, normalization_rule_name="identity",
            add_dummy_prefix=False, remove_extra_whitespaces=False, num_threads=2,
            unk_id=0, bos_id=1, eos_id=2, minloglevel=1)
        lines = prefix.with_suffix(".vocab").read_text().splitlines()
    return [line.split("\t")[0] for line in lines[3:]]


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def string(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def piece(text: str, score: float, kind: int) -> bytes:
    return string(1, string(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score)
                  + number(3, kind))


def model_proto(learned: list[str]) -> bytes:
    """SentencePiece's ModelProto, written field by field."""
    pieces = [piece(text, 0.0, kind) for text, kind in fixed_pieces()]
    pieces += [piece(text, -float(rank), NORMAL) for rank, text in enumerate(learned)]
    trainer = (number(3, 2) + number(4, len(pieces)) + number(35, 1)  # BPE, byte fallback
               + number(40, UNK) + number(41, BOS) + number(42, EOS) + number(43, PAD)
               + string(45, b"<unk>") + string(46, b"<bos>") + string(47, b"<eos>")
               + string(48, b"<pad>"))
    normalizer = string(1, b"identity") + b"".join(number(n, 0) for n in (3, 4))
    return b"".join(pieces) + string(2, trainer) + string(3, normalizer)


def check(model: bytes) -> None:
    """The ids that must be Gemma's, and text that must come back as it was."""
    tokens = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert tokens.get_piece_size() == N_VOCAB
    assert tokens.piece_to_id("<start_of_turn>") == START_OF_TURN
    assert tokens.piece_to_id("<end_of_turn>") == END_OF_TURN
    assert tokens.piece_to_id("\n") == 107 and tokens.piece_to_id("<0x00>") == 238
    for text in ("Hello  there,\n\n\n12 + 34 = 46!", "caf\u00e9 \u65e5", document("train", 7)):
        ids = tokens.encode(text)
        assert tokens.decode(ids) == text, text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", nargs="?", default=str(Path(__file__).parent / "tokenizer.model"))
    parser.add_argument("--docs", type=int, default=60000, help="documents to learn from")
    args = parser.parse_args()
    learned = learned_pieces(N_VOCAB - len(fixed_pieces()), args.docs)
    model = model_proto(learned)
    check(model)
    Path(args.out).write_bytes(model)


if __name__ == "__main__":
    main()
