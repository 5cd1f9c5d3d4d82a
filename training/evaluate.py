# SPDX-License-Identifier: MIT
"""Measures the trained models and writes down what they say.

    python3 training/evaluate.py FOLDER     (with FOLDER/gemmule-mini and FOLDER/gemmule-draft)

Writes FOLDER/eval.md (perplexities, how well requests are followed, how often the draft agrees) and
FOLDER/samples.md (transcripts).
"""

import math
import random
import sys
from pathlib import Path

import torch

import talk
from corpus import chat_text, document
from grammar import a
from model import HERE, load
from rows import encode, tokens
from stories import draw_tale
from tokenizer import END_OF_TURN, EOS, PAD

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SAMPLING = dict(do_sample=True, temperature=0.7, top_k=40, top_p=0.95)
DOCS = 200  # a split
STORIES = 128  # told for each way of asking
SUMS = 400

PROMPTS = [
    ["Tell me a story about a fox and a lantern."],
    ["Tell me a story about a badger and a teapot."],
    ["Write a short story about a dragon who cannot swim."],
    ["Tell me a bedtime story about a sleepy bear."],
    ["Please tell me a story about a robot and a pizza."],
    ["Tell me a story about friendship."],
    ["A story about a snail and a crown in three sentences, please."],
    ["Tell me a story about a wizard and a violin. Give it a title."],
    ["Tell me a story about a girl called Mina and a kite.", "What was the girl called?",
     "Another one, please, about a whale and a drum."],
    ["tell me a story about an owl in one sentence"],
    ["Hello!", "Who are you?", "What can you do?"],
    ["What is 17 + 25?", "And what is 9 times 8?", "What is 63 - 28?"],
    ["Anna has 12 apples and gives away 5. How many apples are left?"],
    ["What is the capital of Italy?", "What is the capital of Zorbland?"],
    ["Which day comes after Sunday?", "How many legs does a spider have?"],
    ["Name three colours as a list.", "Name four birds as a numbered list."],
    ["Who won the world cup in 1998?", "Write a Python program for me."],
    ["Always end with \"Good luck!\"\n\nTell me a short story about a hen and a map."],
    ["Your name is Pip.\n\nWhat is your name?"],
    ["Write a poem about a frog and a balloon.", "Thank you!"],
]


@torch.no_grad()
def losses(model, ids: list[int]) -> torch.Tensor:
    """Nats of every token but the first."""
    x = torch.tensor([ids], device=DEVICE)
    logits = model(input_ids=x, use_cache=False).logits[0, :-1].float()
    return torch.nn.functional.cross_entropy(logits, x[0, 1:], reduction="none")


def perplexity(model, texts: list[str]) -> tuple[float, float]:
    """Per token, and bits per byte of text."""
    nats = count = size = 0
    for text in texts:
        found = losses(model, encode(text)[:4096])
        nats, count, size = nats + found.sum().item(), count + len(found), size + len(text.encode())
    return math.exp(nats / count), nats / math.log(2) / size


@torch.no_grad()
def answers(model, prompts: list[str], limit: int = 480,
            **how) -> list[tuple[str, bool, list[int]]]:
    """For every prompt: the answer, whether it ended by itself, all ids."""
    ids = [encode(p) for p in prompts]
    longest = max(map(len, ids))
    x = torch.tensor([[PAD] * (longest - len(i)) + i for i in ids], device=DEVICE)
    out = model.generate(input_ids=x, attention_mask=(x != PAD).long(), max_new_tokens=limit,
                         pad_token_id=PAD, eos_token_id=[EOS, END_OF_TURN], **how).tolist()
    result = []
    for prompt, row in zip(ids, out):
        new = row[longest:]
        ended = END_OF_TURN in new or EOS in new
        end = min((new.index(e) for e in (END_OF_TURN, EOS) if e in new), default=len(new))
        result.append((tokens().decode(new[:end]), ended, prompt + new[:end]))
    return result


def followed(model, split: str) -> str:
    """How many stories have both nouns, and how many end by themselves."""
    rng = random.Random(split)
    tales = [draw_tale(rng, split) for _ in range(STORIES)]
    asks = [f"Tell me a story about {a(t.hero.noun)} and {a(t.thing)}." for t in tales]
    told = answers(model, [chat_text([(ask, "")], True) for ask in asks], **SAMPLING)
    both = sum(t.hero.noun in text and t.thing in text for t, (text, _, _) in zip(tales, told))
    ended = sum(end for _, end, _ in told)
    words = sum(len(text.split()) for text, _, _ in told) / len(told)
    return f"| {split} | {both / STORIES:.0%} | {ended / STORIES:.0%} | {words:.0f} |"


