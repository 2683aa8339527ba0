"""Reads and writes the tokenizer files of `tokenizers` and transformers.

It reads a Hugging Face folder (tokenizer.json of the library `tokenizers`, or the files of the
vocabulary, with tokenizer_config.json), a release of Google's (vocab.txt alone), and what it wrote.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write, write_json
from bertjax.interop import json_files, library_folder, sentencepiece_model
from bertjax.interop.json_files import read_optional
from bertjax.interop.library_folder import LIBRARY_FILE, PLAIN_CLASSES
from bertjax.interop.named_tokens import (
    ADDED_FILE,
    CONFIG_FILE,
    SPECIAL_FILE,
    NamedTokens,
    content_of,
    first_of,
)
from bertjax.text.library_file import refuse_others, template_of
from bertjax.text.special_tokens import BERT
from bertjax.text.template import Template, TokenSequence
from bertjax.text.tokenizer import (
    DESCRIPTION_FILE,
    LIBRARY_KINDS,
    MOSES_BPE,
    SENTENCEPIECE,
    VOCABULARY_FILES,
    WORDPIECE,
    Tokenizer,
)
from bertjax.text.wordpiece import read_lines

# These classes build one tokenizer, anew from tokenizer_config.json; the first is written.
_BERT_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
_XLNET_FILE = "spiece.model"
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")  # of an added token

# Rules of normalization: name in tokenizer_config.json -> name in tokenizer.json.
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
    """A text that a folder's tokenizer splits into other pieces, with special tokens."""

    text: str
    tokens: list[str]
    expected: list[str]  # the tokens of the folder's tokenizer


# ------------------------------------------------------------------------------- reading


def read_tokenizer(folder: str | os.PathLike) -> Tokenizer:
    """Reads the tokenizer of a Hugging Face folder, or of a release of Google's.

    tokenizer_config.json says how text is normalized (lower case, accents, Chinese characters), as
    for transformers' BertTokenizer. What it does not say is taken from tokenizer.json. Without
    either, a vocabulary with upper case is cased. If a folder has both vocab.txt and
    tokenizer.json, they must hold the same pieces.

    Raises:
      InputError: no tokenizer there; a damaged one; another kind than BERT's WordPiece, byte-level
        BPE, Gemma's or GPT's BPE, unigram, or a SentencePiece written here; a WordPiece with
        special tokens under other names than BERT's, or with added tokens without ids; another kind
        with added tokens outside its vocabulary.
    """
    folder = Path(folder)
    named = NamedTokens.read(folder)
    library = _read_library(folder / LIBRARY_FILE)
    model_file = folder / VOCABULARY_FILES[SENTENCEPIECE]
    if model_file.exists():
        cased = not named.config.get("do_lower_case", False)
        template = None if library is None else _template(folder / LIBRARY_FILE, library)
        model, origin = model_file.read_bytes(), str(model_file)
        tokenizer = Tokenizer(SENTENCEPIECE, model, origin, cased=cased, template=template)
    elif (folder / VOCABULARY_FILES[WORDPIECE]).exists() or not (
        kind := library_folder.kind_of(folder, library)
    ):
        tokenizer = _read_wordpiece(named, library)
    else:
        return library_folder.read(named, kind, library)
    if library is not None:
        pieces = _pieces(folder / LIBRARY_FILE, library)
        known = {*pieces, *BERT.values()}
        pieces += [name for name in tokenizer.added if name not in known]
        _check_same_pieces(folder, tokenizer, pieces)
    return tokenizer


