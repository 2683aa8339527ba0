"""A trained model on the host, wherever its weights come from."""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from bertjax.base.errors import InputError
from bertjax.base.renames import renamed, reverse
from bertjax.interop.names import Entry, Names, to_hf, to_jax
from bertjax.interop.published.registry import array_names, names_of
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderFamily, EncoderSpec
from bertjax.models.encoders.registry import family_of
from bertjax.models.encoders.renames import RENAMES
from bertjax.models.heads.bilstm import BiLstm
from bertjax.models.heads.embedding import Embedding, VectorModel
from bertjax.models.heads.head_specs import HEAD_SPECS, HeadSpec
from bertjax.models.heads.tasks import BILSTM, CLASSIFIERS, OUTPUT_LAYERS
from bertjax.text.tokenizer import Tokenizer

_POOLER = "pooler"


@dataclasses.dataclass(frozen=True)
class LowRank:
    """What was trained of a model: changes of its kernels by an adapter, and whole parts.

    Attributes:
      base: the weights that were changed, as `open_model` takes them.
      identity: of these weights.
      rank, scale: those of `bertjax.training.model.Adapter`.
      factors: nested as `Pretrained.params`, with two arrays (`bertjax.base.factors`) in the place
        of each kernel that was changed.
      whole: the parts that were trained without an adapter, such as a new output layer.
    """

    base: str
    identity: str
    rank: int
    scale: float
    factors: Mapping[str, Any]
    whole: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A trained model on the host.

    Attributes:
      origin: where it comes from, for messages.
      head_type: one of `bertjax.models.encoders.head_types`.
      spec: its sizes; unrolled layers and an unpadded vocabulary.
      params: nested float32 numpy arrays in canonical storage (`bertjax.models.encoders.storage`).
      classes: the names of a classifier's classes.
      left_out: the name of each array of the source that is not used -> the reason.
      task: what it was fine-tuned for and how it reads new text, where that is known:
        the fields of a task's family, "max_length", the "columns" of a table, and what was decided
        on its dev set.
      bilstm: the BiLSTM over the encoder, if there is one.
      embedding: how it makes vectors of texts, if it has learned to.
      dimensions: the first numbers of its dense vectors that are kept, as a `VectorModel` does, if
        a caller does not say how many; 0: all.
      scoring: what makes the vector that a classifier reads, if it is not the family's pooler.
      rows: where the rows of its pieces come from, if it had another vocabulary.
      kept: what the source says to sentence-transformers alone, which exports say again: the
        "prompts" by name and the "default_prompt_name" of its vectors, and the "activation_fn" of a
        reranker, or None.
      adapter: the adapter whose changes are in `params`, if it was trained here.
    """

    origin: str
    head_type: str
    spec: EncoderSpec
    params: Mapping[str, Any]
    tokenizer: Tokenizer
    classes: tuple[str, ...] = ()
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    task: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    bilstm: BiLstm | None = None
    embedding: Embedding | None = None
    dimensions: int = 0
    scoring: Embedding | None = None
    rows: str = ""
    kept: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    adapter: LowRank | None = None

    def __post_init__(self):
        if self.tokenizer.vocabulary_size > self.spec.vocab_size:
            raise InputError(
                f"{self.origin}: the vocabulary has {self.tokenizer.vocabulary_size} pieces, the "
                f"model only {self.spec.vocab_size}: take the tokenizer it was trained with"
            )

    @property
    def family(self) -> EncoderFamily:
        """The family of its encoder."""
        return family_of(self.spec)

    @property
    def names(self) -> Names:
        """What its family is called in transformers."""
        return names_of(self.spec)

    @property
    def head_spec(self) -> HeadSpec:
        """The heads that a model of its kind has."""
        return HEAD_SPECS[self.head_type]

    @property
    def class_name(self) -> str:
        """The name of its class in transformers, or its kind where there is none."""
        return self.names.classes.get(self.head_type, f"{self.family.name} for {self.head_type}")

    @property
    def problem_type(self) -> str:
        """The name that transformers gives to what a text classifier's outputs are."""
        usual = "regression" if len(self.classes) == 1 else "single_label_classification"
        return self.task.get("problem_type") or usual

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of its architecture; vectors of texts need no pooler, and may have one."""
        parts = self.head_spec.parts(self.spec, self.bilstm)
        if self.scoring:
            pooler = (_POOLER,) * bool(self.scoring.parts)
            return (self.spec.encoder, *pooler, "classifier")
        if not self.embedding:
            return parts
        parts = tuple(part for part in parts if part != _POOLER or part in self.params)
        return parts + self.embedding.parts

    @property
    def missing(self) -> tuple[str, ...]:
        """The parts of its architecture that the source does not have."""
        return tuple(part for part in self.parts if part not in self.params)

    @property
    def entries(self) -> list[Entry]:
        """The arrays of its architecture and their names in transformers.

        It lacks BiLSTMs and what makes vectors: with a BiLSTM, it has only the encoder's arrays.
        """
        parts = (self.spec.encoder,) if self.bilstm or self.scoring else self.parts
        own = self.embedding.parts if self.embedding else ()
        found = [part for part in parts if part in self.params and part not in own]
        return array_names(found, self.spec, self.head_type, len(self.classes))

    @property
    def additional(self) -> tuple[str, ...]:
        """The parts that it has besides those of its head_spec."""
        return tuple(part for part in self.params if part not in self.parts)

    @property
    def identity(self) -> str:
        """A hash, in hexadecimal, of all that determines its outputs.

        Parameters that were renamed count with their first paths, so that it stays what it was.
        """
        known = f"{self.spec} {self.tokenizer.identity} {self.embedding or ''}"
        if self.embedding and self.embedding.modules:
            known += f" {self.embedding.modules}"
        if self.dimensions:
            known += f" {self.dimensions}"
        if self.scoring:
            known += f" {self.scoring} {self.scoring.modules}"
        digest = hashlib.sha256(known.rstrip().encode())
        first = reverse(RENAMES.get(self.spec.encoder, {}))
        flat = flatten_dict(dict(self.params), sep="/")
        params = unflatten_dict({renamed(path, first): flat[path] for path in flat}, sep="/")
        for path, leaf in jax.tree_util.tree_leaves_with_path(params):
            digest.update(jax.tree_util.keystr(path).encode() + np.ascontiguousarray(leaf).data)
        return digest.hexdigest()

    def check_length(self, where: str, tokens: int, most: int | None = None) -> None:
        """Raises InputError if a text has more tokens than the model, or a caller, takes."""
        most = most or self.spec.max_position_embeddings
        if tokens > most:
            raise InputError(f"{where}: {tokens} tokens, and the model takes {most}: shorten it")

    def check_reads_pieces(self) -> None:
        """Raises InputError if it reads the characters of words, and not the ids of pieces."""
        if self.family.reads_characters:
            raise InputError(
                f"{self.origin}: {self.family.name} reads the characters of words, and pieces of a "
                "vocabulary are needed here: take another model (launch/extract_features.py gives "
                "its vectors, and configs/finetune_ner.py:elmo a tagger of them)"
            )

    def model(self, head_type: str | None = None) -> nn.Module:
        """The module that these weights are for; a `VectorModel` with `embedding`.

        This model must have every part of another `head_type` than its own, and must have learned
        to predict tokens in the same way (InputError). A permutation LM is its own masked LM: it
        does not see the tokens that a batch has last in "order".
        """
        if (self.head_type, head_type) == (head_types.PERMUTATION_LM, head_types.MASKED_LM):
            head_type = self.head_type
        head_spec = HEAD_SPECS[head_type or self.head_type]
        if not head_spec.fits(self.family):
            raise InputError(
                f"{self.origin}: {self.class_name}: {self.family.name} has no model of the kind "
                f"{head_spec.head_type}, which is needed here: take another model"
            )
        if self.head_type == head_types.PERMUTATION_LM and head_type == head_types.CAUSAL_LM:
            raise InputError(
                f"{self.origin}: {self.class_name} predicts tokens in an order that is given, and "
                "has not learned to read left to right: train it on with "
                "objective='left_to_right', or take another model"
            )
        embedding = None if head_type else self.embedding
        bilstm = self.bilstm if head_spec is self.head_spec else None
        own = embedding or (self.scoring and head_spec is self.head_spec)
        parts = self.parts if own else head_spec.parts(self.spec, bilstm)
        absent = [part for part in parts if part not in self.params]
        if absent:
            advice = "others"
            if self.head_type == head_types.REPLACED_TOKENS:
                advice = "the generator next to it (of a run: launch/convert.py --part=generator)"
            other = dataclasses.replace(self, head_type=head_spec.head_type)
            raise InputError(
                f"{self.origin}: {self.class_name} weights without {' and '.join(absent)}, "
                f"which {other.class_name} has: take {advice}"
            )
        if embedding:
            return VectorModel(self.spec, embedding, dimensions=self.dimensions)
        module = head_spec.module(self.spec, len(self.classes), self.task)
        if self.scoring and own:
            return module.clone(scoring=self.scoring)
        return module.clone(bilstm=bilstm) if bilstm else module

    def beginning(
        self, head_type: str, classes: tuple[str, ...] = (), bilstm: BiLstm | None = None
    ) -> dict[str, Any]:
        """The parts with which the training of a model of this kind begins.

        Output layers and a BiLSTM are among them only if this model has learned the same: it is of
        the same kind, has the same BiLSTM or none, and a classifier's classes are `classes`, in
        this order. A part that this model lacks is made of its arrays that have the same names in
        transformers, if it has them all. So a classifier of ModernBERT keeps the head before the
        decoder.
        """
        parts = dict.fromkeys((_POOLER, *HEAD_SPECS[head_type].parts(self.spec, bilstm)))
        same = (self.head_type, self.bilstm) == (head_type, bilstm)
        same = same and not self.scoring
        same = same and (parts.keys().isdisjoint(CLASSIFIERS) or self.classes == classes)
        names = [part for part in parts if same or part not in (BILSTM, *OUTPUT_LAYERS)]
        known = self.params.keys() - ({_POOLER} if self.scoring else set())
        found = {part: self.params[part] for part in names if part in known}
        arrays = to_hf(self.params, self.entries) if set(names) - set(found) else {}
        for part in set(names) - set(found):
            entries = array_names([part], self.spec, head_type, 0)
            if all(entry.hf_name in arrays for entry in entries):
                found |= to_jax(arrays, entries, self.origin)
        return found

    def summary(self) -> str:
        """Lines to print: the parts that were read, the parts left out, and the missing parts."""
        arrays = jax.tree.leaves([self.params[part] for part in self.parts if part in self.params])
        lines = [
            f"{self.origin}: {self.class_name}, {self.spec.num_hidden_layers} layers of "
            f"{self.spec.hidden_size}, {sum(array.size for array in arrays):,} parameters"
        ]
        if self.rows:
            lines.append(f"  vocabulary: {self.rows}")
        if self.spec.causal:
            lines.append("  reads left to right")
        if self.bilstm:
            lines.append(f"  a BiLSTM over it: {self.bilstm.depth} layers of {self.bilstm.hidden}")
        if self.scoring:
            modules = [self.scoring.pooling, *(module.in_words for module in self.scoring.modules)]
            lines.append(f"  its classifier reads: {', '.join(modules)}")
        if self.embedding:
            cut = f", cut to {self.dimensions} numbers of length 1" if self.dimensions else ""
            lines.append(f"  vectors of texts: {self.embedding.in_words}{cut}")
        lines += [f"  left out: {name} ({why})" for name, why in self.left_out.items()]
        lines += [f"  besides: {part}" for part in self.additional]
        lines += [f"  missing: {part}" for part in self.missing]
        return "\n".join(lines)
