"""Tagging: predicts a class for each word, at its first token (section 5.3, Figure 4d)."""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.fields import WORD_MASK, Field
from bertjax.base.validation import record
from bertjax.tasks.context import windows
from bertjax.tasks.encoded import IGNORED, Encoded
from bertjax.tasks.entity_scores import entities, is_entity_tag
from bertjax.tasks.probabilities import combined, softmax
from bertjax.tasks.rows import json_object, looks_like_json
from bertjax.tasks.task import Outputs
from bertjax.text.tokenizer import Tokenizer

NO_DOCUMENT = 0

_FORM = '{"words": ["...", ...]}'


@dataclasses.dataclass(frozen=True)
class Sentence:
    """The words of a sentence, with or without their tags.

    Attributes:
      document: a number that consecutive sentences of one document share; `NO_DOCUMENT` if the
        sentence belongs to no document.
      where: the file and line, for messages.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    document: int
    where: str

    def __post_init__(self):
        if self.tags is not None and len(self.tags) != len(self.words):
            raise InputError(
                f"{self.where}: {len(self.words)} words, but {len(self.tags)} tags: each word "
                "needs one"
            )

    @property
    def gold(self) -> tuple[str, ...]:
        """The tags; InputError if the sentence has none."""
        if self.tags is None:
            raise InputError(f"{self.where}: no tags, which training and scores need")
        return self.tags


def tags_of(training: Sequence[Sentence], data: str) -> set[str]:
    """The tags of a training file; InputError if a sentence has none, or all are one tag."""
    tags = {tag for sentence in training for tag in sentence.gold}
    if len(tags) == 1:
        raise InputError(f"{data}: every word of the training file has the tag {min(tags)!r}")
    return tags


@dataclasses.dataclass(frozen=True)
class EncodedWords(Encoded):
    """Windows over documents; exactly one window gives the output of each word.

    `words`, int64 [words of all sentences], is the index in `ids` of each word's first token.
    """

    words: np.ndarray = dataclasses.field(kw_only=True)

    def batch(
        self,
        fields: Mapping[str, Field],
        examples: np.ndarray,
        rows: int,
        length: int,
        pad_id: int,
    ) -> dict[str, np.ndarray]:
        """Makes a batch like `Encoded.batch`; with "word_mask" [B, S] if it is among the fields."""
        batch = super().batch(fields, examples, rows, length, pad_id)
        if not WORD_MASK.keys().isdisjoint(fields):
            is_word = np.zeros(len(self.ids), bool)
            is_word[self.words] = True
            mask = batch["word_mask"] = np.zeros((rows, length), np.int32)
            for row, example in zip(mask, examples, strict=False):
                word_mask = is_word[self.starts[example] : self.starts[example + 1]]
                row[: len(word_mask)] = word_mask
        return batch


@dataclasses.dataclass(frozen=True)
class Tagging:
    """The family of tagging tasks; a prediction is float64 [words, C], each word's probabilities.

    A sequence is a single text of whole words. If a sentence does not fit into a sequence,
    it is cut between words into overlapping windows. A word without any piece (a control
    character) becomes the unknown token, so that each word has a first token, which gets its tag.

    Attributes:
      classes: the tags.
      document_context: whether a sequence is filled with whole neighbouring sentences of the same
        document; otherwise each sentence has its own sequence.
    """

    classes: tuple[str, ...]
    document_context: bool = True

    objective: ClassVar[str] = "token_classification"
    fields: ClassVar[tuple[str, ...]] = ("words",)

    def encode(
        self,
        examples: Sequence[Sentence],
        tokenizer: Tokenizer,
        max_length: int,
        *,
        labelled: bool,
    ) -> EncodedWords:
        """Cuts the documents into windows (`bertjax.tasks.context`).

        In prediction the windows overlap; in training only the last one of a document may.
        """
        template = tokenizer.template
        room = max_length - template.specials(pair=False)
        words = tokenizer.encode_words([sentence.words for sentence in examples])
        pieces = list(chain.from_iterable(words))
        cut = {room: sum(len(ids) > room for ids in pieces)}
        pieces = [ids[:room] or [tokenizer.unk_id] for ids in pieces]
        sizes = np.array([len(ids) for ids in pieces], np.int64)
        first_tokens = np.zeros(len(pieces), np.int64)

        sequences, tokens, done = [], 0, 0
        for document in self._documents(examples):
            bounds = _bounds(document, sizes, done, room)
            unit_sizes = np.add.reduceat(sizes[: bounds[-1]], bounds[:-1])
            for start, stop, owned in windows(unit_sizes, room, overlapping=not labelled):
                begin, end = bounds[start], bounds[stop]
                places = tokens + len(template.before) + np.cumsum(sizes[begin:end])
                places -= sizes[begin:end]
                for unit in owned:
                    first, last = bounds[unit], bounds[unit + 1]
                    first_tokens[first:last] = places[first - begin : last - begin]
                text = list(chain.from_iterable(pieces[begin:end]))
                sequences.append(template.sequence(text))
                tokens += len(sequences[-1].ids)
            done = bounds[-1]

        labels = {}
        if labelled:
            label_ids = np.full(tokens, IGNORED, np.int32)
            label_ids[first_tokens] = self.class_ids(examples)
            labels["label_ids"] = label_ids
        return EncodedWords.of(sequences, labels, words=first_tokens, cut=cut)

    def _documents(self, examples: Sequence[Sentence]) -> list[list[Sentence]]:
        """Groups sentences that share a window's context; drops sentences without words."""
        result: list[list[Sentence]] = []
        last = NO_DOCUMENT
        for sentence in examples:
            if not sentence.words:
                continue
            if self.document_context and sentence.document == last != NO_DOCUMENT:
                result[-1].append(sentence)
            else:
                result.append([sentence])
            last = sentence.document
        return result

    def class_ids(self, examples: Sequence[Sentence]) -> np.ndarray:
        """int32 [words of all sentences], the class id of each word's tag."""
        numbers = {name: number for number, name in enumerate(self.classes)}
        result: list[int] = []
        for sentence in examples:
            try:
                result += [numbers[tag] for tag in sentence.gold]
            except KeyError as error:
                place = sentence.gold.index(error.args[0])
                raise InputError(
                    f"{sentence.where}: the tag {error.args[0]!r} of word {place + 1} "
                    f"({sentence.words[place]!r}) is not one of {' '.join(self.classes)}"
                ) from error
        return np.array(result, np.int32)

    def decode(
        self, examples: Sequence[Sentence], encoded: EncodedWords, outputs: Outputs
    ) -> list[np.ndarray]:
        """The probabilities of each word's tags, from the outputs at its first token."""
        probabilities = self._probabilities(outputs, encoded.words)
        ends = np.cumsum([len(sentence.words) for sentence in examples])
        return np.split(probabilities, ends[:-1]) if len(examples) else []

    def _probabilities(self, outputs: Outputs, words: np.ndarray) -> np.ndarray:
        """float64 [words, C], from the outputs at their first tokens."""
        logits = np.concatenate([np.zeros((0, len(self.classes)), np.float32), *outputs["logits"]])
        return softmax(logits[words])

    def combine(self, members: Sequence[Sequence[np.ndarray]], by: str) -> list[np.ndarray]:
        """See `Family`; words are combined, so the members' tokens may differ."""
        return [combined(np.array(each), by) for each in zip(*members, strict=True)]

    def tags(self, prediction: np.ndarray) -> tuple[str, ...]:
        """The likeliest tag of each word."""
        return tuple(self.classes[number] for number in prediction.argmax(-1))

    def degenerate(self, predictions: Sequence[np.ndarray], settings: Mapping[str, Any]) -> str:
        """Says so if all words have the same tag; otherwise returns ""."""
        tags = set(chain.from_iterable(map(self.tags, predictions)))
        return f"all tags are {tags.pop()!r}" if len(tags) == 1 else ""

    def parse(self, line: str, where: str) -> Sentence:
        """Parses words with spaces between them, or the JSON object {"words": list or text}."""
        if not looks_like_json(line):
            return Sentence(tuple(line.split()), None, NO_DOCUMENT, where)
        words = json_object(line, where, _FORM, record(words=list[str] | str))["words"]
        words = words.split() if isinstance(words, str) else words
        if not words:
            raise InputError(f"{where}: no words to tag: write {_FORM}")
        return Sentence(tuple(words), None, NO_DOCUMENT, where)

    def show(
        self, example: Sentence, prediction: np.ndarray, settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns "words" and "tags", and "entities" (stop is exclusive) if tags mark entities."""
        tags = self.tags(prediction)
        shown: dict[str, Any] = {"words": list(example.words), "tags": list(tags)}
        if all(map(is_entity_tag, self.classes)):
            shown["entities"] = [
                {**entity._asdict(), "text": " ".join(example.words[entity.start : entity.stop])}
                for entity in entities(tags)
            ]
        return shown


class TagSequences(Tagging):
    """The same with a CRF (`bertjax.models.heads.crf`): the best path has probability 1."""

    objective: ClassVar[str] = "tag_sequence"

    def _probabilities(self, outputs: Outputs, words: np.ndarray) -> np.ndarray:
        path = np.concatenate([np.zeros(0, np.float32), *outputs["path"]])
        return np.eye(len(self.classes))[path[words].astype(np.int64)]


def tagging(classes: tuple[str, ...], document_context: bool, *, crf: bool) -> Tagging:
    """The family of a tagging task, with a CRF or without."""
    return (TagSequences if crf else Tagging)(classes, document_context)


def _bounds(document: list[Sentence], sizes: np.ndarray, first: int, room: int) -> np.ndarray:
    """The first word of each unit (a sentence, or a word of a long one), and the end."""
    bounds = [first]
    for sentence in document:
        begin, end = bounds[-1], bounds[-1] + len(sentence.words)
        fits = sizes[begin:end].sum() <= room
        bounds += [end] if fits else range(begin + 1, end + 1)
    return np.array(bounds)
