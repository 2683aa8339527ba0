"""Names of tensor axes. Imports nothing.

Shape letters, used in comments and docstrings throughout:

  B  batch: sequences             N  attention heads
  S  sequence length              H  width of one head (D = N * H)
  P  masked positions a sequence  F  feed-forward width
  D  model width                  V  vocabulary
  Q  length of queries            K  heads of keys and values (K divides N)
  C  classes, or choices
  W  characters of a word

A logical axis names the meaning of a dimension; `bertjax.training.sharding.rules` says how it is
split.
"""

# Axes of activations.
BATCH = "batch"
LENGTH = "length"
ACTIVATION_EMBED = "activation_embed"
ACTIVATION_HEADS = "activation_heads"
ACTIVATION_MLP = "activation_mlp"
ACTIVATION_VOCAB = "activation_vocab"

# Axes of parameters.
LAYERS = "layers"  # the stacked axis of scanned layers
VOCAB = "vocab"
POSITIONS = "positions"
CHARACTERS = "characters"
SEGMENTS = "segments"
EMBED = "embed"
EMBED_OUT = "embed_out"  # the second D of a D x D product
NEIGHBOURS = "neighbours"  # the places of a convolution
QKV = "qkv"  # query, key, value: 3; or key, value: 2
GATE = "gate"  # the two halves of a gated feed-forward
HEADS = "heads"
KV_HEADS = "kv_heads"  # of keys and values, where queries have more
HEAD_WIDTH = "head_width"
MLP = "mlp"
CLASSES = "classes"
RANK = "rank"  # of the change that an adapter makes to a kernel

ALL = frozenset(value for name, value in list(globals().items()) if name.isupper())
