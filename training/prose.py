# SPDX-License-Identifier: MIT
"""Running prose without a plot: English clauses of many forms over a wide vocabulary.

The stories teach a model what to tell; told alone they teach it little else, and any sentence that
no plot has would astonish it. These paragraphs have no point, but their grammar is right and hardly
ever the same twice: two tenses, questions, speech, subordinate clauses, pronouns that refer back.
"""

import random
from typing import NamedTuple

from grammar import expand, finish, pick, plural, templates
from words import (ANIMALS, BOYS, GIRLS, HELD_NOUNS, HERO_ADJ, LISTS, PEOPLE, PLACES, SMALL_THINGS,
                   THING_ADJ, free_pair)

TEXT = templates("prose")
PLACED, HANDLED, TOLD, BODY = (LISTS[f"nouns {n}"] for n in (
    "of places", "to handle", "to tell", "of the body"))
COUNTLESS = set(LISTS["nouns without a number"])
ADJ, HOW, PREPS = LISTS["adjectives"], LISTS["how"], LISTS["prepositions"]


OF_ONE = ("his", "her", "my", "their", "this", "that", "every", "no", "the same")
OF_MANY = ("two", "three", "some", "many", "the", "a few", "all the")
JOINING = ("and", "but", "so", "for", "and then", "and still")
BETWEEN = ("because", "when", "until", "while", "although", "as if", "before", "after", "since",
           "as")
VERY = ("", " too", " very", " still")
BEFORE = ("when", "while", "because", "after", "before", "whenever", "although", "as", "if")


class Verb(NamedTuple):
    base: str
    past: str
    done: str
    third: str
    ing: str


def verb(text: str) -> Verb:
    """A verb from "base" or "base/past/participle"; regular forms are derived."""
    base, *irregular = text.split("/")
    soft_y = base.endswith("y") and base[-2] not in "aeiou"
    regular = base[:-1] + "ied" if soft_y else base + ("d" if base.endswith("e") else "ed")
    past, done = irregular or (regular, regular)
    third = base[:-1] + "ies" if soft_y else base + (
        "es" if base.endswith(("s", "sh", "ch", "x", "o")) else "s")
    stem = past[:-2] if past.endswith(base[-1] * 2 + "ed") and not base.endswith("e") else base
    if base in ("run", "swim", "sit", "win", "cut", "set", "put", "begin", "forget", "stop"):
        stem = base + base[-1]
    if base.endswith("ie"):
        stem = base[:-2] + "y"
    elif stem.endswith("e") and not stem.endswith("ee"):
        stem = stem[:-1]
    return Verb(base, past, done, third, stem + "ing")


ALONE, THING, TELL, OTHER, SAYING = (
    [verb(v) for v in LISTS[f"verbs {n}"]] for n in (
        "alone", "with a thing", "of telling", "with somebody", "of saying"))
NATURE_VERBS = {v.split("/")[0]: verb(v) for v in LISTS["verbs of nature"]}
GIVE, TURN = verb("give/gave/given"), verb("touch")
KNOWN_ANIMALS = [w for w in ANIMALS if w not in HELD_NOUNS]
KNOWN_PEOPLE = [w for w in PEOPLE if w not in HELD_NOUNS]
KNOWN_THINGS = [w for w in SMALL_THINGS if w not in HELD_NOUNS]
MANY = [w for w in HANDLED if w not in COUNTLESS]
MASS = sorted(COUNTLESS & set(HANDLED))


