# SPDX-License-Identifier: MIT
"""Small talk, arithmetic, what the model cannot do, and talk about a story just told."""

import random

from grammar import Phrases, a, expand, finish, pairs, pick, plural, templates
from stories import Tale, title_of
from words import BOYS, GIRLS, free_pair, made_up

TEXT = templates("talk")
SMALL_TALK = pairs(TEXT["small talk"])
SUMS, ECHO, TALE = Phrases("sums"), Phrases("echo"), Phrases("tale")

LIKED = ("cats", "dogs", "foxes", "books", "the sea", "winter days", "apples", "dragons", "owls",
         "trains", "mountains")
COUNTED = ("apples", "coins", "books", "marbles", "nuts", "pears", "eggs", "cookies", "flowers",
           "stamps", "shells", "balloons")
OP_WORDS = {"+": "plus", "-": "minus", "x": "times", "/": "divided by"}


def talk(rng: random.Random) -> tuple[str, str]:
    ask, answer = pick(rng, SMALL_TALK)
    animal, thing = free_pair(rng)
    kind, item = pick(rng, [
        ("animal", a(animal)), ("thing", a(thing)), ("colour", "the colour blue"),
        ("place", "the sea"), ("season", "winter"), ("food", "honey cakes")])
    slots = {"animals": plural(animal), "kind": kind, "item": item, "animal": animal,
             "thing": thing, "items": pick(rng, LIKED)}
    return finish(expand(ask, rng, slots)), finish(expand(answer, rng, slots))


def unknown(rng: random.Random) -> tuple[str, str]:
    word = made_up(rng)
    slots = {
        "year": str(rng.randrange(1500, 2030)),
        "word": word.title() if rng.random() < 0.5 else word,
        "name": pick(rng, BOYS + GIRLS), "n": str(rng.randrange(2, 5000)),
        "place": pick(rng, [made_up(rng).title(), "this town", "New York", "Paris", "the moon",
                            "the castle", "California", "Africa", "my house", "Bavaria"]),
        "sentence": pick(rng, ("good morning", "I like you", "hello", "this sentence", "the cat")),
    }
    return (finish(expand(pick(rng, TEXT["unknown"]), rng, slots)),
            finish(expand(pick(rng, TEXT["do not know"]), rng)))


def sum_of(rng: random.Random) -> tuple[int, str, int, int]:
    """x op y = result, mostly small."""
    op = rng.choice("+++--xx/")
    if op == "+":
        top = rng.choice((10, 20, 100, 100, 100, 1000))
        x, y = rng.randrange(top), rng.randrange(top)
        return x, op, y, x + y
    if op == "-":
        top = rng.choice((10, 20, 100, 100, 100, 1000))
        x, y = rng.randrange(top), rng.randrange(top)
        if x < y and rng.random() < 0.9:
            x, y = y, x
        return x, op, y, x - y
    x, y = rng.randrange(1, 13), rng.randrange(0 if op == "x" else 1, 13)
    return (x, op, y, x * y) if op == "x" else (x * y, op, x, y)


def arithmetic(rng: random.Random) -> tuple[str, str]:
    if rng.random() < 0.05:
        x, y = str(rng.randrange(1000, 10**6)), str(rng.randrange(1000, 10**6))
        return SUMS("ask too much", rng, x=x, y=y).strip(), SUMS("too much", rng)
    x, op, y, result = sum_of(rng)
    slots = {"x": str(x), "y": str(y), "r": str(result), "w": OP_WORDS[op],
             "op": rng.choice("x*") if op == "x" else op, "o": op}
    ask = SUMS("ask", rng, **slots).strip()
    if op == "/":
        ask = ask.replace("/ ", rng.choice(("/ ", ": ")), 1)
    elif rng.random() < 0.1:
        ask = SUMS(f"ask {op}", rng, **slots)
    return ask, SUMS("answer", rng, **slots)


