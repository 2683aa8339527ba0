"""Tokenizer files as `tokenizers` and transformers have them, read and written.

Read: a Hugging Face folder (tokenizer.json of the library `tokenizers`, or vocab.txt, with
tokenizer_config.json), Google's releases (vocab.txt alone), and what is written here.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write, write_json
from bertjax.interop import json_files, sentencepiece_model
from bertjax.interop.json_files import EXTRA_ROLES, SPECIAL_ROLES, read_json
from bertjax.text.tokenizer import (
    BPE,
    DESCRIPTION_FILE,
    SENTENCEPIECE,
    SPECIAL_TOKENS,
    VOCABULARY_FILES,
    WORDPIECE,
    Tokenizer,
    bert_wordpiece,
)

LIBRARY_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
SPECIAL_FILE = "special_tokens_map.json"
ADDED_FILE = "added_tokens.json"

# Classes that build the tokenizer anew from tokenizer_config.json, and those that take
# tokenizer.json as it is.
_BERT_CLASSES = ("BertTokenizer", "BertTokenizerFast")
_PLAIN_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
# Rules of normalization: names in tokenizer_config.json, and in tokenizer.json.
_RULES = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
# What tokenizer.json must hold for a BERT WordPiece.
_REQUIRED = {
    ("model", "type"): "WordPiece",
    ("model", "unk_token"): "[UNK]",
    ("model", "continuing_subword_prefix"): "##",
    ("model", "max_input_chars_per_word"): 100,
    ("normalizer", "type"): "BertNormalizer",
    ("normalizer", "clean_text"): True,
    ("pre_tokenizer", "type"): "BertPreTokenizer",
}


class Difference(NamedTuple):
    """A text whose pieces in a folder are not ours; both with [CLS] and [SEP]."""

    text: str
    ours: list[str]
    theirs: list[str]


# ------------------------------------------------------------------------------------ in


def read_tokenizer(folder: str | os.PathLike) -> Tokenizer:
    """Reads the tokenizer of a Hugging Face folder, or of a release of Google's.

    How text is normalized (lower case, accents, Chinese characters) says tokenizer_config.json,
    as to transformers' BertTokenizer; what that does not say, tokenizer.json; with neither, a
    vocabulary with upper case is a cased one. Of both vocab.txt and tokenizer.json, each must
    hold the same pieces. A byte-level BPE is its tokenizer.json.

    Raises:
      InputError: no tokenizer there; a damaged one; another kind than BERT's WordPiece, byte-level
        BPE, or a SentencePiece written here; special tokens under other names; tokens added to a
        WordPiece, or to a BPE outside its tokenizer.json.
    """
    folder = Path(folder)
    config = read_json(folder / CONFIG_FILE, json_files.TOKENIZER_CONFIG) or {}
    library = _read_library(folder / LIBRARY_FILE)
    model_file = folder / VOCABULARY_FILES[SENTENCEPIECE]
    if model_file.exists():
        cased = not config.get("do_lower_case", False)
        tokenizer = Tokenizer(SENTENCEPIECE, model_file.read_bytes(), str(model_file), cased=cased)
    elif _is_bpe(folder, library):
        return _read_bpe(folder, config, library)
    else:
        tokenizer = _read_wordpiece(folder, config, library)
    if library is not None:
        _check_same_pieces(folder, tokenizer, _pieces(folder / LIBRARY_FILE, library))
    return tokenizer


def _is_bpe(folder: Path, library: dict[str, Any] | None) -> bool:
    if library is None or (folder / VOCABULARY_FILES[WORDPIECE]).exists():
        return False
    return library["model"].get("type") == "BPE"


def _read_bpe(folder: Path, config: dict[str, Any], library: dict[str, Any]) -> Tokenizer:
    """Reads a byte-level BPE; `bertjax.text.byte_level` checks its tokenizer.json."""
    _check_class(folder / CONFIG_FILE, config, _PLAIN_CLASSES)
    if config.get("add_prefix_space"):
        raise InputError(
            f"{folder / CONFIG_FILE}: add_prefix_space is true: bertjax reads tokenizers that "
            "encode a text as it is"
        )
    special = _check_roles(folder, config)
    known = set(map(_content, library.get("added_tokens") or ()))
    for file, tokens in _tokens_outside(folder, config, special).items():
        extra = [name for name in map(_content, tokens) if name not in known]
        if extra:
            raise InputError(
                f"{folder / file}: {len(extra)} tokens that {LIBRARY_FILE} does not have among its "
                f"added_tokens ({_first(extra)}): save the tokenizer again with transformers"
            )
    path = folder / LIBRARY_FILE
    return Tokenizer(BPE, path.read_bytes(), str(path))


def _read_wordpiece(
    folder: Path, config: dict[str, Any], library: dict[str, Any] | None
) -> Tokenizer:
    vocabulary_file = folder / VOCABULARY_FILES[WORDPIECE]
    _check_class(folder / CONFIG_FILE, config, (*_BERT_CLASSES, *_PLAIN_CLASSES))
    rules = _rules_in(config, {name: name for name in _RULES})
    if library is not None:
        _check_is_bert(folder / LIBRARY_FILE, library)
        said = _rules_in(library["normalizer"], _RULES)
        rules = said if config.get("tokenizer_class") in _PLAIN_CLASSES else said | rules
    _check_no_added_tokens(folder, config, library or {}, _check_roles(folder, config))
    if vocabulary_file.exists():
        origin, vocabulary = vocabulary_file, vocabulary_file.read_bytes()
    elif library is not None:
        origin = folder / LIBRARY_FILE
        vocabulary = "".join(f"{piece}\n" for piece in _pieces(origin, library)).encode()
    else:
        raise InputError(
            f"{folder}: no {vocabulary_file.name} and no {LIBRARY_FILE}: download the tokenizer's "
            "files into this folder, beside the weights."
        )
    lower_case = rules.pop("do_lower_case", None)
    cased = None if lower_case is None else not lower_case
    return Tokenizer(WORDPIECE, vocabulary, str(origin), cased=cased, **rules)


def _rules_in(said: dict[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """The rules of normalization in a file; null says nothing, but of accents: as upper case."""
    rules = {name: said[key] for name, key in keys.items() if key in said}
    return {n: rule for n, rule in rules.items() if rule is not None or n == "strip_accents"}


def _read_library(path: Path) -> dict[str, Any] | None:
    """A tokenizer.json with a model in it; None without the file."""
    library = read_json(path, json_files.LIBRARY)
    described = path.with_name(DESCRIPTION_FILE)
    if library is None and described.exists():
        raise InputError(
            f"{described}: is of a run or corpus of bertjax: name their folder without hf:"
        )
    if library is not None and (library.get("model") or {}).get("vocab") is None:
        raise InputError(
            f"{path}: no model with a vocabulary in it, as the library tokenizers writes it. "
            "(Older runs and corpora of bertjax have another file of this name: name their folder "
            "without hf:.)"
        )
    return library


def _check_class(path: Path, config: dict[str, Any], known: Sequence[str]) -> None:
    name = config.get("tokenizer_class")
    if name is not None and name not in known:
        raise InputError(
            f"{path}: tokenizer_class is {name!r}; bertjax reads {', '.join(known)}. If the "
            f"tokenizer is of this kind all the same, write {known[0]} there."
        )


def _check_roles(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Refuses special tokens of other names; returns special_tokens_map.json."""
    special = read_json(folder / SPECIAL_FILE, json_files.SPECIAL_TOKENS_MAP) or {}
    for file, named in ((CONFIG_FILE, config), (SPECIAL_FILE, special)):
        for role, expected in zip(SPECIAL_ROLES, SPECIAL_TOKENS, strict=True):
            name = _content(named.get(role))
            if name not in (None, expected):
                raise InputError(
                    f"{folder / file}: {role} is {name!r}, where BERT has {expected}: bertjax "
                    "knows only BERT's names. Rename it in this folder's files; ids stay as they "
                    "are."
                )
    return special


