# SPDX-License-Identifier: MIT
"""What each type costs: converts a model to every type and compares the results with it.

    python3 training/quality.py MODEL [--types q8_0,q4_k_m] [--text models/heldout.txt]
                                [--bytes 12000] [--gemmule build/release/gemmule]

MODEL is a Hugging Face folder or a GGUF file, best of BF16. Each type is made three times: with
plain rounding, with the search, and with the search calibrated on documents of the generator's
split `fresh`. Prints a table of docs/QUANT.md, each row as soon as it is known. The text is the
first --bytes of the file.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from corpus import document

TYPES = ("f32,f16,bf16,q8_0,q6_k,q5_1,q5_k_m,q5_k,q5_0,q4_1,balanced,q4_k_m,q4_k,iq4_nl,q4_0,"
         "iq4_xs,q3_k,q2_k")
FLOATS = ("f32", "f16", "bf16")  # rounded to nearest, whatever is asked for
CALIBRATION_DOCS = 40  # 35 kB


def measure(args: argparse.Namespace, folder: Path, options: list[str]) -> dict:
    """What `gemmule compare` says of the model and its conversion with these options."""
    made = folder / "made.gguf"
    subprocess.run([args.gemmule, "convert", args.model, made, "--force", *options], check=True,
                   stderr=subprocess.DEVNULL)
    compare = [args.gemmule, "compare", args.model, made, "--json", "--text", folder / "text.txt"]
    return json.loads(subprocess.run(compare, check=True, capture_output=True).stdout)


def row(args: argparse.Namespace, folder: Path, name: str) -> str:
    methods = [["--plain"], [], ["--calibrate", folder / "calibration.txt"]]
    if name in FLOATS:
        methods = [[]]
    found = [measure(args, folder, ["--type", name, *method]) for method in methods]
    cells = [name, f"{found[0]['b']['bits']:.2f}"]
    for form in (lambda m: f"{m['b']['perplexity']:.4f}", lambda m: f"{m['kl']['mean'] * 1e3:.3f}",
                 lambda m: f"{m['same_top'] * 100:.1f}"):
        cells += [form(m) for m in found] if len(found) == 3 else ["", form(found[0]), ""]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--text", type=Path, default=Path("models/heldout.txt"))
    parser.add_argument("--bytes", type=int, default=12000)
    parser.add_argument("--gemmule", default="build/release/gemmule")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text.txt").write_bytes(args.text.read_bytes()[:args.bytes])
        documents = [document("fresh", number) for number in range(CALIBRATION_DOCS)]
        (folder / "calibration.txt").write_text("\n\n".join(documents))
        print("| type | bits | perplexity: plain | search | calibrated | 1000 KL: plain | search "
              "| calibrated | same top, %: plain | search | calibrated |")
        print("|---" + "|--:" * 10 + "|", flush=True)
        for name in args.types.split(","):
            print(row(args, folder, name), flush=True)


if __name__ == "__main__":
    main()
