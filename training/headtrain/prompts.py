"""Makes prompts for a target, so that its head is trained on answers of all kinds.

Owns: templates of eight kinds (chat, translation, summary, question answering, mathematics, retrieval, code, short
questions), their word lists, varied turns (varied.py), and the choice of text passages. A prompt is a dict {"id", "group",
"temperature", "seed", "text"}, one JSON line of `aerie train-data answers`. Passages for summary and retrieval come from two
places: the target writes them itself (passage_prompts, answered in a first round), and text files of the user
(texts_from_files), which also give sentences to translate. Everything follows from the seed. No prompt of bench/prompts is ever
produced: `without` removes those given to it, and what shares a passage with them.
"""
import gzip
import html
import json
import random
import re
from collections import Counter
from pathlib import Path

from .varied import varied
from .words import (ACTIVITIES, ADJECTIVES, ANIMALS, CHAT, CODE, CODE_TASKS, COLUMNS, COUNTRIES, DAYS, FILE_TASKS, FOODS,
                    GREETINGS, JOBS,
                    LANGUAGES, MONTHS, NAMES, OBJECTS, PHENOMENA, PLACES, QUESTIONS, SENTENCES, SHORT, TABLES, THINGS, TOPICS)

_LANGUAGES = {"de": "German", "fr": "French", "es": "Spanish", "it": "Italian"}


def _fill(rng, template):
    """Replaces {topic}, {place}, ... by words; two of the same kind differ."""
    lists = {"topic": TOPICS, "place": PLACES, "animal": ANIMALS, "food": FOODS, "job": JOBS, "object": OBJECTS,
             "activity": ACTIVITIES, "phenomenon": PHENOMENA, "name": NAMES, "task": CODE_TASKS, "file_task": FILE_TASKS,
             "table": TABLES, "column": COLUMNS, "country": COUNTRIES, "adjective": ADJECTIVES, "thing": THINGS,
             "month": MONTHS,
             "day": DAYS, "greeting": GREETINGS, "language": LANGUAGES, "a": [str(n) for n in range(12, 100)],
             "b": [str(n) for n in range(2, 12)]}
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


def code(rng):
    """In C, Python, SQL or shell, a quarter each."""
    return _fill(rng, rng.choice(CODE[rng.choice(list(CODE))]))


def short(rng):
    """Makes questions whose answer is a word or a sentence."""
    return _fill(rng, rng.choice(SHORT))


def translation(rng, sentences=None):
    """sentences: of texts, by language; half of the prompts take one of them."""
    def one(language):
        real = (sentences or {}).get(language)
        return rng.choice(real) if real and rng.random() < 0.5 else _sentence(rng, language)
    language = rng.choice(list(_LANGUAGES))
    name = _LANGUAGES[language]
    if rng.random() < 0.15:
        source, sentence, other = "English", one("en"), name
    else:
        source, sentence, other = name, one(language), "English"
    style = rng.randrange(6)
    if style < 4:
        return f"Translate {source} to {other}: {sentence}"
    if style == 4:
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
        f"{one} has {a + c} {thing}. {one} gives {c} of them to {two} and finds {d} more. How many {thing} does "
        f"{one} have now?",
        f"A car travels at {whole // 2 + 20} kilometres per hour for {d} hours. How far does it go?",
        f"One of the {thing} costs {b} dollars and one of the {other} costs {d} dollars. How much do {d} {thing} and {b} "
        f"{other} cost?",
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
        f"What is the sum of all whole numbers from 1 to {a}?",
        f"Find the next number in the sequence: {b}, {b + d}, {b + 2 * d}, {b + 3 * d}.",
        f"A triangle has a base of {b} cm and a height of {c} cm. What is its area?", f"Simplify the fraction {b * d}/{c * d}.",
        f"{one} reads {a} pages a day. How many days does {one} need for a book of {a * b} pages?",
        f"A train leaves at {d}:15 and arrives {b} hours and {c} minutes later. When does it arrive?",
        f"Convert {a} kilometres to metres and {b} hours to minutes.",
    ]
    endings = [" Show your steps.", " Show your steps.", " Explain your answer.", " Think step by step.", ""]
    return rng.choice(problems) + rng.choice(endings)


