# SPDX-License-Identifier: MIT
"""Stories and the requests that ask for them.

A story has a hero, a friend, a thing, a place and a plot. The request names some of these, and the
story told has all of what was named. What is left to chance is drawn so that, in training, no two
nouns of a held-out pair, no held-out noun and no held-out plot ever appear (words.py, plots.py);
a split of the evaluation asks for just these instead.
"""

import random
from dataclasses import dataclass, field

from grammar import Phrases, a, expand, finish, pairs, pick, plural, templates
from plots import KINDS, PLOTS, Plot
from words import (ANIMALS, BIG_THINGS, BOYS, FANTASY, GIRLS, HELD_NOUNS, HERO_ADJ, KIND_OF, PEOPLE,
                   PLACE_ADJ, PLACES, SKILLS, SMALL_THINGS, THING_ADJ, THINGS, held_pair, made_up)

HOMES = PLACES[:17] + PLACES[20:23]  # where somebody may well live

WHO = ANIMALS * 2 + FANTASY * 3 + list(PEOPLE) * 2
MADE_UP = 0.2  # of the nouns asked for are made up

PRONOUNS = {"he": ("he", "him", "his", "himself"), "she": ("she", "her", "her", "herself"),
            "it": ("it", "it", "its", "itself")}


@dataclass
class Who:
    """A character. The first mention introduces it, later ones are short."""

    noun: str
    he: str
    name: str = ""
    adj: str = ""
    owner: str = ""  # whose friend this is, in a sentence that knows nobody yet: "his"
    met: bool = False

    def intro(self, rng: random.Random) -> str:
        self.met = True
        adj = f"{self.adj} " if self.adj else ""
        name = f" {pick(rng, ('named', 'called'))} {self.name}" if self.name else ""
        return f"a {adj}{self.noun}{name}"

    def short(self, rng: random.Random) -> str:
        return self.name if self.name and rng.random() < 0.6 else f"the {self.noun}"

    def a_who(self, rng: random.Random) -> str:
        return self.short(rng) if self.met else self.intro(rng)

    def who(self, rng: random.Random) -> str:
        if self.met:
            return self.short(rng)
        self.met = True
        return f"{self.owner} friend {self.name + ' ' if self.name else ''}the {self.noun}"


@dataclass
class Tale:
    """What a story is made of; `asked` has the parts that a request named."""

    hero: Who
    friend: Who
    thing: str
    plot: Plot
    place: tuple[str, str]
    skill: tuple[str, str]
    asked: set[str] = field(default_factory=set)
    thing_adj: str = ""
    use: tuple[str, str] = ("", "")
    place_adj: str = ""


TEXT = templates("stories")
MORALS = {name.removeprefix("moral of "): lines for name, lines in TEXT.items()
          if name.startswith("moral of ")}
TINY = {part: TEXT[f"tiny {part}"] for part in ("begin", "middle", "end", "one")}


def allowed(tale: Tale, split: str) -> bool:
    """Whether a tale belongs to the split: what is held out appears in its own split only."""
    nouns = (tale.hero.noun, tale.friend.noun, tale.thing)
    pair = any(held_pair(x, y) for x, y in ((nouns[0], nouns[1]), (nouns[0], nouns[2]),
                                            (nouns[1], nouns[2])))
    new = any(n in HELD_NOUNS for n in nouns)
    if split == "pairs":
        return held_pair(nouns[0], nouns[2]) and not new and not tale.plot.held
    if split == "nouns":
        return new and not tale.plot.held
    return not new and not pair and tale.plot.held == (split == "plots")


def draw_who(rng: random.Random, named: float) -> Who:
    noun = pick(rng, WHO)
    he = PEOPLE.get(noun) or pick(rng, ("he", "she"))
    name = pick(rng, BOYS if he == "he" else GIRLS) if rng.random() < named else ""
    if not name and noun not in PEOPLE and rng.random() < 0.2:
        he = "it"
    return Who(noun, he, name, pick(rng, HERO_ADJ) if rng.random() < 0.6 else "")


def draw_thing(rng: random.Random) -> str:
    return pick(rng, BIG_THINGS if rng.random() < 0.12 else SMALL_THINGS)


def draw_tale(rng: random.Random, split: str, skill: bool = False) -> Tale:
    while True:
        thing = draw_thing(rng)
        kind = KIND_OF.get(thing, "odd")
        plots = [p for p in PLOTS if (p.kind == "skill") == skill and kind not in KINDS[p.kind]]
        if not plots:
            continue
        hero, friend = draw_who(rng, 0.5), draw_who(rng, 0.35)
        tale = Tale(hero, friend, thing, pick(rng, plots), pick(rng, PLACES), pick(rng, SKILLS))
        if rng.random() < 0.8:
            tale.place = pick(rng, HOMES)
        if hero.noun == friend.noun or hero.name and hero.name == friend.name:
            continue
        if allowed(tale, split):
            break
    if hero.he == friend.he == "it":
        friend.he = pick(rng, ("he", "she"))
    friend.owner = PRONOUNS[hero.he][2]
    tale.thing_adj = pick(rng, THING_ADJ) if rng.random() < 0.5 else ""
    tale.place_adj = pick(rng, PLACE_ADJ) if rng.random() < 0.35 else ""
    tale.use = pick(rng, THINGS[kind].uses)
    return tale


