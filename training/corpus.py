# SPDX-License-Identifier: MIT
"""The corpus: documents drawn from the generator, each from its own seed.

    python3 training/corpus.py [--split train] [--seed 1] [-n 5]      prints documents

Document number i of a split is a function of (seed, split, i) alone, so that any number of workers
makes the same corpus. A document is a chat in Gemma's format, or plain running text.

Splits: train; fresh (as train, other seeds); pairs (noun pairs never trained), nouns (nouns never
trained), plots (plots and ways of asking never trained).
"""

import argparse
import random
import zlib

import facts
import talk
from grammar import NUMBERS, Phrases, a, expand, finish, pairs, pick
from prose import prose
from stories import draw_tale, poem, request_of, tell, tell_tiny, title_of, untidy

SPLITS = ("train", "fresh", "pairs", "nouns", "plots")
SEED = 20261115

# Most running prose has one of these titles, so that text without one goes on as a story.
PROSE_TITLES = ["From my notebook", "Sentences", "Pages from a diary", "An exercise"]

Turn = tuple[str, str]  # what the user says, what the model answers

# What a system text does to an answer, and the text.
SYSTEMS = pairs(talk.TEXT["systems"])
WISHES = Phrases("wishes")
BEGINNINGS = ("Once upon a time", "Long, long ago", "In a land far away", "One fine day",
              "When the world was young", "Many moons ago")
GOOD_NIGHTS = ("Good night.", "And now, good night.", "Sleep well.", "Good night and sweet dreams.")
CALLED = ("Captain", "Anna", "Max", "Doctor", "Pip", "Captain Nora", "Ben", "Professor", "Lily")
BYES = ["The end.", "Take care!", "Good luck!", "Have a nice day!", "That is all.", "Sleep well!"]


def go_on(tale, rng: random.Random) -> Turn:
    """A story whose first sentence the user gives."""
    first, rest = tell(tale, rng).split(". ", 1)
    return f"{talk.TALE('go on', rng)} {first}.", rest


def story_turn(rng: random.Random, split: str) -> tuple[Turn, object]:
    """A request for a story, perhaps with a wish about its form, and the story."""
    skill = split in ("train", "fresh") and rng.random() < 0.05
    tale = draw_tale(rng, "train" if split == "fresh" else split, skill)
    ask = request_of(tale, rng, "train" if split == "fresh" else split)
    wish = rng.random()
    if split in ("train", "fresh") and not skill and rng.random() < 0.03:
        return poem(tale, rng), tale
    if split in ("train", "fresh") and not skill and rng.random() < 0.04:
        return go_on(tale, rng), tale
    if wish < 0.48 and ask[-1] not in ".?!":
        ask += "."
    if wish < 0.10 and "skill" not in tale.asked and "theme" not in tale.asked:
        n = rng.choice((1, 1, 2, 3, 3, 4, 5))
        words = NUMBERS[n] if rng.random() < 0.8 else str(n)
        form = f"in {words} sentence{'s' if n > 1 else ''}"
        ask = ask.rstrip(".?!") + (f" {form}." if rng.random() < 0.6 else f". Tell it {form}.")
        return (ask, tell_tiny(tale, rng, n)), tale
    length, moral, opening, ending, title = "", False, "", "", False
    if wish < 0.18:
        length = "short"
        ask += " " + WISHES("short", rng)
    elif wish < 0.26:
        length = "long"
        ask += " " + WISHES("long", rng)
    elif wish < 0.31:
        moral = True
        ask += " " + WISHES("moral", rng)
    elif wish < 0.36:
        title = True
        ask += " " + WISHES("title", rng)
    elif wish < 0.40:
        opening = pick(rng, BEGINNINGS)
        ask += " " + WISHES("opening", rng, o=opening)
    elif wish < 0.44:
        ending = pick(rng, BYES + ["And that was that.", "Good night.", "So it was."])
        ask += " " + WISHES("ending", rng, e=ending)
    elif wish < 0.48 and tale.hero.name and "name" not in tale.asked and "hero" in tale.asked:
        ask += " " + WISHES("name", rng, h=tale.hero.noun, n=tale.hero.name)
    elif "bedtime" in ask:
        ending = pick(rng, GOOD_NIGHTS)
    elif "short" in ask and rng.random() < 0.5:
        length = "short"
    story = tell(tale, rng, length, moral, opening, ending)
    if title:
        story = f"{title_of(tale, rng)}\n\n{story}"
    return (ask, story), tale


SMALL = [(16, talk.talk), (13, talk.arithmetic), (4, talk.word_problem), (4, talk.counting),
         (14, facts.fact), (7, facts.listing), (6, talk.echo), (8, talk.unknown)]