_SUMMARY = ["Summarize the following text in three sentences.\n\n{passage}",
            "Summarize the following text in three sentences.\n\n{passage}",
            "Summarize this text in one sentence.\n\n{passage}", "Give a short summary of the text below.\n\n{passage}",
            "{passage}\n\nSummarize the text above in two sentences.", "What are the main points of this text?\n\n{passage}",
            "Summarize:\n\n{passage}"]
_RETRIEVAL = ["Answer the question with the help of the passage.\n\nPassage: {passage}\n\nQuestion: {question}",
              "Answer the question with the help of the passage.\n\nPassage: {passage}\n\nQuestion: {question}",
              "Read the text and answer the question.\n\nText: {passage}\n\nQuestion: {question}",
              "Context: {passage}\n\nUsing the context above, answer: {question}"]


def summary(rng, passage):
    return rng.choice(_SUMMARY).replace("{passage}", passage)


_WORDS_IN_FRONT = r"(?:The|A|An|Its|Their|His|Her|In|This|These)"
_VERBS = {"is": "is", "are": "are", "was": "was", "were": "were", "can": "can", "must": "must", "should": "should",
          "will": "will",
          "has": "does", "have": "do", "had": "did"}


def _questions(rng, passage):
    """Makes questions about a passage without understanding it, from its names, years, nouns and one of its sentences."""
    names = sorted(set(re.findall(r"(?<=[a-z,] )[A-Z][a-z]{3,}(?: [A-Z][a-z]+)*", passage)))
    years = sorted(set(re.findall(r"\b(?:1[0-9]{3}|20[0-2][0-9])\b", passage)))
    words = sorted(set(re.findall(r"\b[a-z]{7,}\b", passage)))
    pairs = sorted(set(re.findall(r"\b(?:the|an?|this|these|of) ([a-z]{4,} [a-z]{5,})\b", passage)))
    pool = ["What is the main topic of the passage?", "Which reasons does the passage give?",
            "What happens at the end of the passage?",
            "Which facts does the passage give, and why do they matter?", "Why is this important?"]
    pool += [t.format(n) for n in names for t in ("What does the passage say about {}?",
                                                  "Who or what is {}, and why is it mentioned?",
                                                  "What did {} do?", "Why is {} important?")]
    pool += [t.format(y) for y in years for t in ("What happened in {}?", "What happened in {}, and why?")] * 2
    pool += [t.format(p) for p in rng.sample(pairs, min(8, len(pairs)))
             for t in ("What is said about the {}?", "How does the {} work?", "Why is the {} important?")]
    pool += [t.format(w) for w in rng.sample(words, min(5, len(words)))
             for t in ("What does the text say about \"{}\"?", "Why does the text mention {}?", "What is meant by {} here?")]
    sentence = rng.choice(re.split(r"(?<=[.!?]) ", passage))
    subject = re.match(_WORDS_IN_FRONT + r" (.{10,60}?) (" + "|".join(_VERBS) + r") ", sentence)
    if subject:
        pool += [f"What {_VERBS[subject.group(2)]} the {subject.group(1)}?",
                 f"What does the passage say about the {subject.group(1)}?"] * 3
    reason = re.search(r"^(.{20,140}?),? (?:because|in order to|so that) ", sentence)
    if reason:
        pool += [f"Why is it true that {reason.group(1)[0].lower() + reason.group(1)[1:]}?"] * 4
    return pool


def retrieval(rng, passage):
    return rng.choice(_RETRIEVAL).replace("{question}", rng.choice(_questions(rng, passage))).replace("{passage}", passage)


def passage_prompt(rng):
    forms = ["Write a paragraph of facts about {topic}.", "Write a short encyclopedia article about {topic}, in one paragraph.",
             "Write one paragraph about the history of {topic}.", "Write a paragraph about {animal}s and how they live.",
             "Write a short text about {place} and its history, in one paragraph.",
             "Explain how {phenomenon} comes about, in one paragraph.",
             "Write a short news article about {topic} in {place}, in one paragraph."]
    return _fill(rng, rng.choice(forms))


_COMMON = {"en": "the of and to is in that it for with as was are by this be on or not which from at have",
           "de": "der die und das ist nicht mit den von sie ein zu auf es im dem eine wird sich als werden",
           "fr": "le la les des et est une un dans pour pas que vous ce qui par sur avec du au sont plus nous",
           "es": "el los las que y es una un por con para del se no su como al lo son sus",
           "it": "il che di un una per non con del della sono le gli si nel questo anche alla da dei"}
