"""BPE and unigram tokenizers of transformers: RoBERTa's, GPT-2's, GPT's, Gemma's, XLM-R's.

The files are tokenizer.json, or older ones: vocab.json and merges.txt of GPT, GPT-2 and RoBERTa,
sentencepiece.bpe.model of XLM-R and CamemBERT, and spm.model of DeBERTa-v2.
"""

import json
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from bertjax.base.checks import check_in_folder, input_error_at
from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write, write_json
from bertjax.interop import json_files, sentencepiece_model
from bertjax.interop.json_files import read_config, read_optional
from bertjax.interop.named_tokens import (
    CONFIG_FILE,
    NamedTokens,
    content_of,
    first_of,
)
from bertjax.text.library_file import steps_of
from bertjax.text.moses_bpe import FOLDED, SPLIT_AT_SPACES, XLM
from bertjax.text.special_tokens import BERT, GPT, ROBERTA, names_by_role
from bertjax.text.template import Template
from bertjax.text.tokenizer import (
    BPE,
    BYTE_FALLBACK_BPE,
    MOSES_BPE,
    OF_WORDS,
    UNIGRAM,
    WORD_BPE,
    WORDS,
    Tokenizer,
)
from bertjax.text.tokenizer import kind_of as of_library
from bertjax.text.word_bpe import NORMALIZER, PRE_TOKENIZER, WORD_END

LIBRARY_FILE = "tokenizer.json"
PIECES_FILE, MERGES_FILE = "vocab.json", "merges.txt"
MODEL_FILE, _DEBERTA_FILE = "sentencepiece.bpe.model", "spm.model"

# Classes that take tokenizer.json as it is; the classes below build the tokenizer anew.
PLAIN_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
_CAMEMBERT, XLM_CLASS = "CamembertTokenizer", "XLMTokenizer"
_DEBERTA = "DebertaV2Tokenizer"
_LIKE_ROBERTA = ("RobertaTokenizer", "XLMRobertaTokenizer", _CAMEMBERT)
_CLASSES = {
    BPE: (*PLAIN_CLASSES, "RobertaTokenizer", "GPT2Tokenizer"),
    BYTE_FALLBACK_BPE: (*PLAIN_CLASSES, "GemmaTokenizer"),
    WORD_BPE: (*PLAIN_CLASSES, "OpenAIGPTTokenizer"),
    MOSES_BPE: (XLM_CLASS,),
    UNIGRAM: (*PLAIN_CLASSES, "XLMRobertaTokenizer", _CAMEMBERT, "XLNetTokenizer", _DEBERTA),
}
_PREFIX = "add_prefix_space"
FOLDS = "do_lowercase_and_remove_accent"  # of XLM
_SPLITS = "split_by_punct"  # of DeBERTa-v2


def kind_of(folder: Path, library: dict[str, Any] | None) -> str | None:
    """The kind of a folder's tokenizer; None if it is neither BPE nor unigram."""
    if library is not None:
        kind = of_library(library)
        if kind == MOSES_BPE:  # XLM's itself has older files alone
            return WORD_BPE
        return None if kind == WORDS else kind
    if (folder / PIECES_FILE).exists():
        pieces = read_optional(folder / PIECES_FILE, json_files.PIECES) or {}
        return WORD_BPE if any(piece.endswith(WORD_END) for piece in pieces) else BPE
    of_unigram = (folder / name for name in (MODEL_FILE, _DEBERTA_FILE))
    return UNIGRAM if any(path.exists() for path in of_unigram) else None


def read(named: NamedTokens, kind: str, library: dict[str, Any] | None) -> Tokenizer:
    """Reads such a tokenizer, of the kind that `kind_of` tells; without `library`, the older files.

    Special tokens have the roles that the folder's files say; other roles have the usual names.
    """
    if library is None and _is_xlm(named):
        kind = MOSES_BPE
    named.check_class(_CLASSES[kind])
    if library is not None:
        return _read_library(named, kind, library)
    if kind != UNIGRAM:
        return _read_pieces_and_merges(named, kind)
    return (_read_fairseq if (named.folder / MODEL_FILE).exists() else _read_deberta)(named)


def _is_xlm(named: NamedTokens) -> bool:
    """Whether the files, which look like GPT's, are XLM's; the class or the model_type says so."""
    config = read_config(named.folder / "config.json") or {}
    by_type = XLM_CLASS if config.get("model_type") == "xlm" else None
    return (named.class_name or by_type) == XLM_CLASS