class Paragraph:
    """A paragraph keeps a tense and one or two beings to talk about."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.past = rng.random() < 0.75
        self.who = [self.being(), self.being()]
        while self.who[0][0] == self.who[1][0]:
            self.who[1] = self.being()
        self.last = -1  # whom the last clause was about

    def being(self) -> tuple[str, str]:
        """What it is called and its pronoun."""
        rng, turn = self.rng, self.rng.random()
        if turn < 0.3:
            girl = rng.random() < 0.5
            return pick(rng, GIRLS if girl else BOYS), "she" if girl else "he"
        if turn < 0.6:
            noun = pick(rng, KNOWN_PEOPLE)
            return f"the {noun}", PEOPLE[noun] or rng.choice(("he", "she"))
        if turn < 0.9:
            adj = f"{pick(rng, HERO_ADJ)} " if rng.random() < 0.3 else ""
            return f"the {adj}{pick(rng, KNOWN_ANIMALS)}", rng.choice(("he", "she", "it"))
        return rng.choice(("I", "we", "you", "they")), ""

    def subject(self) -> tuple[str, str]:
        """Words for the one who acts, and the word the verb agrees with: he, they, I."""
        new = int(self.rng.random() * 2)
        name, pronoun = self.who[new]
        again = new == self.last
        self.last = new
        if not pronoun:
            return name, "I" if name == "I" else "they"
        return (pronoun if again and self.rng.random() < 0.7 else name), "he"

    def object(self) -> str:
        """Somebody else than the one whom the clause is about."""
        rng = self.rng
        name, pronoun = self.who[1 - self.last] if self.last >= 0 else ("", "")
        if pronoun and rng.random() < 0.5:
            return name
        form = rng.choice(("the {}", "a {}", "the old {}", "another {}", "the other {}"))
        return form.format(pick(rng, KNOWN_PEOPLE + KNOWN_ANIMALS))

    def form(self, v: Verb, agree: str) -> str:
        return v.past if self.past else v.third if agree == "he" else v.base

    def be(self, agree: str) -> str:
        if self.past:
            return "were" if agree == "they" else "was"
        return {"he": "is", "they": "are", "I": "am"}[agree]

    def noun(self, heads: list[str]) -> str:
        rng = self.rng
        head = pick(rng, heads)
        adj = ""
        if rng.random() < 0.3:
            adj = pick(rng, ADJ if rng.random() < 0.7 else THING_ADJ) + " "
        turn = rng.random()
        if head in COUNTLESS:
            return f"the {adj}{head}" if turn < 0.6 else f"{adj}{head}"
        if turn < 0.45:
            return f"the {adj}{head}"
        if turn < 0.7:
            return f"a {adj}{head}"
        if turn < 0.8:
            return f"{rng.choice(OF_MANY)} {adj}{plural(head)}"
        return f"{rng.choice(OF_ONE)} {adj}{head}"

    def thing(self, form) -> str:
        """A verb with what it is done to; form bends the verb."""
        rng = self.rng
        if rng.random() < 0.3:
            return f"{form(pick(rng, TELL))} {self.noun(TOLD)}"
        verb_ = form(pick(rng, THING))
        return f"{verb_} {self.noun(HANDLED if rng.random() < 0.7 else KNOWN_THINGS)}"

    def where(self) -> str:
        rng = self.rng
        if rng.random() < 0.25:
            return " ".join(pick(rng, PLACES))
        return f"{pick(rng, PREPS)} the {pick(rng, PLACED)}"

    def slots(self) -> dict:
        rng, pl = self.rng, self
        found = {
            "head": lambda r: pick(r, HANDLED), "heads": lambda r: plural(pick(r, MANY)),
            "place": lambda r: pick(r, PLACED),
            "a_head": lambda r: f"a {pick(r, MANY)}", "adj": lambda r: pick(r, ADJ),
            "mass": lambda r: pick(r, MASS), "pp": lambda r: pl.where(),
            "how": lambda r: pick(r, HOW),
            "be": pl.be("he"), "are": pl.be("they"), "grow2": "grew" if pl.past else "grow",
            "alone": lambda r: pick(r, ALONE).base, "thing_": lambda r: pick(r, THING).base,
            "thing_s": lambda r: pick(r, THING).third, "thing_ed": lambda r: pick(r, THING).past,
            "thing_en": lambda r: pick(r, THING).done, "who_": lambda r: pick(r, OTHER).base,
            "who2": lambda r: pl.object(),
        }
        return found | {name: self.form(v, "he") for name, v in NATURE_VERBS.items()}

    def clause(self) -> str:
        """Somebody does something, or something is so."""
        rng = self.rng
        if rng.random() < 0.22:
            self.last = -1
            return expand(pick(rng, TEXT["nature"]), rng, self.slots())
        subject, agree = self.subject()
        alone, other, whom = pick(rng, ALONE), pick(rng, OTHER), self.object()
        had = "had" if self.past else "has" if agree == "he" else "have"
        no = "did" if self.past else "does" if agree == "he" else "do"
        now = self.form(alone, agree)
        may = rng.choice(("could", "would", "might", "had to", "wanted to", "tried to", "began to")
                         if self.past else ("can", "will", "must", "may", "cannot"))
        does = rng.choice((
            lambda: now, lambda: f"{now} {pick(rng, HOW)}", lambda: f"{now} {self.where()}",
            lambda: self.thing(lambda v: self.form(v, agree)),
            lambda: self.thing(lambda v: self.form(v, agree)) + " " + self.where(),
            lambda: f"{self.form(other, agree)} {whom}", lambda: f"{had} never {other.done} {whom}",
            lambda: f"{had} {self.thing(lambda v: v.done)}", lambda: f"{no} not {alone.base}",
            lambda: f"{no} not {self.thing(lambda v: v.base)}", lambda: f"{may} {alone.base}",
            lambda: f"{may} {self.thing(lambda v: v.base)}", lambda: f"{may} {other.base} {whom}",
            lambda: f"{self.be(agree)}{rng.choice(VERY)} {pick(rng, ADJ)}",
            lambda: f"{self.be(agree)} as {pick(rng, ADJ)} as a {pick(rng, MANY)}",
            lambda: f"{self.be(agree)} {alone.ing} {self.where()}",
            lambda: f"{self.form(GIVE, agree)} {whom} {self.noun(HANDLED)}",
            lambda: f"{self.form(TURN, agree)} the {pick(rng, BODY)} of {whom}",
        ))()
        return f"{subject} {does}"

    def sentence(self) -> str:
        rng, turn = self.rng, self.rng.random()
        if turn < 0.30:
            return self.clause() + "."
        if turn < 0.42:
            when = pick(rng, TEXT["when"])
            return f"{when}{rng.choice((', ', ' '))}{self.clause()}."
        if turn < 0.56:
            return f"{self.clause()}, {rng.choice(JOINING)} {self.clause()}."
        if turn < 0.66:
            return f"{self.clause()} {rng.choice(BETWEEN)} {self.clause()}."
        if turn < 0.73:
            return f"{rng.choice(BEFORE)} {self.clause()}, {self.clause()}."
        if turn < 0.77:
            return f"{pick(rng, ALONE).ing} {self.where()}, {self.clause()}."
        if turn < 0.80:
            subject, agree = self.subject()
            one, two, three = (self.noun(HANDLED) for _ in range(3))
            return f"{subject} {self.form(pick(rng, THING), agree)} {one}, {two} and {three}."
        name, _ = pick(rng, [w for w in self.who if w[1]] or [("somebody", "he")])
        say = self.form(pick(rng, SAYING[1:]), "he")
        if turn < 0.86:
            words = finish(expand(pick(rng, TEXT["ask"]), rng, self.slots()))
            return f'"{words}?" {self.form(SAYING[0], "he")} {name}.'
        words = finish(expand(pick(rng, TEXT["speech"]), rng, self.slots()))
        if turn < 0.93:
            return f'"{words}," {say} {name}.'
        return f'{name} {say}, "{words}."'

    def text(self) -> str:
        return " ".join(finish(self.sentence()) for _ in range(self.rng.randrange(2, 8)))


def prose(rng: random.Random) -> str:
    """Some paragraphs, perhaps under a title."""
    parts = [Paragraph(rng).text() for _ in range(rng.randrange(1, 7))]
    if rng.random() < 0.2:
        animal, thing = free_pair(rng)
        parts.insert(0, rng.choice((f"The {animal} and the {thing}", f"The {pick(rng, HANDLED)}",
                                    f"What the {animal} said about the {pick(rng, PLACED)}",
                                    f"The {pick(rng, KNOWN_PEOPLE)}'s {pick(rng, HANDLED)}")))
    return "\n\n".join(parts)
