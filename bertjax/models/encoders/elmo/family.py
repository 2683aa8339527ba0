"""ELMo (arXiv 1802.05365) as a family of encoders: without attention, pieces or token types."""

from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderFamily
from bertjax.models.encoders.elmo.encoder import Elmo, states_shape
from bertjax.models.encoders.elmo.spec import ElmoSpec

ELMO = EncoderFamily(
    spec=ElmoSpec,
    module=Elmo,
    inputs=("characters", "backward_characters", "input_mask"),
    heads={head_types.ENCODER: (), head_types.BIDIRECTIONAL_LM: ("next_word",)},
    scopes=(
        (r"_dropout/", "dropout"),
        (r"/embeddings/", "embeddings"),
        (r"/layer_\d+/", "LSTM"),
    ),
    states=states_shape,
)
