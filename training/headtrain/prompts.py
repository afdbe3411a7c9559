"""Prompts that a target answers, so that its head is trained on answers of all kinds.

Owns: templates of six kinds (chat, translation, summary, question answering, mathematics, retrieval), their word
lists, and the choice of text passages. A prompt is a dict {"id", "group", "temperature", "seed", "text"}, one JSON
line of `aerie train-data answers`. Passages for summary and retrieval come from two places: the target writes them
itself (passage_prompts, answered in a first round), and text files of the user (passages_from_files).
Everything follows from the seed. No prompt of bench/prompts is ever produced: `without` removes those given to it.
"""
import gzip
import json
import random
import re
from pathlib import Path

from .words import ACTIVITIES, ANIMALS, CHAT, FOODS, JOBS, NAMES, OBJECTS, PHENOMENA, PLACES, QUESTIONS, SENTENCES, TOPICS

_LANGUAGES = {"de": "German", "fr": "French", "es": "Spanish", "it": "Italian"}


def _fill(rng, template):
    """Replaces {topic}, {place}, ... by words; two of the same kind differ."""
    lists = {"topic": TOPICS, "place": PLACES, "animal": ANIMALS, "food": FOODS, "job": JOBS, "object": OBJECTS,
             "activity": ACTIVITIES, "phenomenon": PHENOMENA, "name": NAMES}
    used = set()

    def word(match):
        kind = match.group(1).rstrip("2")
        while True:
            choice = rng.choice(lists[kind])
            if choice not in used:
                used.add(choice)
                return choice
    text = re.sub(r"\{(\w+)\}", word, template)
    return text[:1].upper() + text[1:]


def chat(rng):
    return _fill(rng, rng.choice(CHAT))


def question(rng):
    return _fill(rng, rng.choice(QUESTIONS))


def translation(rng):
    language = rng.choice(list(_LANGUAGES))
    name = _LANGUAGES[language]
    if rng.random() < 0.15:
        other, sentence = name, _sentence(rng, "en")
        source = "English"
    else:
        source, sentence, other = name, _sentence(rng, language), "English"
    style = rng.randrange(4)
    if style < 2:
        return f"Translate {source} to {other}: {sentence}"
    if style == 2:
        return f"Translate the following sentence from {source} to {other}.\n\n{sentence}"
    return f"What does this {source} sentence mean in {other}? \"{sentence}\""


def _sentence(rng, language):
    subjects, predicates, tails = SENTENCES[language]
    text = f"{rng.choice(subjects)} {rng.choice(predicates)} {rng.choice(tails)}"
    if rng.random() < 0.4:
        joint = {"de": ", und ", "fr": ", et ", "es": " y ", "it": " e ", "en": ", and "}[language]
        second = rng.choice(subjects)
        text += joint + second[0].lower() + second[1:] + " " + rng.choice(predicates)
    return text + "."


def mathematics(rng):
    """A word problem or an equation with numbers drawn at random."""
    a, b, c, d = rng.randint(2, 60), rng.randint(2, 12), rng.randint(2, 40), rng.randint(2, 9)
    one, two = rng.sample(NAMES, 2)
    thing, other = rng.sample(["apples", "marbles", "stickers", "books", "coins", "pencils", "cookies", "cards", "stamps",
                               "balloons", "oranges", "toy cars", "flowers", "eggs", "tickets"], 2)
    whole = rng.choice([20, 40, 60, 80, 120, 150, 200, 240, 300, 360, 500])
    percent = rng.choice([5, 10, 15, 20, 30, 40, 50, 75])
    problems = [
        f"{one} has {a + c} {thing}. {one} gives {c} of them to {two} and finds {d} more. How many {thing} does {one} have now?",
        f"A car travels at {whole // 2 + 20} kilometres per hour for {d} hours. How far does it go?",
        f"One of the {thing} costs {b} dollars and one of the {other} costs {d} dollars. How much do {d} {thing} and {b} {other} cost?",
        f"A field is {a + 10} metres long and {c} metres wide. What are its area and its perimeter?",
        f"{one} earns {a + 8} dollars an hour and works {b} hours a day for {d} days. How much does {one} earn?",
        f"A factory packs {whole * d} {thing} in boxes of {d}. How many boxes are needed?",
        f"A jacket costs {whole} dollars and is sold at a discount of {percent} percent. What is the new price?",
        f"What is the average of {a}, {b}, {c} and {d}?", f"Solve for x: {d}x + {b} = {d * c + b}.",
        f"Solve for y and explain each step: {b}y - {a} = {b * c - a}.", f"What is {percent} percent of {whole}?",
        f"Calculate {a} * {b} + {c}.", f"Calculate ({a} + {c}) * {d} - {b}.", f"What is {a * d} divided by {d}?",
        f"{one} is {a} years old. {two} is {b} years younger. How old will {two} be in {d} years?",
        f"A recipe for {d} people needs {d * 50} grams of flour. How much flour is needed for {d + b} people?",
        f"A tank holds {whole} litres. Every minute {d} litres flow out. How much is left after {b} minutes?",
        f"There are {whole} pupils in a school, and {percent} percent of them play an instrument. How many are these?",
        f"What is the sum of all whole numbers from 1 to {a}?", f"Find the next number in the sequence: {b}, {b + d}, {b + 2 * d}, {b + 3 * d}.",
        f"A triangle has a base of {b} cm and a height of {c} cm. What is its area?", f"Simplify the fraction {b * d}/{c * d}.",
        f"{one} reads {a} pages a day. How many days does {one} need for a book of {a * b} pages?",
        f"A train leaves at {d}:15 and arrives {b} hours and {c} minutes later. When does it arrive?",
        f"Convert {a} kilometres to metres and {b} hours to minutes.",
    ]
    endings = [" Show your steps.", " Show your steps.", " Explain your answer.", " Think step by step.", ""]
    return rng.choice(problems) + rng.choice(endings)


