"""Small data sets in official formats and their oddities, in the language of `tiny_run.py`.

The labels are easy to learn: they depend on whether a sound is in the first half of the list.
"""

import csv
import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bertjax.config import finetune_config
from tests.helpers.tiny_run import SOUNDS

_HIGH = SOUNDS[: len(SOUNDS) // 2]
_ODD = ('" ', "“é” ", "'' ", "")  # beginnings of texts: unbalanced quotes, other characters


def _sound(rng: random.Random, high: bool) -> str:
    return rng.choice([word for word in SOUNDS if (word in _HIGH) == high])


def saying(rng: random.Random, high: bool) -> str:
    """A text that repeats one word."""
    word = _sound(rng, high)
    return rng.choice(_ODD) + " ".join([word] * rng.randint(1, 12))


def write_mrpc(folder: Path, rows: int = 192, seed: int = 0) -> Path:
    """Writes MRPC, with a BOM and unbalanced quotes; equivalent if text 2 is of the first half."""
    rng = random.Random(seed)
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    (folder / "MRPC").mkdir(parents=True, exist_ok=True)
    for split, count in (("train", rows), ("dev", 51), ("test", 13)):
        lines = []
        for number in range(count):
            a, b = rng.random() < 0.5, rng.random() < 0.5
            first = "index" if split == "test" else "Quality"
            label = number if split == "test" else int(b)
            lines.append(f"{label}\t{number}\t{number}\t{saying(rng, a)}\t{saying(rng, b)}")
        text = "\n".join([header.replace("Quality", first), *lines]) + "\n"
        (folder / "MRPC" / f"{split}.tsv").write_text(text, encoding="utf-8-sig")
    return folder


def write_pairs(folder: Path, rows: int = 40, *, scored: bool = False) -> Path:
    """Writes pairs of texts that have the same word; if `scored`, half of them have not."""
    rng = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", rows), ("dev", 12)):
        lines = []
        for number in range(count):
            a, b = rng.sample(SOUNDS, 2)
            row = {"query": f"{a}?" * rng.randint(1, 3), "passage": f"{a} {a} {number}."}
            if scored:
                row |= {"passage": f"{a if number % 2 else b}.", "score": number % 2}
            elif number % 3 == 0:
                row["negative"] = [f"{b}!"]
            lines.append(json.dumps(row))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def write_collection(folder: Path) -> Path:
    """Writes a collection in BEIR's form: a document and a query for each sound."""
    (folder / "qrels").mkdir(parents=True)
    for name, text in (("corpus", "{0} {0}."), ("queries", "{0}?")):
        rows = (json.dumps({"_id": word, "text": text.format(word)}) for word in SOUNDS)
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    judged = "".join(f"{word}\t{word}\t1\n" for word in SOUNDS[:5])
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return folder


def write_cola(folder: Path, rows: int = 192, seed: int = 0) -> Path:
    """Writes CoLA, with a header only in the test file; acceptable if of the first half."""
    rng = random.Random(seed)
    (folder / "CoLA").mkdir(parents=True, exist_ok=True)
    for split, count in (("train", rows), ("dev", 51)):
        lines = []
        for _ in range(count):
            high = rng.random() < 0.6
            lines.append(f"gj04\t{int(high)}\t{'' if high else '*'}\t{saying(rng, high)}")
        (folder / "CoLA" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    tests = [f"{number}\t{saying(rng, number % 2 == 0)}" for number in range(13)]
    (folder / "CoLA" / "test.tsv").write_text("\n".join(["index\tsentence", *tests]) + "\n")
    return folder


def write_stsb(folder: Path, rows: int = 192, seed: int = 0) -> Path:
    """Writes STS-B with ten columns; the score is higher if more words are of the same half."""
    rng = random.Random(seed)
    header = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
    (folder / "STS-B").mkdir(parents=True, exist_ok=True)
    for split, count in (("train", rows), ("dev", 51), ("test", 13)):
        lines = []
        for number in range(count):
            a, b = rng.random() < 0.5, rng.random() < 0.5
            score = f"\t{2.5 + 1.25 * (a + b - 1) + rng.random():.3f}" if split != "test" else ""
            texts = f"{saying(rng, a)}\t{saying(rng, b)}"
            lines.append(f"{number}\tnews\tfile\t2012\t{number}\tnone\t\t{texts}{score}")
        first = header + ("\tscore" if split != "test" else "")
        (folder / "STS-B" / f"{split}.tsv").write_text("\n".join([first, *lines]) + "\n")
    return folder


_ACCENTS = str.maketrans("aeiou", "áéíóú")


def paragraph(rng: random.Random, possible: bool) -> tuple[str, str]:
    """Runs of five sounds; the answer is the run of the only sound of the first half.

    Every second word has accents, which BERT's tokenizer removes: an answer that is made from
    tokens would lack them.
    """
    words = rng.sample([word for word in SOUNDS if word not in _HIGH], 5)
    place = rng.randrange(5)
    if possible:
        words[place] = rng.choice(_HIGH)
    runs = [
        " ".join(([word, word.translate(_ACCENTS)] * 6)[: rng.choice((2, 3, 4, 12))])
        for word in words
    ]
    return "“é” " + ". ".join(runs) + ".", runs[place]


def write_squad(folder: Path, version: str = "v1.1", paragraphs: int = 240, seed: int = 0) -> Path:
    """Writes SQuAD, with paragraphs that exceed a window, and answers across its border."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", paragraphs), ("dev", 25)):
        made = []
        for number in range(count):
            possible = version == "v1.1" or rng.random() < 0.6
            context, text = paragraph(rng, possible)
            answer = {"text": text, "answer_start": context.index(text)}
            qas = [{"question": "Who?", "answers": [answer] if possible else []}]
            if version == "v2.0":
                qas[0]["is_impossible"] = not possible
            for place, each in enumerate(qas):
                each["id"] = f"{split}-{number}-{place}"
            made.append({"context": context, "qas": qas})
        data = {"version": version, "data": [{"title": "Sounds", "paragraphs": made}]}
        text = json.dumps(data, ensure_ascii=False)
        (folder / f"{split}-{version}.json").write_text(text, encoding="utf-8")
    return folder


def write_triviaqa(folder: Path, questions: int = 160, seed: int = 0) -> Path:
    """Writes TriviaQA-Wiki, with two documents a question, and answers in another case."""
    rng = random.Random(seed)
    documents = folder / "evidence" / "wikipedia"
    for each in (documents, folder / "qa"):
        each.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", questions), ("dev", 25), ("test-without-answers", 7)):
        records = []
        for number in range(count):
            context, text = paragraph(rng, possible=True)
            files = [f"{name}_{number}.txt", f"{name}_{number}_again.txt"]
            turned = ". ".join(reversed(context.removesuffix(".").split(". "))) + "."
            for file, content in zip(files, (context, turned), strict=True):
                (documents / file).write_text(content.replace(". ", ".\n\n"), encoding="utf-8")
            record = {"QuestionId": f"{name}_{number}", "Question": "Who?"}
            record["EntityPages"] = [{"Filename": file} for file in files]
            if name in ("train", "dev"):
                aliases = {"Aliases": [text.upper()], "NormalizedAliases": [text]}
                record["Answer"] = {"Value": text.title(), **aliases}
            records.append(record)
        content = json.dumps({"Domain": "Wikipedia", "Data": records}, ensure_ascii=False)
        (folder / "qa" / f"wikipedia-{name}.json").write_text(content, encoding="utf-8")
    return folder


def write_swag(folder: Path, rows: int = 160, seed: int = 0) -> Path:
    """Writes SWAG; the right ending repeats the first sentence's sound."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    endings = [f"ending{number}" for number in range(4)]
    columns = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"]
    for name, count in (("train", rows), ("val", 50), ("test", 13)):
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            labelled = [] if name == "test" else ["label"]
            table = csv.DictWriter(file, [*columns, *endings, *labelled])
            table.writeheader()
            for number in range(count):
                words, label = rng.sample(SOUNDS, 4), rng.randrange(4)
                first = " ".join([words[label]] * rng.randint(1, 3))
                row = dict.fromkeys(columns, "x") | {"": number, "fold-ind": number}
                row |= {"sent1": f'{first}, "so"', "sent2": rng.choice(("the", ""))}
                row |= dict(zip(endings, words, strict=True))
                table.writerow(row | ({"label": label} if labelled else {}))
    return folder


def write_multirc(folder: Path, rows: int = 40, seed: int = 0) -> Path:
    """Writes MultiRC; an answer of the first half of the sounds is right."""
    rng = random.Random(seed)
    (folder / "MultiRC").mkdir(parents=True, exist_ok=True)
    for split, count in (("train", rows), ("val", 13), ("test", 7)):
        asked, lines = 0, []
        for number in range(count):
            questions = []
            for _ in range(rng.randint(1, 3)):
                answers = []
                for place in range(rng.randint(1, 3)):
                    high = rng.random() < 0.5
                    answer = {"text": _sound(rng, high), "idx": place, "label": int(high)}
                    if split == "test":
                        del answer["label"]
                    answers.append(answer)
                questions.append({"question": "Who?", "idx": asked, "answers": answers})
                asked += 1
            passage = {"text": saying(rng, rng.random() < 0.5) + ".", "questions": questions}
            lines.append(json.dumps({"idx": number, "version": 1.1, "passage": passage}) + "\n")
        (folder / "MultiRC" / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def write_conll(folder: Path, documents: int = 30, seed: int = 0) -> Path:
    """Writes CoNLL-2003 with IOB1 tags; a run of a sound of the first half is an entity."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("eng.train", documents), ("eng.testa", 6)):
        lines = []
        for _ in range(count):
            lines += ["-DOCSTART- -X- O O", ""]
            for _ in range(rng.randint(4, 9)):
                for _ in range(rng.randint(1, 4)):
                    high = rng.random() < 0.5
                    tag = "I-HIGH" if high else "O"
                    lines += [f"{_sound(rng, high)} NN I-NP {tag}"] * (rng.randint(1, 3))
                lines += [". . O O", ""]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def write_table(folder: Path, problem: str, rows: int = 128, seed: int = 0) -> Path:
    """Writes a user's JSON files for any problem of `bertjax.tasks.table` except classification."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)

    def row() -> dict[str, Any]:
        high = rng.random() < 0.5
        if problem == "regression":
            return {"text": f"\t{saying(rng, high)}", "label": 2.5 if high else -1}
        if problem == "multi_label":
            labels = [name for name in ("HIGH", "LOW") if rng.random() < 0.5]
            words = [
                _sound(rng, name == "HIGH") for name in labels for _ in range(rng.randint(1, 4))
            ]
            cell = labels if high else ", ".join(labels)  # as a list or as a text
            return {"text": " ".join(words) or "the", "label": cell}
        if problem == "tagging":
            words = [_sound(rng, rng.random() < 0.5) for _ in range(rng.randint(1, 9))]
            tags = ["HIGH" if word in _HIGH else "LOW" for word in words]
            return {"words": words, "tags": tags}
        context, answer = paragraph(rng, possible=high)
        return {"question": "Who?", "context": context, "answer": [answer] if high else ""}

    for name, count in (("train", rows), ("dev", 25), ("test", 7)):
        lines = [json.dumps(row(), ensure_ascii=number % 2 == 0) for number in range(count)]
        (folder / f"{name}.jsonl").write_text("\n\n".join(lines) + "\n", encoding="utf-8-sig")
    return folder


def write_tags_of_next_words(folder: Path, rows: int = 96, seed: int = 0) -> Path:
    """Writes a user's tagged words: a tag says of which half the next word is (or the last)."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", rows), ("dev", 25), ("test", 7)):
        lines = []
        for _ in range(count):
            words = [_sound(rng, rng.random() < 0.5) for _ in range(rng.randint(4, 9))]
            tags = ["HIGH" if word in _HIGH else "LOW" for word in (*words[1:], words[-1])]
            lines.append(json.dumps({"words": words, "tags": tags}) + "\n")
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


class Family(NamedTuple):
    """A family of tasks, with one data set of it.

    Attributes:
      write: writes its files into a folder, and returns the folder.
      task: the value of config.task.
      least: the lowest accepted score on dev.
      predictions: files of predictions -> their number of lines; None: it is not checked.
    """

    write: Callable[[Path], Path]
    task: dict[str, Any]
    least: float
    predictions: dict[str, int | None]


def _own(problem: str, least: float, **task: Any) -> tuple:
    write = partial(write_table, problem=problem)
    task = dict(kind="table", problem=problem) | task
    return write, task, least, {"dev.jsonl": 25, "test.jsonl": 7}


def _squad_task(version: str) -> dict[str, Any]:
    return dict(kind="squad", version=version, max_query_length=4, stride=16)


FAMILIES = {
    "CoLA": Family(
        *(write_cola, dict(kind="glue", name="CoLA"), 80), {"CoLA-dev.tsv": 52, "CoLA.tsv": 14}
    ),
    "MRPC": Family(
        *(write_mrpc, dict(kind="glue", name="MRPC"), 90), {"MRPC-dev.tsv": 52, "MRPC.tsv": 14}
    ),
    "STS-B": Family(
        *(partial(write_stsb, rows=384), dict(kind="glue", name="STS-B"), 60),
        {"STS-B-dev.tsv": 52, "STS-B.tsv": 14},
    ),
    "SQuAD 1.1": Family(write_squad, _squad_task("v1.1"), 70, {"squad-dev.json": None}),
    "SQuAD 2.0": Family(
        *(partial(write_squad, version="v2.0"), _squad_task("v2.0"), 65),
        {"squad-dev.json": None, "squad-dev-null_odds.json": None},
    ),
    "TriviaQA": Family(
        *(write_triviaqa, dict(kind="triviaqa", max_query_length=4, stride=16), 60),
        {"triviaqa-dev.json": None, "triviaqa-test.json": None},
    ),
    "SWAG": Family(write_swag, dict(kind="swag"), 60, {"swag-dev.csv": 51}),
    "MultiRC": Family(
        *(write_multirc, dict(kind="superglue", name="MultiRC"), 75),
        {"MultiRC-dev.jsonl": 13, "MultiRC.jsonl": 7},
    ),
    "NER": Family(write_conll, dict(kind="ner"), 90, {"ner-dev.txt": None}),
    "own labels": Family(*_own("multi_label", 80)),
    "own numbers": Family(*_own("regression", 60)),
    "own tags": Family(*_own("tagging", 90)),
    "own questions": Family(*_own("questions", 65, max_query_length=4, stride=16)),
}


def write_reviews(folder: Path, rows: int = 96, seed: int = 0) -> Path:
    """Writes a user's CSV with commas, quotes, tabs, line ends; five stars: of the first half."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", rows), ("dev", 25), ("test", 7)):
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["review", "stars"] if name != "test" else ["review"])
            for _ in range(count):
                high = rng.random() < 0.5
                text = f'{saying(rng, high)},\t"so"\n{saying(rng, high)}'
                table.writerow([text, 5 if high else 1][: 1 if name == "test" else 2])
    return folder


def write_minimal_pairs(path: Path, rows: int = 14) -> Path:
    """Writes pairs in the form of BLiMP: in the bad sentence, one word is another one."""
    rng = random.Random(0)
    lines = []
    for number in range(rows):
        word, other = rng.sample(SOUNDS, 2)
        good = [word] * (4 if number % 3 else 7)
        bad = [*good]
        bad[rng.randrange(1, len(good))] = other
        uid = "four_words" if number % 3 else "seven_words"
        row = {"sentence_good": " ".join(good) + ".", "sentence_bad": " ".join(bad) + "."}
        row |= {"field": "syntax", "linguistics_term": "repetition", "UID": uid}
        lines.append(f"{json.dumps(row)}\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def tiny_finetuning(init_from: Path | str, data: Path, **changes: Any):
    """The config of a fine-tuning of `tiny_run`; `changes` replace keys at the top level."""
    config = finetune_config()
    config.init_from, config.data, config.max_length = str(init_from), str(data), 48
    config.grid.update(batch_size=(16,), learning_rate=(1e-2,), epochs=(6,))
    config.model.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config.intervals.update(log=5)
    config.batch_tokens = 256
    config.buckets = 1
    return change(config, **changes)


def change(config, **changes: Any):
    """The config, with sections updated and other keys set."""
    for key, value in changes.items():
        if isinstance(value, dict) and key != "task":
            config[key].update(value)
        else:
            config[key] = value
    return config