def _tokens_outside(
    folder: Path, config: dict[str, Any], special: dict[str, Any]
) -> dict[str, Iterable[Any]]:
    """The tokens that are added in other files than tokenizer.json, by file."""
    return {
        ADDED_FILE: read_json(folder / ADDED_FILE, json_files.ADDED_TOKENS) or (),
        CONFIG_FILE: [*(config.get("added_tokens_decoder") or {}).values(), *_extra(config)],
        SPECIAL_FILE: _extra(special),
    }


def _check_no_added_tokens(
    folder: Path, config: dict[str, Any], library: dict[str, Any], special: dict[str, Any]
) -> None:
    """Refuses tokens besides the vocabulary's."""
    added = {LIBRARY_FILE: library.get("added_tokens") or ()}
    for file, tokens in (added | _tokens_outside(folder, config, special)).items():
        extra = [name for name in map(_content, tokens) if name not in SPECIAL_TOKENS]
        if extra:
            raise InputError(
                f"{folder / file}: {len(extra)} added tokens ({_first(extra)}): bertjax knows the "
                "pieces of a vocabulary only. Remove them there; those with ids behind the "
                "vocabulary, append to it, where they are found as whole words."
            )


def _first(names: Sequence[str]) -> str:
    """The first names of a list."""
    return ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")