def sums_right(model) -> list[str]:
    rng = random.Random("sums")
    rows = []
    for what, small in (("numbers below 100", True), ("larger numbers", False)):
        asked = []
        while len(asked) < SUMS:
            x, op, y, result = talk.sum_of(rng)
            if (max(x, y) < 100) == small:
                asked.append((f"What is {x} {op} {y}?", str(result)))
        prompts = [chat_text([(ask, "")], True) for ask, _ in asked]
        told = answers(model, prompts, 24, do_sample=False)
        right = sum(text.rstrip(".").split()[-1:] == [result]
                    for (_, result), (text, _, _) in zip(asked, told))
        rows.append(f"| {what} | {right / SUMS:.1%} |")
    return rows


@torch.no_grad()
def agreement(mini, draft) -> tuple[float, float]:
    """Over stories the model told: same likeliest token; sum of the smaller probabilities."""
    rng = random.Random("agreement")
    tales = [draw_tale(rng, "pairs") for _ in range(32)]
    prompts = [chat_text([(f"Tell me a story about {a(t.hero.noun)} and {a(t.thing)}.", "")], True)
               for t in tales]
    same = shared = count = 0
    for prompt, (_, _, ids) in zip(prompts, answers(mini, prompts, **SAMPLING)):
        x = torch.tensor([ids], device=DEVICE)
        first = len(encode(prompt)) - 1
        p, q = (torch.softmax(m(input_ids=x).logits[0, first:].float(), -1) for m in (mini, draft))
        same += (p.argmax(-1) == q.argmax(-1)).sum().item()
        shared += torch.minimum(p, q).sum().item()
        count += len(p)
    return same / count, shared / count


def transcripts(model) -> str:
    torch.manual_seed(7)
    chats: list[list[tuple[str, str]]] = [[] for _ in PROMPTS]
    for turn in range(max(map(len, PROMPTS))):
        going = [(chat, asks[turn]) for chat, asks in zip(chats, PROMPTS) if turn < len(asks)]
        prompts = [chat_text([*chat, (ask, "")], True) for chat, ask in going]
        told = answers(model, prompts, **SAMPLING)
        for (chat, ask), (answer, ended, _) in zip(going, told):
            chat.append((ask, answer if ended else answer + " [cut]"))
    text = "# What the model says\n\nDrawn with the model's own defaults; none left out.\n"
    for number, chat in enumerate(chats, 1):
        text += f"\n## {number}\n"
        for ask, answer in chat:
            text += "\n**" + ask.replace("\n\n", "** / **") + "**\n\n> "
            text += answer.replace("\n", "\n> ") + "\n"
    return text


def main() -> None:
    folder = Path(sys.argv[1])
    models = {name: load(folder / name, DEVICE) for name in ("gemmule-mini", "gemmule-draft")}
    mini, draft = models.values()
    texts = {split: [document(split, n) for n in range(DOCS)]
             for split in ("fresh", "pairs", "nouns", "plots")}
    texts |= {page: [(HERE / "heldout" / f"{page}.txt").read_text()] for page in ("page1", "page2")}
    out = ["## Perplexity", "", "Per token; in brackets bits per byte.", "",
           "| split | " + " | ".join(models) + " |", "|---|--:|--:|"]
    for split, docs in texts.items():
        cells = ["{:.3f} ({:.3f})".format(*perplexity(m, docs)) for m in models.values()]
        out.append(f"| {split} | " + " | ".join(cells) + " |")
        print(out[-1], flush=True)
    torch.manual_seed(1)
    out += ["", "## Requests followed", "", "| split | both nouns | ends by itself | words |",
            "|---|--:|--:|--:|"]
    out += [followed(mini, split) for split in ("train", "pairs", "nouns")]
    out += ["", "## Sums right", "", "| sums | right |", "|---|--:|", *sums_right(mini)]
    same, shared = agreement(mini, draft)
    out += ["", "## The draft", "", "On stories gemmule-mini tells, the draft's likeliest token is "
            f"the same for {same:.1%} of the tokens; drawn tokens would agree for {shared:.1%}."]
    (folder / "eval.md").write_text("\n".join(out) + "\n")
    print("\n".join(out), flush=True)
    (folder / "samples.md").write_text(transcripts(mini))


if __name__ == "__main__":
    main()
