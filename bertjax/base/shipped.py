"""Finds the configs and the programs: in the checkout, or in the installed package."""

import difflib
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
CONFIGS, PROGRAMS = "configs", "launch"
_PREFIXES = ("", "pretrain_", "finetune_", "studies/")


def shipped(folder: str) -> Path:
    """A folder that comes with the package, `CONFIGS` or `PROGRAMS`."""
    installed = PACKAGE / folder
    return installed if installed.is_dir() else PACKAGE.parent / folder


def config_path(name: str) -> str:
    """The file of a config or study, which may be given by its name alone; ":WORD" may follow.

    A shipped file is "configs/pretrain_tiny.py", "pretrain_tiny" or "tiny". A file that exists, or
    that is not shipped, keeps its name.
    """
    path, colon, word = name.partition(":")
    if not path or Path(path).exists():
        return name
    stem = path.removeprefix(f"{CONFIGS}/").removesuffix(".py")
    found = [shipped(CONFIGS) / f"{prefix}{stem}.py" for prefix in _PREFIXES]
    existing = [str(file) for file in found if file.is_file()]
    return f"{existing[0]}{colon}{word}" if existing else name


def near_configs(name: str) -> list[str]:
    """The shipped config whose name is most like a wrong one, as --config takes it; or none."""
    files = [file.stem for file in sorted(shipped(CONFIGS).glob("*.py"))]
    short = {stem.removeprefix("pretrain_"): stem for stem in files}
    wrong = Path(name).name.removesuffix(".py")
    return difflib.get_close_matches(wrong, [*short, *files], 1)