def _read_library(named: NamedTokens, kind: str, library: dict[str, Any]) -> Tokenizer:
    known = set(map(content_of, library.get("added_tokens") or ()))
    _check_added(named, known, f"{LIBRARY_FILE} does not have among its added_tokens")
    path = named.folder / LIBRARY_FILE
    roles = {role: content_of(token) for role, token in named.by_role().items()}
    tokenizer = Tokenizer(kind, path.read_bytes(), str(path), special_tokens=roles)
    # A class that builds the tokenizer anew has settings of its own.
    class_name = named.class_name
    builds = class_name in (*_LIKE_ROBERTA, _DEBERTA, "GPT2Tokenizer")
    normalizer, roles_of_template = library.get("normalizer"), tokenizer.roles
    other_normalizer = builds and kind == BPE and normalizer
    if class_name == _DEBERTA:
        other_normalizer = normalizer != sentencepiece_model.deberta_normalizer(_is_cased(named))
        roles_of_template = {role: tokenizer.roles[role] for role in ("cls", "sep")}
    differences = {
        "another normalizer": other_normalizer,
        "another post_processor": class_name in (*_LIKE_ROBERTA, _DEBERTA)
        and tokenizer.template != Template.usual(roles_of_template),
    }
    for difference, differs in differences.items():
        if differs:
            raise InputError(
                f"{path}: it has {difference} than {class_name} of {CONFIG_FILE}: write "
                f"{PLAIN_CLASSES[0]} there if {path.name} is right"
            )
    if kind in (BYTE_FALLBACK_BPE, WORD_BPE):
        return tokenizer
    written = kind == UNIGRAM or steps_of(library, "pre_tokenizer")[-1][_PREFIX]
    configured = named.config.get(_PREFIX)
    if builds and configured is None:
        configured = kind == UNIGRAM
    _check_prefix(named, written if configured is None else configured, written)
    return tokenizer


def _check_prefix(named: NamedTokens, configured: bool, written: bool) -> None:
    """Refuses a tokenizer_config.json with another add_prefix_space than the tokenizer's."""
    if configured != written:
        shown = {True: "true", False: "false"}
        raise InputError(
            f"{named.folder / CONFIG_FILE}: {_PREFIX} is {shown[configured]}: bertjax reads this "
            f"tokenizer only with {shown[written]}, as its other files have it: make them agree"
        )


def _check_added(named: NamedTokens, known: set[str], where: str) -> None:
    """Refuses tokens that other files add and the vocabulary lacks."""
    for file, tokens in named.added().items():
        if extra := [name for name in map(content_of, tokens) if name not in known]:
            raise InputError(
                f"{named.folder / file}: {len(extra)} tokens that {where} ({first_of(extra)}): "
                "save the tokenizer again with transformers"
            )


# ----------------------------------------------------- files that are older than tokenizer.json


def _read_pieces_and_merges(named: NamedTokens, kind: str) -> Tokenizer:
    path, merges_file = named.folder / PIECES_FILE, named.folder / MERGES_FILE
    pieces = read_optional(path, json_files.PIECES) or {}
    check_in_folder(merges_file, named.folder)
    with input_error_at(f"{merges_file}: not UTF-8", UnicodeDecodeError, "download it again"):
        lines = merges_file.read_bytes().decode().split("\n")
    merges = [line for line in lines if line and not line.startswith("#version")]
    if kind == MOSES_BPE:  # XLM's program wrote how often each was seen
        merges = [" ".join(line.split()[:2]) for line in merges]
    roles, model = named.by_role(), {"type": "BPE", "vocab": pieces, "merges": merges}
    named_roles = {role: content_of(token) for role, token in roles.items()}
    if kind in OF_WORDS:
        names = (GPT if kind == WORD_BPE else XLM) | named_roles
        model |= {"unk_token": names["unk"], "end_of_word_suffix": WORD_END}
        steps = {"normalizer": NORMALIZER, "pre_tokenizer": PRE_TOKENIZER}
        if kind == MOSES_BPE:
            folds = named.config.get(FOLDS, True)
            steps = {"normalizer": FOLDED if folds else None, "pre_tokenizer": SPLIT_AT_SPACES}
    else:
        names = names_by_role(set(pieces), named_roles)
        prefix = {_PREFIX: bool(named.config.get(_PREFIX))}
        split = {"type": "ByteLevel", **prefix, "trim_offsets": True, "use_regex": True}
        steps = {"pre_tokenizer": split}
    added = _added_tokens(named, names | roles, pieces)
    content = {"model": model, **steps, "added_tokens": added}
    first, last = ((pieces.get(names.get(role, ""), -1),) for role in ("bos", "sep"))
    xlm = Template(first, last, last, second_type=0)  # it may have no name for the first token
    return Tokenizer(
        kind,
        json.dumps(content).encode(),
        str(path),
        special_tokens=names,
        template=xlm if kind == MOSES_BPE else None,
    )