def _read_wordpiece(named: NamedTokens, library: dict[str, Any] | None) -> Tokenizer:
    folder, vocabulary_file = named.folder, named.folder / VOCABULARY_FILES[WORDPIECE]
    named.check_class((*_BERT_CLASSES, *PLAIN_CLASSES))
    rules, nfc = _rules_in(named.config, {name: name for name in _RULES}), False
    if library is not None:
        library, nfc = _without_nfc(library)
        read = {
            f"{component}.{key}": ((library.get(component) or {}).get(key), (value,))
            for (component, key), value in _REQUIRED.items()
        }
        refuse_others(read, "BERT's WordPiece", str(folder / LIBRARY_FILE))
        library_rules = _rules_in(library["normalizer"], _RULES)
        rules = library_rules if named.class_name in PLAIN_CLASSES else library_rules | rules
    _check_roles(named)
    if vocabulary_file.exists():
        origin, vocabulary = vocabulary_file, vocabulary_file.read_bytes()
    elif library is not None:
        origin = folder / LIBRARY_FILE
        vocabulary = "".join(f"{piece}\n" for piece in _pieces(origin, library)).encode()
    else:
        raise InputError(
            f"{folder}: no {vocabulary_file.name} and no {LIBRARY_FILE}: download the tokenizer's "
            "files into this folder, next to the weights."
        )
    lower_case = rules.pop("do_lower_case", None)
    cased = None if lower_case is None else not lower_case
    added = _added_tokens(named, library or {}, read_lines(vocabulary, str(origin)))
    return Tokenizer(
        WORDPIECE, vocabulary, str(origin), cased=cased, nfc=nfc, added_tokens=added, **rules
    )