def slots_of(tale: Tale, rng: random.Random) -> dict:
    hero, friend, thing = tale.hero, tale.friend, tale.thing
    he, him, his, himself = PRONOUNS[hero.he]
    fhe, fhim, fhis, himselff = PRONOUNS[friend.he]
    prep, place = tale.place
    if tale.place_adj:
        prep_place = f"{prep} {tale.place_adj} {place}"
    else:
        prep_place = f"{prep} {place}"
    looks = THINGS[KIND_OF.get(thing, "odd")].looks
    named = [False]

    def a_thing(r: random.Random) -> str:
        if named[0]:
            return f"the {thing}"
        named[0] = True
        return f"a {tale.thing_adj} {thing}" if tale.thing_adj else f"a {thing}"

    def the_thing(r: random.Random) -> str:
        named[0] = True
        adj = f"{tale.thing_adj} " if tale.thing_adj and r.random() < 0.2 else ""
        return f"the {adj}{thing}"

    def look(r: random.Random) -> str:
        return expand(pick(r, looks), r, {"it": "it", "its": "its"})

    spots = rng.sample(TEXT["spots"], 3)
    return {
        "hero": hero.who, "a_hero": hero.a_who, "heronoun": hero.noun,
        "he": he, "him": him, "his": his, "himself": himself,
        "friend": friend.who, "a_friend": friend.a_who, "fnoun": friend.noun,
        "friend_bare": friend.name or friend.noun,
        "fhe": fhe, "fhim": fhim, "fhis": fhis, "himselff": himselff,
        "thing": thing, "a_thing": a_thing, "the_thing": the_thing, "it": "it", "looks": look,
        "to_use": tale.use[0], "used": tale.use[1],
        "at_place": prep_place, "the_place": f"the {place}",
        "spot": spots[0], "spot2": spots[1], "spot3": spots[2],
        "skill": tale.skill[0], "skilled": tale.skill[1],
        "feet": "feet", "tree": pick(rng, ("old oak", "big stone", "church", "mill", "tall pine")),
    }


def title_of(tale: Tale, rng: random.Random) -> str:
    forms = ["The {hero} and the {thing}", "The {hero}'s {thing}", "The {hero} and the {friend}",
             "The {thing}"]
    words = {"hero": tale.hero.noun, "friend": tale.friend.noun, "thing": tale.thing}
    return expand(pick(rng, forms[:1] if {"hero", "thing"} <= tale.asked else forms), rng, words)


def tell(tale: Tale, rng: random.Random, length: str = "", moral: bool = False, opening: str = "",
         ending: str = "") -> str:
    """The story. length: "", "short" (beats left out) or "long" (more said, in paragraphs)."""
    while True:
        text = tell_once(tale, rng, length, moral, opening, ending)
        if has_all(tale, text):
            return text


def tell_once(tale: Tale, rng: random.Random, length: str, moral: bool, opening: str,
              ending: str) -> str:
    slots = slots_of(tale, rng)
    tale.hero.met = tale.friend.met = False

    def say(options: list[str]) -> str:
        return finish(expand(pick(rng, options).lstrip("?"), rng, slots))

    begin = [finish(expand(opening + ", {a_hero} lived {at_place}.", rng, slots)) if opening
             else say(TEXT["openings"])]
    more = {"": 0.45, "short": 0.0, "long": 1.0}[length]
    begin += [say(TEXT[extra]) for extra in ("about the hero", "weather") if rng.random() < more]
    keep = {"": 0.6, "short": 0.0, "long": 1.0}[length]
    middle = []
    for beat in tale.plot.beats:
        if middle and rng.random() < (0.03, 0.1)[length != "short"]:
            middle.append(say(TEXT["interludes"]))
        if not any(v.startswith("?") for v in beat) or rng.random() < keep:
            middle.append(say(beat))
    end = []
    if rng.random() < 0.6 and tale.plot.name != "sleepless":
        end.append(say(TEXT["endings"]))
    if moral or rng.random() < 0.1:
        slots["moral"] = finish(expand(pick(rng, MORALS[tale.plot.theme]), rng))
        end.append(finish(expand(pick(rng, TEXT["moral frames"]), rng, slots)))
    if ending or rng.random() < 0.08:
        end.append(ending or "The end.")
    paragraphs = length == "long" or not length and rng.random() < 0.35
    if not paragraphs:
        return " ".join(begin + middle + end)
    cut = len(middle) // 2 + (rng.random() < 0.5)
    parts = [begin + middle[:1], middle[1:cut], middle[cut:] + end]
    return "\n\n".join(" ".join(p) for p in parts if p)


