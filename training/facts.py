# SPDX-License-Identifier: MIT
"""What the model knows of the world: tables of facts, and the ways to ask for them."""

import random

from grammar import NUMBERS, Phrases, a, expand, finish, pairs, pick, plural, templates
from words import ANIMALS, FANTASY, HELD_NOUNS, KIND_OF, PEOPLE, free_pair, made_up
from words import LISTS as WORDS

CAPITALS, COLOURS, SOUNDS, YOUNG, OPPOSITES, LEGS, SIDES = (
    dict(pairs(WORDS[name], "/")) for name in (
        "capitals", "colours", "sounds", "young", "opposites", "legs", "sides"))
DAYS, MONTHS, SEASONS, PLANETS = (WORDS[n] for n in ("days", "months", "seasons", "planets"))
SIZES = WORDS["sizes"]  # from the smallest to the biggest
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
COUNTS = pairs(templates("facts")["how many"])
SINGLE = pairs(templates("facts")["single"])

def listed(*names: str) -> dict[str, list[str]]:
    return {name: WORDS[f"list of {name}"] for name in names}


# What one may be asked to name some of.
LISTS = {
    "animals": [w for w in ANIMALS if len(w) < 9 and w not in HELD_NOUNS],
    **listed("colours", "fruits", "vegetables", "birds", "farm animals"),
    "days of the week": DAYS, "months": MONTHS, "seasons": SEASONS, "planets": PLANETS,
    "countries": [land for land in CAPITALS if not land.startswith("the ")],
    "capitals": sorted(set(CAPITALS.values())),
    **listed("flowers", "trees", "musical instruments", "things in a kitchen", "feelings"),
    **listed("shapes"),
}
GOOD_FOR = {
    "light": "something that gives light", "food": "something to eat", "wear": "something to wear",
    "music": "something to make music with", "book": "something to look at or to read",
    "tool": "a useful thing", "toy": "something to play with", "treasure": "something precious",
    "box": "something to put things in", "plant": "something that grows",
    "home": "something you find in a house", "big": "something big that people build",
}
FACTS = Phrases("facts")


def series(items: list[str]) -> str:
    return ", ".join(items[:-1]) + " and " + items[-1]


def capital(rng: random.Random) -> tuple[str, str]:
    land = pick(rng, list(CAPITALS))
    if rng.random() < 0.12:
        land = made_up(rng).title() + rng.choice(["", "land", "ia"])
        return f"What is the capital of {land}?", FACTS("no land", rng, land=land)
    town = CAPITALS[land]
    if rng.random() < 0.25:
        return FACTS("ask land", rng, town=town), f"{town} is the capital of {land}."
    return FACTS("ask capital", rng, land=land), FACTS("capital", rng, land=land, town=town)


def neighbour(rng: random.Random) -> tuple[str, str]:
    """What comes before or after, in a row that goes round or not."""
    row, what = pick(rng, [
        (DAYS, "day"), (MONTHS, "month"), (SEASONS, "season"), (list(ALPHABET), "letter"),
        (PLANETS, "planet"), ([str(n) for n in range(1, 100)], "number")])
    i = int(rng.random() * len(row))
    step = rng.choice((1, -1))
    goes_round = what in ("day", "month", "season")
    if not goes_round and not 0 <= i + step < len(row):
        step = -step
    other = row[(i + step) % len(row)]
    word = "after" if step == 1 else "before"
    return (f"{rng.choice(['What', 'Which'])} {what} comes {word} {row[i]}?",
            finish(f"{other} comes {word} {row[i]}."))


def table(rng: random.Random) -> tuple[str, str]:
    """A fact of one of the smaller tables."""
    turn = rng.randrange(8)
    if turn == 0:
        thing, colour = pick(rng, list(COLOURS.items()))
        ask = rng.choice(("What colour is", "Which colour is", "What is the colour of"))
        return f"{ask} {thing}?", finish(f"{thing} is {colour}.")
    if turn == 1:
        animal, sound = pick(rng, list(SOUNDS.items()))
        return FACTS("ask sound", rng, a=a(animal)), finish(f"a {animal} says {sound}.")
    if turn == 2:
        animal, young = pick(rng, list(YOUNG.items()))
        return (FACTS("ask young", rng, a=animal),
                finish(f"a young {animal} is called a {young}."))
    if turn == 3:
        animal, legs = pick(rng, list(LEGS.items()))
        number = NUMBERS[int(legs)] if legs != "0" else "no"
        return (f"How many legs does {a(animal)} have?",
                finish(f"a {animal} has {number} legs."))
    if turn == 4:
        one, other = pick(rng, list(OPPOSITES.items()))
        return FACTS("ask opposite", rng, w=one), f"The opposite of {one} is {other}."
    if turn == 5:
        shape, n = pick(rng, list(SIDES.items()))
        return f"How many sides does {a(shape)} have?", finish(f"a {shape} has {n} sides.")
    if turn == 6:
        x, y = rng.sample(range(len(SIZES)), 2)
        big = rng.random() < 0.5
        answer = SIZES[max(x, y) if big else min(x, y)]
        other = SIZES[min(x, y) if big else max(x, y)]
        word = "bigger" if big else "smaller"
        ask = rng.choice(("Which is", "What is", "Who is"))
        return (f"{ask} {word}, {a(SIZES[x])} or {a(SIZES[y])}?",
                finish(f"a {answer} is {word} than a {other}."))
    noun = free_pair(rng)[0]
    return (f"What is the plural of {noun}?", f"The plural of {noun} is {plural(noun)}.")


def what_is(rng: random.Random) -> tuple[str, str]:
    """What a word of the stories means, in a few words."""
    known = {noun: GOOD_FOR[kind] for noun, kind in KIND_OF.items()}
    known |= dict.fromkeys(ANIMALS, "an animal") | dict.fromkeys(PEOPLE, "a person")
    known |= dict.fromkeys(FANTASY, "somebody you meet in stories")
    noun = pick(rng, [word for word in known if word not in HELD_NOUNS])
    return FACTS("ask what", rng, a=a(noun)), finish(f"a {noun} is {known[noun]}.")


def listing(rng: random.Random) -> tuple[str, str]:
    """So many of a kind, as a sentence or as a list."""
    what, items = pick(rng, list(LISTS.items()))
    n = rng.choice((2, 3, 3, 3, 4, 5))
    chosen = sorted(rng.sample(items, min(n, len(items))), key=items.index)  # never one twice
    if what in ("days of the week", "months", "planets", "seasons") and rng.random() < 0.5:
        chosen = items[: len(chosen)]
    n = NUMBERS[len(chosen)]
    form = rng.randrange(4)
    ask = FACTS("ask list", rng, n=n if rng.random() < 0.8 else str(len(chosen)), what=what)
    if form == 0:
        return ask + " as a list.", "\n".join(f"- {w}" for w in chosen)
    if form == 1:
        return ask + " as a numbered list.", "\n".join(f"{i}. {w}" for i, w in enumerate(chosen, 1))
    if form == 2:
        return ask + expand(", (one on each line|one per line).", rng), "\n".join(chosen)
    return ask + ".", FACTS("list", rng, n=n, what=what, s=series(chosen))


def fact(rng: random.Random) -> tuple[str, str]:
    turn = rng.random()
    if turn < 0.22:
        return capital(rng)
    if turn < 0.36:
        return neighbour(rng)
    if turn < 0.66:
        return table(rng)
    if turn < 0.75:
        question, answer = pick(rng, COUNTS)
        return f"How many {question}?", answer
    return what_is(rng) if turn < 0.83 else pick(rng, SINGLE)
