"""Parameters that had other paths before: files and identities of then stay valid."""

from collections.abc import Mapping

# Encoder -> the path before -> the path now: see `bertjax.base.renames`. Only ModernBERT had
# masked_lm/head.
RENAMES: Mapping[str, Mapping[str, str]] = {
    "modernbert": {
        "modernbert/encoder/*/feed_forward/intermediate": "modernbert/encoder/*/intermediate",
        "modernbert/encoder/*/feed_forward/output": "modernbert/encoder/*/output",
        "masked_lm/head/dense": "masked_lm/transform",
        "masked_lm/head/norm": "masked_lm/norm",
    }
}
ALL_RENAMES = {before: after for pairs in RENAMES.values() for before, after in pairs.items()}