def has_all(tale: Tale, text: str) -> bool:
    """Whether a story has everything that its request named."""
    words = {"hero": tale.hero.noun, "friend": tale.friend.noun, "thing": tale.thing,
             "place": tale.place[1], "name": tale.hero.name, "skill": tale.skill[0]}
    return all(word in text for part, word in words.items() if part in tale.asked)


def tell_tiny(tale: Tale, rng: random.Random, sentences: int) -> str:
    """A story of exactly so many sentences, one to five."""
    while True:
        slots = slots_of(tale, rng)
        tale.hero.met = tale.friend.met = False
        lines = [pick(rng, TINY["one"])]
        if sentences > 1:
            middles = rng.sample(TINY["middle"], sentences - 2)
            lines = [pick(rng, TINY["begin"]), *middles, pick(rng, TINY["end"])]
        text = " ".join(finish(expand(line, rng, slots)) for line in lines)
        if has_all(tale, text):
            return text


def poem(tale: Tale, rng: random.Random) -> tuple[str, str]:
    """A request for a poem and four lines that rhyme two by two."""
    tale.asked = {"hero", "thing"}
    nouns = {"h": tale.hero.noun, "t": tale.thing}
    ask = Phrases("tale")("ask poem", rng, **nouns)
    while True:
        text = finish("\n".join(expand(c, rng, nouns) for c in rng.sample(TEXT["couplets"], 2)))
        if has_all(tale, text):
            return finish(ask), text


# ---- requests ---------------------------------------------------------------------------

# What a request names, and how: weight, parts named, words for them.
TOPICS = [(int(names.split()[0]), set(names.split()[1:]), words)
          for names, words in pairs(TEXT["topics"])]
TOPIC_WEIGHTS = [weight for weight, _, _ in TOPICS]


def make_up(tale: Tale, rng: random.Random, split: str) -> None:
    """Replaces some of the nouns that are asked for by words nobody knows."""
    if split not in ("train", "plots"):
        return
    if "hero" in tale.asked and rng.random() < MADE_UP:
        tale.hero.noun = made_up(rng)
    if "friend" in tale.asked and rng.random() < MADE_UP:
        tale.friend.noun = made_up(rng)
    if "thing" in tale.asked and tale.thing not in BIG_THINGS and rng.random() < MADE_UP:
        tale.thing, tale.use = made_up(rng), pick(rng, THINGS["odd"].uses)


def request_of(tale: Tale, rng: random.Random, split: str) -> str:
    """Words that ask for the tale; notes in tale.asked what they name."""
    if tale.plot.kind == "skill":
        named, words = rng.choice([(n, w) for _, n, w in TOPICS if "skill" in n])
    else:
        while True:
            _, named, words = rng.choices(TOPICS, TOPIC_WEIGHTS)[0]
            wrong = "skill" in named or "name" in named and not tale.hero.name
            wrong = wrong or split == "pairs" and not {"hero", "thing"} <= named
            wrong = wrong or tale.plot.theme == "bedtime" and "theme" in named
            if not wrong:
                break
    tale.asked = set(named)
    make_up(tale, rng, split)
    if "name" not in named and tale.hero.name and rng.random() < 0.2:
        tale.hero.name = ""
    if tale.hero.he == "it" and tale.hero.name:
        tale.hero.he = "he"
    if rng.random() < 0.04 and split == "train" and named == {"hero"}:
        tale.asked = set()
        return finish(expand(pick(rng, TEXT["any frames"]), rng))
    prep, place = tale.place
    adj = f"{tale.hero.adj} " if tale.hero.adj and rng.random() < 0.25 else ""
    if not adj and rng.random() < 0.5 and not tale.hero.name:
        tale.hero.adj = ""
    topic = expand(words, rng, {
        "a_hero": a(adj + tale.hero.noun), "a_friend": a(tale.friend.noun), "hero": tale.hero.noun,
        "a_thing": a(tale.thing), "thing": tale.thing, "heroes": plural(tale.hero.noun),
        "an_adj": a(tale.thing_adj or "special"), "at_place": f"{prep} {place}",
        "the_place": f"the {place}", "name": tale.hero.name, "skill": tale.skill[0],
        "theme": tale.plot.theme, "his": PRONOUNS[tale.hero.he][2]})
    frames = TEXT["held frames" if split == "plots" else "frames"]
    return finish(expand(pick(rng, frames), rng, {"topic": topic}))


def untidy(rng: random.Random, text: str) -> str:
    """People do not always type capitals and full stops."""
    if rng.random() < 0.12:
        text = text[0].lower() + text[1:] if rng.random() < 0.5 else text.lower()
    if rng.random() < 0.15:
        text = text.rstrip(".?!")
    return text
