"""The special tokens of a vocabulary by their roles, and the names that usual vocabularies have."""

from collections.abc import Mapping, Set

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# A role may be absent; two roles may have one token.
ROLES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
BERT = dict(zip(ROLES, SPECIAL_TOKENS, strict=False))
_FAIRSEQ = {"pad": "<pad>", "unk": "<unk>", "mask": "<mask>", "bos": "<s>", "eos": "</s>"}
ROBERTA = _FAIRSEQ | {"cls": "<s>", "sep": "</s>"}
XLNET = _FAIRSEQ | {"cls": "<cls>", "sep": "<sep>"}
# GPT-2 and GPT have no padding; another token takes its place, and the mask tells it apart.
GPT2 = dict.fromkeys(("pad", "unk", "bos", "eos"), "<|endoftext|>")
GPT = dict.fromkeys(("pad", "unk"), "<unk>")
GEMMA = {"pad": "<pad>", "unk": "<unk>", "mask": "<mask>", "bos": "<bos>", "eos": "<eos>"}
GEMMA |= {"cls": "<bos>", "sep": "<eos>"}
# Those of bilm-tf; in the place of padding, the mask tells another token apart.
WORDS = {"pad": "</S>", "unk": "<UNK>", "bos": "<S>", "eos": "</S>"}
_USUAL = (BERT, XLNET, ROBERTA, GPT2, GEMMA)  # XLNet's files have RoBERTa's names, too


def names_by_role(special: Set[str], named: Mapping[str, str]) -> dict[str, str]:
    """The name of each role's token: that of `named`, or else that of a usual vocabulary.

    It takes the first usual vocabulary that has a name in common with `named` (if that has any),
    and whose names of the other roles are all in `special`, a vocabulary's special tokens. If none
    fits, the result is `named`, or BERT's names if there are none: some may be missing in
    `special`. They are in the order of `ROLES`.
    """
    found = dict(named) or BERT
    for usual in _USUAL:
        usual_names = {role: name for role, name in usual.items() if role not in named}
        if special >= set(usual_names.values()) and (not named or usual.items() & named.items()):
            found = usual_names | dict(named)
            break
    return {role: found[role] for role in ROLES if role in found}
