# SPDX-License-Identifier: MIT
"""A small template language for English sentences.

    (a|b|c)     one of these, drawn evenly; may be empty, may be nested
    {hero}      a slot: a string, or a function of the random generator
    {Hero}      the same with a capital letter

Templates are parsed once and kept. Articles are written "a" everywhere and put right at the end
(finish), because the word that follows is not known before.

The templates live in text/*.txt. A line [name] opens a section, an indented line continues the one
above, a blank line parts groups, and # starts a comment.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

NUMBERS = "zero one two three four five six seven eight nine ten".split()

Slots = Mapping[str, str | Callable[[random.Random], str]]

_TOKEN = re.compile(r"[(|)]|\{\w+\}|[^(|){]+")
_SAYS_YOO = r"(?!uni|use|usual|uku|eu|ewe|one\b|once\b|u-)"
_VOWEL = re.compile(r"\b([Aa]) (?=" + _SAYS_YOO + r"[aeiou]|hour|honest|8\b|11\b|18\b|8\d\b)")
_START = re.compile(r'(^|\n|[.!?] |\." )("?)([a-z])')


def sections(file: str) -> dict[str, list[list[str]]]:
    """The sections of text/FILE.txt: groups of templates by the section's name."""
    found: dict[str, list[list[str]]] = {}
    groups: list[list[str]] = []
    for line in (Path(__file__).resolve().parent / "text" / f"{file}.txt").read_text().splitlines():
        if line.startswith("["):
            groups = found[line.strip("[]")] = [[]]
        elif line.startswith("    "):
            groups[-1][-1] += line[3:]
        elif line and not line.startswith("#"):
            groups[-1].append(line)
        elif groups and groups[-1]:
            groups.append([])
    return {name: [group for group in groups if group] for name, groups in found.items()}


def templates(file: str) -> dict[str, list[str]]:
    """The same without groups; " / " is a new line."""
    return {name: [text.replace(" / ", "\n") for group in groups for text in group]
            for name, groups in sections(file).items()}


def word_lists() -> dict[str, list[str]]:
    """The sections of text/words.txt."""
    return {name: line.split(", ") for name, (line,) in templates("words").items()}


def pairs(lines: list[str], mark: str = " = ") -> list[tuple[str, str]]:
    """What is written "this = that", or with another mark."""
    return [(left, right) for left, right in (line.split(mark, 1) for line in lines)]


class Phrases:
    """A section of text/phrases.txt; calling it expands the phrase of that name."""

    def __init__(self, section: str):
        self.by_name = dict(pairs(templates("phrases")[section]))

    def __call__(self, name: str, rng: random.Random, /, **slots) -> str:
        return expand(self.by_name[name], rng, slots)


class Slot(str):
    """The name of a slot within a parsed template."""


@cache
def _parse(template: str) -> list:
    """A template as a list of text, Slot, and tuples of alternatives (each again such a list)."""
    tokens = _TOKEN.findall(template)
    place = 0

    def sequence(inside: bool) -> list:
        nonlocal place
        alternatives: list[list] = [[]]
        while place < len(tokens):
            token = tokens[place]
            place += 1
            if token == "(":
                alternatives[-1].append(tuple(sequence(True)))
            elif token == ")" and inside:
                return alternatives
            elif token == "|" and inside:
                alternatives.append([])
            else:
                alternatives[-1].append(Slot(token[1:-1]) if token[0] == "{" else token)
        if inside:
            raise ValueError(f"a bracket is left open in: {template}")
        return alternatives[0]

    return sequence(False)


def _render(nodes: list, rng: random.Random, slots: Slots, out: list[str]) -> None:
    for node in nodes:
        if isinstance(node, tuple):
            _render(node[int(rng.random() * len(node))], rng, slots, out)
        elif isinstance(node, Slot):
            name = node[0].lower() + node[1:]
            value = slots[name]
            text = value if isinstance(value, str) else value(rng)
            out.append(text if name == node else text[0].upper() + text[1:])
        else:
            out.append(node)


def expand(template: str, rng: random.Random, slots: Slots | None = None) -> str:
    out: list[str] = []
    _render(_parse(template), rng, slots or {}, out)
    return "".join(out)


def pick(rng: random.Random, items: Sequence):
    return items[int(rng.random() * len(items))]


def finish(text: str) -> str:
    """Articles before vowels, and capital letters where sentences start."""
    text = _VOWEL.sub(r"\1n ", text)
    return _START.sub(lambda m: m[1] + m[2] + m[3].upper(), text)


def a(noun: str) -> str:
    return finish(f"a {noun}")[0].lower() + finish(f"a {noun}")[1:]


def plural(noun: str) -> str:
    """The plural of a noun, of whose words the last is bent."""
    irregular = {"mouse": "mice", "goose": "geese", "wolf": "wolves", "sheep": "sheep",
                 "deer": "deer", "fish": "fish", "child": "children", "man": "men",
                 "woman": "women", "ox": "oxen", "knife": "knives", "loaf": "loaves",
                 "scarf": "scarves", "foot": "feet", "tooth": "teeth", "leaf": "leaves",
                 "calf": "calves", "shelf": "shelves", "elf": "elves", "thief": "thieves",
                 "moose": "moose", "reindeer": "reindeer", "potato": "potatoes",
                 "tomato": "tomatoes"}
    for one, many in irregular.items():
        if noun == one or noun.endswith((" " + one, "woman", "man")) and noun.endswith(one):
            return noun[: -len(one)] + many
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"