def _extra(named: dict[str, Any]) -> list[Any]:
    """The tokens of no role of BERT's, which stand in a list or under names of their own."""
    groups = [named.get(role) or [] for role in EXTRA_ROLES]
    return [t for group in groups for t in (group.values() if isinstance(group, dict) else group)]


def _content(token: Any) -> str | None:
    """A token that stands in a file as its text, or as an object with its settings."""
    return token["content"] if isinstance(token, dict) else token


def _check_is_bert(path: Path, library: dict[str, Any]) -> None:
    for (part, key), expected in _REQUIRED.items():
        found = (library.get(part) or {}).get(key)
        if found != expected:
            raise InputError(
                f"{path}: {part}.{key} is {found!r}, where BERT's WordPiece has {expected!r}: "
                "bertjax cannot give the ids of this tokenizer."
            )


def _pieces(path: Path, library: dict[str, Any]) -> list[str]:
    """The pieces of tokenizer.json in the order of their ids."""
    vocabulary = library["model"]["vocab"]
    if isinstance(vocabulary, list):  # Unigram: pairs of a piece and its score
        return [piece for piece, _ in vocabulary]
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    for number, piece in enumerate(pieces):
        if vocabulary[piece] != number:
            raise InputError(
                f"{path}: no piece has id {number} (the next, {piece!r}, has {vocabulary[piece]}): "
                f"ids must run from 0 without gaps: put [unused{number}] there, and likewise on."
            )
    return pieces


def _check_same_pieces(folder: Path, tokenizer: Tokenizer, pieces: Sequence[str]) -> None:
    name = VOCABULARY_FILES[tokenizer.kind]
    for number, (ours, theirs) in enumerate(zip(tokenizer.tokens, pieces, strict=False)):
        if ours != theirs:
            raise InputError(
                f"{folder}: id {number} is {ours!r} in {name} and {theirs!r} in {LIBRARY_FILE}: "
                "remove the file that is not this model's."
            )
    if len(pieces) != tokenizer.vocabulary_size:
        raise InputError(
            f"{folder}: {tokenizer.vocabulary_size} pieces in {name} and {len(pieces)} in "
            f"{LIBRARY_FILE}: remove the file that is not this model's."
        )


# ----------------------------------------------------------------------------------- out


