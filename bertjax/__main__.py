"""The command of the installed package: bertjax PROGRAM --flag=value ...

PROGRAM is a file of launch/, as in `python launch/PROGRAM.py --flag=value ...`.
"""

import ast
import difflib
import re
import runpy
import sys
from pathlib import Path

from bertjax.base.shipped import PROGRAMS, shipped

# The programs for each purpose, in the order in which they are listed.
GROUPS = {
    "from text to a model": ("prepare_corpus", "pretrain", "finetune", "predict", "convert"),
    "how good a model is": ("evaluate", "watch", "score", "probe"),
    "try a model": ("fill_mask", "complete", "extract_features", "compare_words"),
    "several runs": ("study", "scaling", "ensemble"),
    "TPU slices": ("compile_check", "show_sharding"),
}


def main() -> None:
    """Runs a program, or lists them all."""
    programs = {file.stem: file for file in sorted(shipped(PROGRAMS).glob("*.py"))}
    name, *rest = sys.argv[1:] or ["--help"]
    if name in programs:
        sys.argv = [f"bertjax {name}", *rest]
        runpy.run_path(str(programs[name]), run_name="__main__")
        return
    if name not in ("--help", "-h", "-help"):
        alike = difflib.get_close_matches(name, programs, 1)
        meant = f" (did you mean {alike[0]}?)" if alike else ""
        print(f"error: no program {name!r}{meant}: bertjax --help lists them", file=sys.stderr)
        sys.exit(2)
    lines = ["bertjax PROGRAM --flag=value ...; bertjax PROGRAM --help lists the flags"]
    for title, names in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {each:17} {summary(programs[each])}" for each in names)]
    print("\n".join(lines))


def summary(program: Path) -> str:
    """The first sentence of a program's docstring, without its command."""
    said = ast.get_docstring(ast.parse(program.read_text(encoding="utf-8"))) or ""
    return re.split(r": |; |\n", said, maxsplit=1)[0].rstrip(".")


if __name__ == "__main__":
    main()