def _read_fairseq(named: NamedTokens) -> Tokenizer:
    """Reads XLM-R's or CamemBERT's; the class or the model_type says which."""
    path = named.folder / MODEL_FILE
    config = read_config(named.folder / "config.json") or {}
    by_type = _CAMEMBERT if config.get("model_type") == "camembert" else None
    is_camembert = (named.class_name or by_type) == _CAMEMBERT
    _check_prefix(named, named.config.get(_PREFIX) is not False, True)
    tokens = ROBERTA | named.by_role()
    if is_camembert and isinstance(tokens["mask"], str):  # as its class does
        tokens["mask"] = {"content": tokens["mask"], "lstrip": True}
    names = {role: content_of(token) for role, token in tokens.items()}
    content = sentencepiece_model.fairseq(
        path.read_bytes(), str(path), names, is_camembert=is_camembert
    )
    ids = {piece: number for number, (piece, _) in enumerate(content["model"]["vocab"])}
    content["added_tokens"] = _added_tokens(named, tokens, ids)
    return Tokenizer(UNIGRAM, json.dumps(content).encode(), str(path), special_tokens=names)


def _read_deberta(named: NamedTokens) -> Tokenizer:
    """Reads DeBERTa-v2's; its [MASK] follows the pieces of the model."""
    path = named.folder / _DEBERTA_FILE
    _check_prefix(named, named.config.get(_PREFIX) is not False, True)
    if named.config.get(_SPLITS):
        raise InputError(
            f"{named.folder / CONFIG_FILE}: {_SPLITS} is true: bertjax cannot give the ids of this "
            "tokenizer"
        )
    tokens = BERT | {"bos": BERT["cls"], "eos": BERT["sep"]} | named.by_role()
    names = {role: content_of(token) for role, token in tokens.items()}
    content, ids, controls = sentencepiece_model.with_own_ids(
        path.read_bytes(), str(path), cased=_is_cased(named)
    )
    ids = {names["mask"]: len(ids), **ids}
    of_model = {name: name for name in controls}
    content["added_tokens"] = _added_tokens(named, of_model | tokens, ids)
    around = {role: (names[role], ids[names[role]]) for role in ("cls", "sep")}
    content["post_processor"] = {"type": "BertProcessing", **around}
    return Tokenizer(UNIGRAM, json.dumps(content).encode(), str(path), special_tokens=names)


def _is_cased(named: NamedTokens) -> bool:
    return not named.config.get("do_lower_case")


def _added_tokens(
    named: NamedTokens, by_role: Mapping[str, Any], ids: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The special tokens of a vocabulary, in the form of tokenizer.json."""
    _check_added(named, set(ids), "the vocabulary does not have")
    tokens = [*chain.from_iterable(named.added().values()), *by_role.values()]
    tokens.sort(key=lambda token: isinstance(token, dict))  # those with settings win
    settings = ("single_word", "lstrip", "rstrip", "normalized")
    found = {}
    for token in tokens:
        name, given = content_of(token), token if isinstance(token, dict) else {}
        if name in ids:  # `Tokenizer` refuses the missing ones together
            found[name] = {"id": ids[name], "content": name, "special": True} | {
                each: given.get(each, False) for each in settings
            }
    return list(found.values())


# ------------------------------------------------------------------------------- writing


def write_xlm(tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """Writes XLM's vocab.json and merges.txt; returns its fields of tokenizer_config.json."""
    content = tokenizer.description()
    write_json(folder / PIECES_FILE, content["model"]["vocab"])
    with atomic_write(folder / MERGES_FILE, "w") as file:
        file.writelines(f"{' '.join(merge)}\n" for merge in content["model"]["merges"])
    of_a_role = {tokenizer.tokens[number] for number in tokenizer.special_ids}
    special = [token["content"] for token in content["added_tokens"] if token["special"]]
    return {
        "tokenizer_class": XLM_CLASS,
        FOLDS: not tokenizer.cased,
        "additional_special_tokens": [name for name in special if name not in of_a_role],
    }