def _without_nfc(library: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The file without a first step to Unicode's form NFC, and whether it has one."""
    match library.get("normalizer"):
        case {"type": "Sequence", "normalizers": [{"type": "NFC"}, second]}:
            return library | {"normalizer": second}, True
    return library, False


def _rules_in(settings: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """The rules in a file. null is no rule; but for strip_accents it means: as do_lower_case."""
    rules = {name: settings[key] for name, key in keys.items() if key in settings}
    return {n: rule for n, rule in rules.items() if rule is not None or n == "strip_accents"}


def _read_library(path: Path) -> dict[str, Any] | None:
    """Reads a tokenizer.json, which must have a model; None without the file."""
    library = read_optional(path, json_files.LIBRARY)
    described = path.with_name(DESCRIPTION_FILE)
    if library is None and described.exists():
        raise InputError(
            f"{described}: is of a run or corpus of bertjax: name their folder without hf:"
        )
    of_xlnet = path.with_name(_XLNET_FILE)
    if library is None and of_xlnet.exists():
        raise InputError(
            f"{of_xlnet}: without {path.name}, from which bertjax reads such a tokenizer: save it "
            "again with transformers (AutoTokenizer.from_pretrained, then save_pretrained)"
        )
    if library is not None and (library.get("model") or {}).get("vocab") is None:
        raise InputError(
            f"{path}: no model with a vocabulary in it, as the library tokenizers writes it: "
            "download it again"
        )
    return library


def _check_roles(named: NamedTokens) -> None:
    for file, tokens in ((CONFIG_FILE, named.config), (SPECIAL_FILE, named.special)):
        for role, expected in BERT.items():
            name = content_of(tokens.get(f"{role}_token") or expected)
            if name != expected:
                raise InputError(
                    f"{named.folder / file}: {role}_token is {name!r}, where BERT has {expected}: "
                    "bertjax knows only BERT's names in a WordPiece. Rename it in this folder's "
                    "files; ids stay as they are."
                )


def _added_tokens(
    named: NamedTokens, library: dict[str, Any], pieces: Sequence[str]
) -> list[dict[str, Any]]:
    """The tokens that a WordPiece's owner added, by their ids, which follow the vocabulary's."""
    of_library = library.get("added_tokens") or ()
    tokens_of = {LIBRARY_FILE: of_library} | named.added()
    numbered = {t["content"]: t["id"] for t in of_library if isinstance(t, dict) and "id" in t}
    ids = {piece: number for number, piece in enumerate(pieces)}
    places: dict[str, str] = {}
    for file, of_file in ({LIBRARY_FILE: numbered} | named.added_ids()).items():
        for name, number in of_file.items():
            places.setdefault(name, file)
            if ids.setdefault(name, number) != number:
                raise InputError(
                    f"{named.folder / file}: the added token {name!r} has id {number}, and "
                    f"{ids[name]} in another file: remove the file that is not this model's"
                )
    found: dict[str, dict[str, Any]] = {}
    for file, tokens in tokens_of.items():
        if extra := [name for name in map(content_of, tokens) if name not in ids]:
            raise InputError(
                f"{named.folder / file}: {len(extra)} added tokens ({first_of(extra)}) without an "
                "id: save the tokenizer again with transformers"
            )
        for token in tokens:
            listed = isinstance(token, str) and file != ADDED_FILE  # among the special tokens
            default = {"special": listed, "normalized": not listed}
            given = default if isinstance(token, str) else token
            found.setdefault(content_of(token), {}).update(
                {flag: given[flag] for flag in _FLAGS if flag in given}
            )
    known = {*pieces, *BERT.values()}
    new = sorted(found.keys() - known, key=ids.__getitem__)
    for number, name in enumerate(new, start=len(pieces)):
        if ids[name] != number:
            raise InputError(
                f"{named.folder / places[name]}: the added token {name!r} has id {ids[name]}, "
                f"where the next is {number}: ids must follow the vocabulary's without gaps"
            )
    in_order = [*(name for name in found if name in known - {*BERT.values()}), *new]
    return [{"content": name} | dict.fromkeys(_FLAGS, False) | found[name] for name in in_order]


def _pieces(path: Path, library: dict[str, Any]) -> list[str]:
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


def _template(path: Path, library: dict[str, Any]) -> Template | None:
    ids = {piece: number for number, piece in enumerate(_pieces(path, library))}
    return template_of(library, ids, str(path))


def _check_same_pieces(folder: Path, tokenizer: Tokenizer, pieces: Sequence[str]) -> None:
    name = VOCABULARY_FILES[tokenizer.kind]
    for number, (here, there) in enumerate(zip(tokenizer.tokens, pieces, strict=False)):
        if here != there:
            raise InputError(
                f"{folder}: id {number} is {here!r} in {name} and {there!r} in {LIBRARY_FILE}: "
                "remove the file that is not this model's."
            )
    if len(pieces) != tokenizer.vocabulary_size:
        raise InputError(
            f"{folder}: {tokenizer.vocabulary_size} pieces in {name} and {len(pieces)} in "
            f"{LIBRARY_FILE}: remove the file that is not this model's."
        )


# ------------------------------------------------------------------------------- writing


def write_tokenizer(
    tokenizer: Tokenizer,
    folder: str | os.PathLike,
    max_length: int,
    *,
    token_types: bool = True,
    pads_left: bool = False,
) -> None:
    """Writes what transformers' AutoTokenizer and `tokenizers.Tokenizer.from_file` load.

    It writes tokenizer.json, tokenizer_config.json and special_tokens_map.json; for a WordPiece
    also vocab.txt, and for a SentencePiece sentencepiece.model, which only `read_tokenizer` reads.
    XLM's BPE has vocab.json and merges.txt in place of tokenizer.json, which cannot hold Moses.
    Ids are those of `tokenizer.encode(texts, special=True)`, in the tokenizer's template.

    Args:
      max_length: the most tokens that the model takes; transformers truncates to it on request.
      token_types: whether the model takes token_type_ids.
      pads_left: whether transformers puts padding before the text.
    """
    folder = Path(folder)
    serialized = "" if tokenizer.kind == MOSES_BPE else _serialized(tokenizer)
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    # The keys of transformers' files, such as "cls_token".
    names = {f"{role}_token": name for role, name in tokenizer.names.items()}
    config: dict[str, Any] = {
        "do_lower_case": not tokenizer.cased,
        "model_max_length": max_length,
        "model_input_names": inputs if token_types else [inputs[0], inputs[2]],
        **({"padding_side": "left"} if pads_left else {}),
        **names,
    }
    if tokenizer.kind == WORDPIECE:
        config |= {
            # transformers makes a BertTokenizer anew, without the step to NFC.
            "tokenizer_class": "PreTrainedTokenizerFast" if tokenizer.nfc else _BERT_CLASSES[0],
            "strip_accents": tokenizer.strip_accents,
            "tokenize_chinese_chars": tokenizer.tokenize_chinese_chars,
            "clean_up_tokenization_spaces": True,
        }
    else:
        config |= {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
        }
    if tokenizer.added_tokens:
        config["added_tokens_decoder"] = {
            str(token.pop("id")): token for token in tokenizer.description()["added_tokens"]
        }
    if tokenizer.kind == MOSES_BPE:
        config |= library_folder.write_xlm(tokenizer, folder)
    elif tokenizer.kind in LIBRARY_KINDS:  # whose file is tokenizer.json
        if tokenizer.description()["pre_tokenizer"].get("add_prefix_space"):
            config["add_prefix_space"] = True  # transformers 4 takes it from here
    else:
        with atomic_write(folder / VOCABULARY_FILES[tokenizer.kind]) as file:
            file.write(tokenizer.vocabulary)
    if serialized:
        with atomic_write(folder / LIBRARY_FILE, "w") as file:
            file.write(serialized)
    write_json(folder / SPECIAL_FILE, names)
    write_json(folder / CONFIG_FILE, config)


def _serialized(tokenizer: Tokenizer) -> str:
    from tokenizers import AddedToken

    if tokenizer.kind == SENTENCEPIECE:
        library = sentencepiece_model.as_library(tokenizer)
        library.add_special_tokens(
            [AddedToken(name, normalized=False, special=True) for name in tokenizer.names.values()]
        )
        content = json.loads(library.to_str())
    else:
        content = tokenizer.description()
    content["post_processor"] = _post_processor(tokenizer)
    return json.dumps(content, ensure_ascii=False, indent=2)


def _post_processor(tokenizer: Tokenizer) -> dict[str, Any]:
    texts = {-1: "A", -2: "B"}  # no token has these ids
    used: dict[str, Any] = {}

    def laid_out(sequence: TokenSequence) -> list[dict[str, Any]]:
        items = []
        for token, its_type in zip(*sequence, strict=True):
            if token in texts:
                items.append({"Sequence": {"id": texts[token], "type_id": its_type}})
            else:
                name = tokenizer.tokens[token]
                used[name] = {"id": name, "ids": [token], "tokens": [name]}
                items.append({"SpecialToken": {"id": name, "type_id": its_type}})
        return items

    template = tokenizer.template
    single, pair = laid_out(template.sequence([-1])), laid_out(template.sequence([-1], [-2]))
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": used}


def differences(
    tokenizer: Tokenizer, folder: str | os.PathLike, texts: Iterable[str]
) -> list[Difference]:
    """The texts to which `folder`'s tokenizer.json gives other ids than `tokenizer`.

    Both read "[MASK]" and the like in a text as special tokens. XLM's BPE has other files, which
    are read as `read_tokenizer` does.
    """
    from tokenizers import Tokenizer as Library

    texts = list(texts)
    own = _pieces_of(tokenizer, texts)
    if tokenizer.kind == MOSES_BPE:
        other = _pieces_of(read_tokenizer(folder), texts)
    else:
        library = Library.from_file(str(Path(folder) / LIBRARY_FILE))
        library.no_truncation()
        library.no_padding()
        # `id_to_token` gives some added tokens in lower case.
        names = {number: piece for piece, number in library.get_vocab().items()}
        other = [
            [names[each] for each in encoding.ids] for encoding in library.encode_batch_fast(texts)
        ]
    return [Difference(text, a, b) for text, a, b in zip(texts, own, other, strict=True) if a != b]


def _pieces_of(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[str]]:
    """The pieces of each text in the tokenizer's template, in which "[MASK]" means itself."""
    encoded = tokenizer.encode(texts, special=True)
    return [
        [tokenizer.tokens[each] for each in tokenizer.template.sequence(ids).ids] for ids in encoded
    ]