_COMMON = {language: set(words.split()) for language, words in _COMMON.items()}
_SUFFIXES = {".txt", ".md", ".rst", ".pod", ".html", ".htm", ""}


def _language(text):
    """Returns the language whose most common words are clearly the most frequent, or None."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    shares = sorted((sum(w in common for w in words) / max(len(words), 1), language) for language, common in _COMMON.items())
    return shares[-1][1] if shares[-1][0] > 0.18 and shares[-1][0] > 1.4 * shares[-2][0] else None


def _paragraphs(path):
    try:
        raw = gzip.open(path).read(2_000_000) if path.suffix == ".gz" else path.read_bytes()[:2_000_000]
    except (OSError, EOFError):
        return
    text = raw.decode("utf-8", "ignore")
    if (Path(path.stem).suffix if path.suffix == ".gz" else path.suffix) in (".html", ".htm"):
        text = re.sub(r"(?is)<(script|style|pre|code)\b.*?</\1>", " ", text)
        text = re.sub(r"(?i)</?(?:p|li|t[dh]|h[1-6]|div|d[td]|blockquote|title)\b[^>]*>", "\n\n", text)
        text = html.unescape(re.sub(r"<[^>]+>", "", text))
    for block in re.split(r"\n\s*\n", text):
        yield " ".join(block.split())


def texts_from_files(rng, roots, count, least=400, most=1000, per_file=40):
    """(passages, {language: sentences}) of prose from text and HTML files (also gzipped) under the roots, at most `count`
    passages and as many sentences of each language; markup, code and lists are left out."""
    files = [f for root in roots for f in sorted(Path(root).rglob("*")) if f.is_file() and
             (f.suffix in _SUFFIXES or (f.suffix == ".gz" and Path(f.stem).suffix in _SUFFIXES))]
    rng.shuffle(files)
    passages, sentences, seen = [], {language: [] for language in _COMMON}, set()
    for path in files:
        kept = 0
        for text in _paragraphs(path):
            plain = sum(ch.isalpha() or ch in " ,.'-" for ch in text)
            if len(text) < 45 or plain < 0.95 * len(text) or not text[0].isupper() or text[:80] in seen or kept >= per_file:
                continue
            seen.add(text[:80])
            language = _language(text)
            if language is None:
                continue
            kept += 1
            for s in re.split(r"(?<=[.!?]) (?=\w)", text):
                if 45 <= len(s) <= 150 and s[-1] in ".!?" and len(sentences[language]) < count and _language(s) == language:
                    sentences[language].append(s)
            passage = text if len(text) <= most else text[:text.rfind(". ", 0, most) + 1]
            if language == "en" and len(passage) >= least and passage[-1] == "." and passage.count(". ") >= 2 and len(
                passages) < count:
                passages.append(passage)
    return passages, sentences


def make(seed, counts, turns=(), passages=(), warm=0.25, sentences=None):
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
            elif group == "translation":
                text = translation(rng, sentences)
            else:
                text = {"chat": chat, "qa": question, "math": mathematics, "passage": passage_prompt,
                        "code": code, "short": short, "varied": varied}[group](rng)
            made.append({"group": group, "text": text, "temperature": 1.0 if rng.random() < warm else 0.0})
    unique = list({p["text"]: p for p in made}.values())
    rng.shuffle(unique)
    return [{"id": f"{seed}-{i}", "seed": seed * 1_000_000 + i, **p} for i, p in enumerate(unique)]


def without(prompts, files):
    """The prompts less those that stand in the files (JSON lines with "prompt" or "text"), or share a run of words with one
    of them that no other of them has (frames as "Summarize the following text" are common to many): held-out sets."""
    held = set()
    for path in files:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            if line.strip():
                object_ = json.loads(line)
                held.add(_key(object_.get("prompt") or object_.get("text", "")))
    count = Counter(run for text in held for run in _runs(text))
    runs = {run for run, n in count.items() if n == 1}
    return [p for p in prompts if _key(p["text"]) not in held and runs.isdisjoint(_runs(_key(p["text"])))]


def _runs(text, length=7):
    words = text.split()
    return {tuple(words[i:i + length]) for i in range(len(words) - length + 1)}


def _key(text):
    return re.sub(r"\W+", " ", text.lower()).strip()
