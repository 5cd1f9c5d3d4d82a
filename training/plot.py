# SPDX-License-Identifier: MIT
"""Draws the loss curves of training runs as an SVG.

    python3 training/plot.py OUT.svg A.csv B.csv ...
"""

import csv
import math
import sys
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 400, 60, 44, 24
COLOURS = ["#1b6ca8", "#c8553d", "#4f8a4c", "#8a5a9e"]


def points(path: str, column: str) -> list[tuple[float, float]]:
    """(millions of tokens, nats a token), where the column has a value."""
    with open(path, newline="") as file:
        rows = [r for r in csv.DictReader(file) if r.get(column)]
    return [(int(r["tokens"]) / 1e6, float(r[column])) for r in rows]


def main() -> None:
    out, *paths = sys.argv[1:]
    lines = [(f"{Path(p).stem}, {column}", points(p, column), COLOURS[i % 4], dash)
             for i, p in enumerate(paths)
             for column, dash in (("train", ""), ("pairs", "6 4"), ("plots", "2 3"))]
    x_max = max(x for _, line, _, _ in lines for x, _ in line)
    low, high = 0.35, max(8.0, *(y for _, line, _, _ in lines for _, y in line))

    def at(x: float, y: float) -> str:
        across = LEFT + (WIDTH - LEFT - 20) * x / x_max
        share = (math.log(y) - math.log(low)) / (math.log(high) - math.log(low))
        return f"{across:.1f},{HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share:.1f}"

    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    for y in (0.5, 1, 2, 4, 8):
        x0, y0 = at(0, y).split(",")
        svg.append(f'<path d="M{x0} {y0}H{WIDTH - 20}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{float(y0) + 4}" text-anchor="end">{y}</text>')
    for i in range(5):
        x0 = at(x_max * i / 4, low).split(",")[0]
        svg.append(f'<text x="{x0}" y="{HEIGHT - 24}" text-anchor="middle">'
                   f'{x_max * i / 4:.0f}</text>')
    svg.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">million tokens</text>'
               f'<text x="8" y="14">nats a token</text>')
    for i, (name, line, colour, dash) in enumerate(lines):
        path = " ".join(at(x, y) for x, y in line)
        style = f'fill="none" stroke="{colour}" stroke-width="1.5" stroke-dasharray="{dash}"'
        y = 130 + 16 * i
        svg.append(f'<polyline points="{path}" {style}/><path d="M480 {y - 4}H510" {style}/>'
                   f'<text x="516" y="{y}">{name}</text>')
    Path(out).write_text("\n".join([*svg, "</svg>"]) + "\n")


if __name__ == "__main__":
    main()
