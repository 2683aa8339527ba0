"""The spec of one ELMo: its sizes by name, and how it is computed."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from bertjax.base.fields import WORD_LENGTH
from bertjax.base.limits import Count, Few, Pieces, Rate, Weight, Width
from bertjax.models.encoders.computation import Computation

# (layers, width of both directions, width of the cells, highways): those of AllenNLP's releases.
SIZES = {
    "small": (2, 256, 1024, 1),
    "medium": (2, 512, 2048, 1),
    "original": (2, 1024, 4096, 2),
}


@dataclasses.dataclass(frozen=True)
class ElmoArchitecture:
    """The function that an ELMo computes; the defaults are those of arXiv 1802.05365, section 3.4.

    Attributes:
      vocab_size: the words that it predicts in pre-training. It reads words by their characters.
      hidden_size: D, the width of both directions together; each projects its states to D / 2.
      num_hidden_layers: the LSTM layers of each direction.
      cell_size: the width of the cells of an LSTM.
      character_size: the width of the vectors of characters.
      filters: the width and the number of the convolutions of each kind.
      num_highways: how many highway layers follow the convolutions.
      cell_clip, projection_clip: the bounds of cells and of states; 0: none.
      skip_connections: whether a layer's input is added to its output, but for the first layer.
      hidden_act: the activation after the convolutions.
      hidden_dropout_prob: the rate of dropout of each LSTM layer's input, and of what predicts.
    """

    vocab_size: Pieces = 793_471
    hidden_size: Width = 1024
    num_hidden_layers: Few = 2
    cell_size: Count = 4096
    character_size: Count = 16
    filters: tuple[tuple[int, int], ...] = (
        *((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)),
    )
    num_highways: Count = 2
    cell_clip: Weight = 3.0
    projection_clip: Weight = 3.0
    skip_connections: bool = True
    hidden_act: str = "relu"
    hidden_dropout_prob: Rate = 0.1


@dataclasses.dataclass(frozen=True)
class ElmoSpec(Computation, ElmoArchitecture):
    """The architecture of one ELMo, and how it is computed.

    Raises:
      ValueError: a value does not fit; the message names the field.
    """

    encoder: ClassVar[str] = "elmo"
    choices = {
        **Computation.choices,
        **{"hidden_act": ("relu", "tanh"), "scan_layers": (False,), "remat": ("none",)},
    }
    sizes: ClassVar[Mapping[str, tuple[int, ...]]] = SIZES
    size_fields: ClassVar[tuple[str, ...]] = (
        *("num_hidden_layers", "hidden_size", "cell_size", "num_highways"),
    )
    phase_fields: ClassVar[tuple[str, ...]] = ()
    max_position_embeddings: ClassVar[int] = 1_000_000  # nothing limits the length of a text
    type_vocab_size: ClassVar[int] = 1  # it reads one text, never a pair
    causal: ClassVar[bool] = False
    initializer_range: ClassVar[float] = 0.02  # of heads; its own arrays begin as bilm-tf's

    remat: str = "none"

    def __post_init__(self):
        super().__post_init__()
        if self.hidden_size % 2:
            raise ValueError(f"hidden_size={self.hidden_size}: must be even, for two directions")
        if self.cell_size < self.projection_size:
            raise ValueError(
                f"cell_size={self.cell_size}: must be at least {self.projection_size}, half of "
                f"hidden_size={self.hidden_size}"
            )
        if not self.filters:
            raise ValueError("filters=(): must be pairs of a width and a number")
        for width, count in self.filters:
            if not (1 <= width <= WORD_LENGTH and count >= 1):
                raise ValueError(
                    f"filters={self.filters}: ({width}, {count}) must be a width from 1 to "
                    f"{WORD_LENGTH} and a number of at least 1"
                )

    @property
    def embedding_width(self) -> int:
        return self.hidden_size

    @property
    def projection_size(self) -> int:
        """P = D / 2, the width of one direction."""
        return self.hidden_size // 2

    @property
    def projects(self) -> bool:
        """Whether the states of an LSTM are projected; if not, its cells have their width."""
        return self.cell_size > self.projection_size

    @property
    def num_filters(self) -> int:
        """The convolutions of all widths."""
        return sum(count for _, count in self.filters)

    @property
    def word_products(self) -> int:
        """The multiplications of the vector of a word."""
        products = sum(
            (WORD_LENGTH - width + 1) * width * self.character_size * count
            for width, count in self.filters
        )
        highways = self.num_highways * 2 * self.num_filters**2
        return products + highways + self.num_filters * self.projection_size

    def flops_per_token(self, length: int, predicted: int, context: float | None = None) -> float:
        """See `bertjax.models.encoders.contract.EncoderSpec`; both directions predict."""
        del context
        out, cell = self.projection_size, self.cell_size
        layer = 2 * (2 * out * 4 * cell + cell * out * self.projects)
        head = predicted / length * 2 * out * self.vocab_size
        return 6.0 * (self.word_products + self.num_hidden_layers * layer + head)