def word_problem(rng: random.Random) -> tuple[str, str]:
    girl = rng.random() < 0.5
    name, he = (pick(rng, GIRLS), "she") if girl else (pick(rng, BOYS), "he")
    things = pick(rng, COUNTED)
    x, y = rng.randrange(2, 21), rng.randrange(2, 21)
    more = rng.random() < 0.5
    kind = "more" if more else "less"
    slots = {"n": name, "he": he, "things": things, "x": str(max(x, y)), "y": str(min(x, y)),
             "r": str(x + y if more else abs(x - y))}
    return SUMS(f"ask {kind}", rng, **slots), SUMS(kind if more or x != y else "none", rng, **slots)


def counting(rng: random.Random) -> tuple[str, str]:
    turn = rng.randrange(3)
    if turn == 0:
        first = rng.randrange(0, 40)
        last = first + rng.randrange(2, 12)
        ask = SUMS("ask count", rng, x=str(first), y=str(last))
        numbers = ", ".join(str(n) for n in range(first, last + 1))
        return ask, numbers + ("." if rng.random() < 0.5 else "")
    if turn == 1:
        x, y = rng.sample(range(1, 200), 2)
        big = rng.random() < 0.5
        word = "larger" if big else "smaller"
        answer, rest = (max(x, y), min(x, y)) if big else (min(x, y), max(x, y))
        return f"Which is {word}, {x} or {y}?", f"{answer} is {word} than {rest}."
    n = rng.randrange(0, 200)
    kind, other = ("even", "odd") if n % 2 == 0 else ("odd", "even")
    if rng.random() < 0.5:
        return f"Is {n} even or odd?", f"{n} is {kind}."
    asked = rng.choice((kind, other))
    return f"Is {n} {asked}?", f"Yes, {n} is {kind}." if asked == kind else f"No, {n} is {kind}."


def echo(rng: random.Random) -> tuple[str, str]:
    """Doing what is said with words that were given."""
    name = pick(rng, BOYS + GIRLS)
    animal, thing = free_pair(rng)
    words = [animal, thing, made_up(rng), name.lower()]
    text = " ".join(rng.sample(words, rng.choice((1, 2, 3))))
    turn = rng.randrange(5)
    if turn == 0:
        return ECHO("i am", rng, n=name), ECHO("hello", rng, n=name)
    if turn == 1:
        ask = ECHO("greet", rng, n=name)
        wish = ask.removeprefix("Please ")[len("say ") :].split(" to ")[0]
        return ask, f"{wish.capitalize()}, {name}!"
    if turn == 2:
        return ECHO("repeat", rng, t=text), text
    if turn == 3:
        sentence = finish(ECHO("to repeat", rng, a=animal, b=thing))
        return f"Repeat this sentence: {sentence}", sentence
    return (ECHO("ask sentence", rng, a=a(animal), b=a(thing)),
            finish(ECHO("sentence", rng, a=animal, b=thing)))


def about_tale(tale: Tale, rng: random.Random) -> tuple[str, str]:
    """A question on the story that was just told, and its answer."""
    hero, friend = tale.hero, tale.friend
    place = f"{tale.place[0]} {tale.place[1]}"
    turn = rng.randrange(6)
    if turn == 0:
        if rng.random() < 0.5:
            ask = TALE("ask where", rng, h=hero.name or "the " + hero.noun)
            return ask, finish(f"it happened {place}.")
        return f"Where did the {hero.noun} live?", f"The {hero.noun} lived {place}."
    if turn == 1 and hero.name:
        return TALE("ask name", rng, h=hero.noun), TALE("name", rng, h=hero.noun, n=hero.name)
    if turn == 2:
        called = f" called {friend.name}" if friend.name else ""
        return TALE("ask friend", rng), finish(f"there was also a {friend.noun}{called}.")
    if turn == 3:
        return (TALE("ask sum", rng),
                finish(TALE("sum", rng, h=hero.noun, f=friend.noun, t=tale.thing)))
    if turn == 4:
        return TALE("ask title", rng), title_of(tale, rng)
    return TALE("ask thing", rng), finish(f"it was a {tale.thing}.")


