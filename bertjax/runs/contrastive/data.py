"""The training data of a contrastive run: sources read, texts encoded once, batches by step."""

import dataclasses
import hashlib
from collections.abc import Sequence
from functools import partial

import numpy as np

from bertjax.base.errors import InputError
from bertjax.data.corpus.weights import shares
from bertjax.models.heads.embedding import Embedding
from bertjax.runs.contrastive.recipe import SimilarityRecipe
from bertjax.tasks.similarity.batches import Batches, JoinedBatches, Mixed, Tokens
from bertjax.tasks.similarity.examples import Examples, Texts, read_examples
from bertjax.text.prompted import PromptedText, prompted
from bertjax.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """The examples of all sources, as numbers of texts, and the share of each in the batches."""

    sources: tuple[Examples, ...]
    shares: tuple[float, ...]
    texts: list[str]

    @classmethod
    def of(cls, recipe: SimilarityRecipe) -> "TrainingData":
        """Reads the sources of a recipe.

        Raises InputError also if a source lacks what the loss needs, or has scores that it cannot
        learn.
        """
        texts = Texts()
        read = tuple(
            read_examples(name, recipe.columns, texts, recipe.problem_of)
            for name, _ in recipe.sources
        )
        for source in read:
            _check(source, recipe)
        weights = [weight for _, weight in recipe.sources]
        return cls(read, tuple(shares(weights, [len(each) for each in read])), texts.all)

    def __len__(self) -> int:
        return sum(map(len, self.sources))

    @property
    def identity(self) -> str:
        """A hash of all that it has."""
        digest = hashlib.sha256(repr(self.shares).encode())
        for source in self.sources:
            for array in (source.query, source.passage, source.scores, source.labels):
                digest.update(b"-" if array is None else np.ascontiguousarray(array).data)
        digest.update("\n".join(self.texts).encode())
        return digest.hexdigest()

    def batches(
        self, recipe: SimilarityRecipe, tokenizer: Tokenizer, lengths: tuple[int, int]
    ) -> Batches | JoinedBatches:
        """The batches of a run; `lengths` are the most tokens of a query and of a passage."""
        mixed = Mixed(
            self.sources,
            self.shares,
            len(self.texts),
            batch_size=recipe.batch_size,
            seed=recipe.seed,
            apart=recipe.apart,
        )
        pad_to_longest, embedding = not recipe.fixed_lengths, recipe.embedding
        if embedding is None:
            ids = tokenizer.encode(self.texts)
            return JoinedBatches(
                mixed, ids, tokenizer, length=lengths[0], pad_to_longest=pad_to_longest
            )
        encode = partial(_tokens, self.texts, tokenizer, embedding)
        queries = np.unique(np.concatenate([each.query for each in self.sources]))
        # With labels, a passage is one of the queries.
        sides = [each.query if each.labels is not None else each.passage for each in self.sources]
        passages = np.unique(np.concatenate([each.ravel() for each in sides]))
        return Batches(
            mixed,
            encode(queries, lengths[0], query=True),
            encode(passages[passages >= 0], lengths[1], query=False),
            lengths=lengths,
            pad_id=tokenizer.pad_id,
            pad_to_longest=pad_to_longest,
        )


def _check(source: Examples, recipe: SimilarityRecipe) -> None:
    loss = recipe.loss
    if source.width < loss.passages:
        raise InputError(
            f"{source.name}: config.loss.name={loss.name!r} needs at least {loss.passages} "
            f"passages of each query, and it has {source.width}: give wrong ones, too "
            f"(config.columns.negative={recipe.columns.negative!r})"
        )
    if loss.scored and source.scores is None:
        raise InputError(
            f"{source.name}: config.loss.name={loss.name!r} needs scores "
            f"(config.columns.score={recipe.columns.score!r}), and it has none"
        )
    if source.labels is None and not loss.scored:
        compared = source.passage if loss.pairs_only or source.width > 1 else source.passage[:, :1]
        if len(np.unique(compared[compared >= 0])) < 2:
            raise InputError(
                f"{source.name}: all its passages are the same text: there is nothing to tell apart"
            )


def _tokens(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    embedding: Embedding,
    numbers: np.ndarray,
    length: int,
    *,
    query: bool,
) -> Tokens:
    """The tokens of the texts of these numbers, as queries or as passages."""
    encoded: list[PromptedText] = prompted(
        [*(texts[number] for number in numbers), ""],
        tokenizer,
        prompt=embedding.prompt(query),
        count_prompt=embedding.count_prompt,
        max_length=length,
    )
    return Tokens(encoded[:-1], numbers.tolist(), empty=encoded[-1])
