"""Texts at the edges of BERT's rules, each with its pieces in a small uncased vocabulary."""

from bertjax.text.special_tokens import SPECIAL_TOKENS

_CHARACTERS = (
    "abehlnortuwxz0159.,![](){}'\u03c3\u0438\u05e9\u05dc\u05d5\u05dd\u4e2d\u6587\U0001f600"
)
PIECES = [
    *SPECIAL_TOKENS,
    *_CHARACTERS,
    *(f"##{c}" for c in _CHARACTERS),
    *"hello world cafe naive mask sep un ##believable the ##s strasse stra\u00dfe".split(),
    *["\u1112\u1161\u11ab", "##\u1100\u116e\u11a8", "\u2019", "\u2026", "\u20ac", "##\u0308"],
]

# Text, and the pieces it has when "[MASK]" and the like are special tokens.
HARD_TEXTS: dict[str, str] = {
    "": "",
    "   ": "",
    "\t\n \r": "",
    "\u00a0\u2003\u3000": "",
    "Hello World": "hello world",
    "unbelievables": "un ##believable ##s",
    "xun'believable": "x ##u ##n ' [UNK]",
    # accents, combining marks
    "caf\u00e9 cafe\u0301 CAF\u00c9": "cafe cafe cafe",
    "na\u00efve nai\u0308ve": "naive naive",
    "\u0301": "",
    "a\u0301\u0323\u0308": "a",
    "Stra\u00dfe STRASSE": "stra\u00dfe strasse",
    "\u0392 \u03c3\u03a3": "[UNK] \u03c3 ##\u03c3",
    # Han characters stand alone; Hangul is taken apart into jamo; kana stay in words
    "\u4e2d\u6587": "\u4e2d \u6587",
    "a\u4e2db": "a \u4e2d b",
    "\ud55c\uad6d": "\u1112\u1161\u11ab ##\u1100\u116e\u11a8",
    "\u3053\u3093": "[UNK]",
    "\U00020000": "[UNK]",
    # control, format and zero-width characters
    "hel\x00lo": "hello",
    "hel\x07lo\x7f": "hello",
    "hel\u200blo": "hello",
    "hel\u200dlo\u200e": "hello",
    "\ufeffhello": "hello",
    "hel\u00adlo": "hello",
    "hel\ufffdlo": "hello",
    "a\x1cb\x85l": "a ##b ##l",
    # spaces of other kinds
    "hello\u00a0world": "hello world",
    "hello\u2028world": "hello world",
    "hello\u2029world\u3000the": "hello world the",
    "hello\tworld\r\nthe": "hello world the",
    # emoji, and one of several characters
    "\U0001f600": "\U0001f600",
    "a\U0001f600": "a ##\U0001f600",
    "\U0001f468\u200d\U0001f469": "[UNK]",
    "\u2764\ufe0f": "[UNK]",
    # right-to-left text, with a direction mark and a point
    "\u05e9\u05dc\u05d5\u05dd": "\u05e9 ##\u05dc ##\u05d5 ##\u05dd",
    "\u202b\u05e9\u05b8\u05dc\u202c": "\u05e9 ##\u05dc",
    "\u0645\u0631\u062d\u0628\u0627": "[UNK]",
    # punctuation
    "(hello)...world!": "( hello ) . . . world !",
    "hello\u2019s\u2026": "hello \u2019 [UNK] \u2026",
    "\u20ac5.09$": "\u20ac ##5 . 0 ##9 [UNK]",
    # words of 100 and 101 characters
    "a" * 100: "a" + " ##a" * 99,
    "a" * 101: "[UNK]",
    "\u0301".join("a" * 100): "a" + " ##a" * 99,
    # special tokens as written
    "[MASK]": "[MASK]",
    "the [MASK]s": "the [MASK] [UNK]",
    "[mask] [ MASK ]": "[ mask ] [ mask ]",
    "[[MASK]][SEP]": "[ [MASK] ] [SEP]",
    "[CLS]hello[PAD][UNK]": "[CLS] hello [PAD] [UNK]",
    "[MASK": "[ mask",
    "[MA\u0301SK]": "[ mask ]",
}