SMALL_WEIGHTS = [weight for weight, _ in SMALL]


def small_turn(rng: random.Random) -> Turn:
    return rng.choices(SMALL, SMALL_WEIGHTS)[0][1](rng)


def turns_of(rng: random.Random, split: str) -> list[Turn]:
    """A chat: a story with questions after it, small turns in a row, or a long mixture."""
    kind = rng.random()
    if split not in ("train", "fresh") or kind < 0.52:
        turn, tale = story_turn(rng, split)
        turns = [turn]
        while rng.random() < 0.25:
            turns.append(talk.about_tale(tale, rng))
        if rng.random() < 0.12:
            turns.append(again(rng, split))
        return turns
    if kind < 0.60:  # one sum after the other
        drill = rng.choice((talk.arithmetic, talk.arithmetic, facts.fact, small_turn))
        return [drill(rng) for _ in range(rng.choice((2, 3, 4, 8, 12)))]
    if kind < 0.985:
        return [small_turn(rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    turns = []
    for _ in range(rng.randrange(6, 22)):
        turns.append(small_turn(rng) if rng.random() < 0.5 else story_turn(rng, split)[0])
    return turns


def again(rng: random.Random, split: str) -> Turn:
    """Another story, asked for in the shorter way of a chat that has had one."""
    tale = draw_tale(rng, "train" if split == "fresh" else split)
    tale.asked = {"hero", "thing"}
    ask = talk.TALE("ask again", rng, h=a(tale.hero.noun), t=a(tale.thing))
    tale.hero.adj = ""
    return finish(ask), tell(tale, rng)


def under_system(rng: random.Random, turns: list[Turn]) -> list[Turn]:
    """Puts a system text before the first turn and bends the answers as it says."""
    effect, text = pick(rng, SYSTEMS)
    name = pick(rng, CALLED)
    bye = pick(rng, BYES)
    text = expand(text, rng, {"name": name, "bye": f'"{bye}"' if rng.random() < 0.5 else bye})
    if effect == "brief":
        turns = [small_turn(rng) for _ in range(rng.choice((1, 2)))]
        if rng.random() < 0.5:
            tale = draw_tale(rng, "train")
            ask = request_of(tale, rng, "train")
            if not tale.asked & {"skill", "theme"}:
                turns = [(ask, tell_tiny(tale, rng, 1))]
    if effect == "persona":
        turns = [(WISHES("ask persona", rng), WISHES("persona", rng, name=name)), *turns[:1]]
    if effect == "bye":
        turns = [(ask, f"{answer} {bye}") for ask, answer in turns]
    if effect == "name":
        turns = [(ask, f"{name}, here is my answer: {answer}") for ask, answer in turns]
    ask, answer = turns[0]
    return [(f"{text}\n\n{ask}", answer), *turns[1:]]


def chat_text(turns: list[Turn], last_open: bool = False) -> str:
    """Gemma's chat format, without <bos>; last_open leaves out the last answer."""
    text = ""
    for i, (ask, answer) in enumerate(turns):
        text += f"<start_of_turn>user\n{ask}<end_of_turn>\n<start_of_turn>model\n"
        if not (last_open and i == len(turns) - 1):
            text += f"{answer}<end_of_turn>\n"
    return text


def plain_text(rng: random.Random, split: str) -> str:
    """Running text: one story or several, some with a title."""
    stories = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        tale = draw_tale(rng, "train" if split == "fresh" else split)
        story = tell(tale, rng, rng.choice(("", "", "short", "long")))
        if rng.random() < 0.25:
            story = f"{title_of(tale, rng)}\n\n{story}"
        stories.append(story)
    return "\n\n".join(stories)


def document(split: str, number: int, seed: int = SEED) -> str:
    rng = random.Random(zlib.crc32(f"{seed}/{split}/{number}".encode()) << 32 | number)
    kind = rng.random()
    if kind < 0.1:
        return plain_text(rng, split) + "<eos>"
    if kind < 0.2 and split in ("train", "fresh"):
        title = f"{pick(rng, PROSE_TITLES)}\n\n" if rng.random() < 0.8 else ""
        return title + prose(rng) + "<eos>"
    turns = turns_of(rng, split)
    turns = [(untidy(rng, ask), answer) for ask, answer in turns]
    if split in ("train", "fresh") and rng.random() < 0.08:
        turns = under_system(rng, turns)
    return chat_text(turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--split", choices=SPLITS, default="train")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("-n", type=int, default=5, help="documents to print")
    args = parser.parse_args()
    for number in range(args.n):
        print(document(args.split, number, args.seed), end="\n\n")


if __name__ == "__main__":
    main()
