# SPDX-License-Identifier: MIT
"""The plots of text/plots.txt: what happens in a story, beat by beat.

A plot has a theme (what the story is about, and what a request may ask for), the kind of thing it
needs (KINDS), and beats in order. A beat is a list of
variants, of which one is told. A beat whose first variant starts with "?" may be left out of a
short story. Held-out plots are never trained on; the evaluation tells them.

Slots: {hero} {friend} and their pronouns {he} {him} {his} {himself}, {fhe} {fhim} {fhis};
{a_friend} introduces the friend; {a_thing} the first time, {the_thing} later, {thing} the noun;
{to_use} and {used} what the thing is good for; {the_place} {at_place} {spot} where it happens;
{looks} a sentence on the thing; {skill} {skilled} what is learned.
"""

from typing import NamedTuple

from grammar import sections
from words import THINGS


# The kinds of thing a plot may ask for: the classes of words.THINGS that are not of that kind.
KINDS = {
    "any": (),
    "small": ("big",),
    "solid": ("big", "food", "plant"),
    "made": ("food", "plant"),
    "big": tuple(kind for kind in THINGS if kind != "big"),
    "skill": ("big",),
}


class Plot(NamedTuple):
    name: str
    theme: str
    kind: str
    beats: list[list[str]]
    held: bool = False


def read(header: str, beats: list[list[str]]) -> Plot:
    """A plot from its section: [name theme kind] or [name theme kind held]."""
    name, theme, kind, *held = header.split()
    return Plot(name, theme, kind, beats, bool(held))


PLOTS = [read(header, beats) for header, beats in sections("plots").items()]