def write_tokenizer(
    tokenizer: Tokenizer, folder: str | os.PathLike, max_length: int, *, token_types: bool = True
) -> None:
    """Writes what transformers' AutoTokenizer and `tokenizers.Tokenizer.from_file` load.

    tokenizer.json, tokenizer_config.json, special_tokens_map.json; of a WordPiece vocab.txt, and of
    a SentencePiece sentencepiece.model (for `read_tokenizer` alone). Ids are those of
    `tokenizer.encode(texts, special=True)`, in the template [CLS] A [SEP] B [SEP].

    Args:
      tokenizer: what to write.
      folder: an existing one.
      max_length: tokens that the model takes; transformers truncates there where asked to.
      token_types: whether the model takes token_type_ids.

    Raises:
      InputError: a SentencePiece model that has no equal in `tokenizers`.
    """
    folder = Path(folder)
    serialized = _serialized(tokenizer)
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    names = dict(zip(SPECIAL_ROLES, _special_pieces(tokenizer), strict=True))
    config: dict[str, Any] = {
        "do_lower_case": not tokenizer.cased,
        "model_max_length": max_length,
        "model_input_names": inputs if token_types else [inputs[0], inputs[2]],
        **names,
    }
    if tokenizer.kind == WORDPIECE:
        config |= {
            "tokenizer_class": "BertTokenizer",
            "strip_accents": tokenizer.strip_accents,
            "tokenize_chinese_chars": tokenizer.tokenize_chinese_chars,
            "clean_up_tokenization_spaces": True,
        }
    else:
        config |= {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
        }
    if tokenizer.kind != BPE:  # whose file is tokenizer.json
        with atomic_write(folder / VOCABULARY_FILES[tokenizer.kind]) as file:
            file.write(tokenizer.vocabulary)
    with atomic_write(folder / LIBRARY_FILE, "w") as file:
        file.write(serialized)
    write_json(folder / SPECIAL_FILE, names)
    write_json(folder / CONFIG_FILE, config)


def _special_pieces(tokenizer: Tokenizer) -> list[str]:
    """The pieces in the order of `SPECIAL_TOKENS`; SentencePiece may name the first two its way."""
    t = tokenizer
    return [t.tokens[number] for number in (t.pad_id, t.unk_id, t.cls_id, t.sep_id, t.mask_id)]


def _serialized(tokenizer: Tokenizer) -> str:
    """The tokenizer.json, with BERT's special tokens and template."""
    from tokenizers import AddedToken, processors
    from tokenizers import Tokenizer as Library

    if tokenizer.kind == BPE:
        library = Library.from_buffer(tokenizer.vocabulary)
    elif tokenizer.kind == WORDPIECE:
        library = bert_wordpiece(
            {piece: number for number, piece in enumerate(tokenizer.tokens)},
            cased=tokenizer.cased,
            strip_accents=tokenizer.strip_accents,
            tokenize_chinese_chars=tokenizer.tokenize_chinese_chars,
        )
    else:
        library = sentencepiece_model.as_library(tokenizer)
    if tokenizer.kind != BPE:  # which has them
        pieces = _special_pieces(tokenizer)
        library.add_special_tokens([AddedToken(p, normalized=False, special=True) for p in pieces])
    library.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", tokenizer.cls_id), ("[SEP]", tokenizer.sep_id)],
    )
    serialized = library.to_str(pretty=True)
    if tokenizer.kind == BPE:  # it is its file, to which only the template comes
        template = json.loads(serialized)["post_processor"]
        whole = json.loads(tokenizer.vocabulary) | {"post_processor": template}
        serialized = json.dumps(whole, ensure_ascii=False, indent=2)
    return serialized


def differences(
    tokenizer: Tokenizer, folder: str | os.PathLike, texts: Iterable[str]
) -> list[Difference]:
    """The texts to which `folder`'s tokenizer.json gives other ids than `tokenizer`.

    "[MASK]" and the like in a text are the special tokens to both.
    """
    from tokenizers import Tokenizer as Library

    texts = list(texts)
    library = Library.from_file(str(Path(folder) / LIBRARY_FILE))
    library.no_truncation()
    library.no_padding()
    theirs = [encoding.ids for encoding in library.encode_batch_fast(texts)]
    ours = [
        [tokenizer.cls_id, *ids, tokenizer.sep_id] for ids in tokenizer.encode(texts, special=True)
    ]
    return [
        Difference(text, [tokenizer.tokens[i] for i in a], [str(library.id_to_token(i)) for i in b])
        for text, a, b in zip(texts, ours, theirs, strict=True)
        if a != b
    ]