_SUMMARY = ["Summarize the following text in three sentences.\n\n{passage}", "Summarize the following text in three sentences.\n\n{passage}",
            "Summarize this text in one sentence.\n\n{passage}", "Give a short summary of the text below.\n\n{passage}",
            "{passage}\n\nSummarize the text above in two sentences.", "What are the main points of this text?\n\n{passage}",
            "Summarize:\n\n{passage}"]
_RETRIEVAL = ["Answer the question with the help of the passage.\n\nPassage: {passage}\n\nQuestion: {question}",
              "Answer the question with the help of the passage.\n\nPassage: {passage}\n\nQuestion: {question}",
              "Read the text and answer the question.\n\nText: {passage}\n\nQuestion: {question}",
              "Context: {passage}\n\nUsing the context above, answer: {question}"]


def summary(rng, passage):
    return rng.choice(_SUMMARY).replace("{passage}", passage)


def retrieval(rng, passage):
    """A question about what a passage names: numbers and the words in capitals inside its sentences."""
    names = sorted(set(re.findall(r"(?<=[a-z,] )[A-Z][a-z]{3,}(?: [A-Z][a-z]+)*", passage)))
    numbers = sorted(set(re.findall(r"\b(?:1[0-9]{3}|20[0-2][0-9])\b", passage)))
    words = sorted(set(re.findall(r"\b[a-z]{7,}\b", passage)))
    pool = ["What is the main topic of the passage?", "Why is this important?", "Which facts does the passage give?"]
    pool += [t.format(n) for n in names for t in ("What does the passage say about {}?", "What is {}?", "How is {} mentioned?")]
    pool += [f"What happened in {n}?" for n in numbers] * 3
    pool += [t.format(w) for w in rng.sample(words, min(4, len(words)))
             for t in ("What does the text say about \"{}\"?", "What role does {} play?", "How does {} matter here?")]
    return rng.choice(_RETRIEVAL).replace("{passage}", passage).replace("{question}", rng.choice(pool))


def passage_prompt(rng):
    forms = ["Write a paragraph of facts about {topic}.", "Write a short encyclopedia article about {topic}, in one paragraph.",
             "Write one paragraph about the history of {topic}.", "Write a paragraph about {animal}s and how they live.",
             "Write a short text about {place} and its history, in one paragraph.", "Explain how {phenomenon} comes about, in one paragraph.",
             "Write a short news article about {topic} in {place}, in one paragraph."]
    return _fill(rng, rng.choice(forms))


def passages_from_files(rng, roots, count, least=300, most=900):
    """Paragraphs of prose from text files (also gzipped) under the roots; markup, code and lists are left out."""
    suffixes = {".txt", ".md", ".rst", ".pod", ""}
    files = [f for root in roots for f in sorted(Path(root).rglob("*"))
             if (f.suffix in suffixes or (f.suffix == ".gz" and Path(f.stem).suffix in suffixes)) and f.is_file()]
    rng.shuffle(files)
    found, seen = [], set()
    for path in files:
        try:
            raw = gzip.open(path).read(400_000) if path.suffix == ".gz" else path.read_bytes()[:400_000]
        except OSError:
            continue
        kept = 0
        for block in re.split(r"\n\s*\n", raw.decode("utf-8", "ignore")):
            text = " ".join(block.split())
            plain = sum(ch.isalpha() or ch in " ,.'" for ch in text)
            if least <= len(text) <= most and plain > 0.96 * len(text) and text[0].isupper() and text[-1] == "." \
                    and text.count(". ") >= 2 and text[:80] not in seen:
                seen.add(text[:80])
                found.append(text)
                kept += 1
            if kept == 6:
                break
        if len(found) >= count:
            break
    return found


def make(seed, counts, turns=(), passages=(), warm=0.25):
    """counts: {"chat": n, ...}; "turns" takes the target's own user turns. A share `warm` is answered at temperature 1."""
    rng = random.Random(seed)
    made = []
    turns = list(turns)
    rng.shuffle(turns)
    for group, count in counts.items():
        for i in range(count):
            if group == "turns":
                if i >= len(turns):
                    break
                text = turns[i]
            elif group in ("summary", "retrieval"):
                if not passages:
                    break
                text = (summary if group == "summary" else retrieval)(rng, passages[rng.randrange(len(passages))])
            else:
                text = {"chat": chat, "qa": question, "translation": translation, "math": mathematics,
                        "passage": passage_prompt}[group](rng)
            made.append({"group": group, "text": text, "temperature": 1.0 if rng.random() < warm else 0.0})
    unique = list({p["text"]: p for p in made}.values())
    rng.shuffle(unique)
    return [{"id": f"{seed}-{i}", "seed": seed * 1_000_000 + i, **p} for i, p in enumerate(unique)]


def without(prompts, files):
    """The prompts less those that stand in the files (JSON lines with "prompt" or "text"), also in parts: held-out sets."""
    held = set()
    for path in files:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            if line.strip():
                object_ = json.loads(line)
                held.add(_key(object_.get("prompt") or object_.get("text", "")))
    return [p for p in prompts if _key(p["text"]) not in held]


def _key(text):
    return re.sub(r"\W+", " ", text.lower()).strip()
