"""bertjax: pre-train BERT-style encoders in JAX, from raw text to a checkpoint."""

__version__ = "0.1.0"
