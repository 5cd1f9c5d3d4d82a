# SPDX-License-Identifier: MIT
"""The words of the generator: who, what, where, and what is held out of the training."""

import zlib
from typing import NamedTuple

from grammar import pairs, sections, word_lists

LISTS = word_lists()

ANIMALS, FANTASY = LISTS["animals"], LISTS["fantasy"]
# People with the pronoun that goes without saying; "" where both do.
PEOPLE = dict(pairs([p if "/" in p else p + "/" for p in LISTS["people"]], "/"))
BOYS, GIRLS = LISTS["boys"], LISTS["girls"]
HERO_ADJ, THING_ADJ = LISTS["hero adjectives"], LISTS["thing adjectives"]
PLACES = pairs(LISTS["places"], "/")  # "in the", "forest"
PLACE_ADJ = LISTS["place adjectives"]
SKILLS = pairs(LISTS["skills"], "/")  # "swim", "swam"


class Kind(NamedTuple):
    """A kind of thing."""

    things: list[str]
    looks: list[str]  # templates
    uses: list[tuple[str, str]]  # "light the way", "lit the way"


def kind_of(groups: list[list[str]]) -> Kind:
    *things, looks, uses = groups  # the kind of made-up things has none of its own
    return Kind(things[0][0].split(", ") if things else [], looks, pairs(uses))


THINGS = {name: kind_of(groups) for name, groups in sections("things").items()}
KIND_OF = {thing: name for name, kind in THINGS.items() for thing in kind.things}
SMALL_THINGS = [thing for thing, kind in KIND_OF.items() if kind != "big"]
BIG_THINGS = THINGS["big"].things

# Nouns the training never sees; the evaluation asks for them.
HELD_NOUNS = {"badger", "heron", "walrus", "clockmaker", "pirate", "compass", "teapot", "kite",
              "snow globe", "accordion", "gnome", "fossil"}


def held_pair(one: str, other: str) -> bool:
    """Whether training never sees these two nouns in one story: one pair in forty."""
    pair = "|".join(sorted((one, other)))
    return pair == "fox|lantern" or zlib.crc32(pair.encode()) % 40 == 0


def free_pair(rng) -> tuple[str, str]:
    """An animal and a thing that training may put together."""
    while True:
        animal, thing = rng.choice(ANIMALS), rng.choice(SMALL_THINGS)
        if not held_pair(animal, thing) and not HELD_NOUNS & {animal, thing}:
            return animal, thing


# Made-up words teach the model to copy what it was asked for instead of picking from a list.
_HEADS = ("b bl br c ch cl cr d dr f fl fr g gl gr h j k kl l m n p pl pr qu r s sh sk sl sn sp st "
          "t tr v w z zw").split()
_TAILS = "b ck d ff g k ll m n nd ng nk p r rn rp sh sk ss st t x zz".split()


_ENDS = ("er ing ling let ette y o a ie ster ment ship dust pot maker bird fish stone box top nut "
         "bug").split()
WHO_NOUNS = {*ANIMALS, *FANTASY, *PEOPLE}
_SHORT = [w for w in ANIMALS + SMALL_THINGS if len(w) < 6 and w not in HELD_NOUNS]


_RUDE = "dick cock shit fuck cunt tit fag nig rape piss slut sex poo".split()


def made_up(rng) -> str:
    """A word that no list has, and that may be said."""
    while True:
        word = _made_up(rng)
        if word not in KIND_OF and word not in WHO_NOUNS and not any(r in word for r in _RUDE):
            return word


def _made_up(rng) -> str:
    """Syllables, two words in one, or a word with another end."""
    def syllable() -> str:
        return rng.choice(_HEADS) + rng.choice("a e i o u a e ai ee oo ou".split())
    turn = rng.random()
    if turn < 0.5:
        syllables = [syllable() for _ in range(rng.choice((1, 1, 2, 2, 3)))]
        return "".join(syllables) + rng.choice([*_TAILS, "", "", ""])
    if turn < 0.7:
        return rng.choice(_SHORT) + rng.choice(_SHORT)
    if turn < 0.9:
        return rng.choice((rng.choice(_SHORT), syllable() + rng.choice(_TAILS))) + rng.choice(_ENDS)
    return f"{rng.choice(THING_ADJ)} {syllable()}{rng.choice(_TAILS)}"
