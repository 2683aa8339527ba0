"""The command of the installed package: bertjax PROGRAM --flag=value ...

PROGRAM is a file of launch/, as in `python launch/PROGRAM.py --flag=value ...`.
"""

import ast
import difflib
import runpy
import sys

from bertjax.base.shipped import PROGRAMS, shipped


def main() -> None:
    """Runs a program, or lists them all."""
    programs = {file.stem: file for file in sorted(shipped(PROGRAMS).glob("*.py"))}
    name, *rest = sys.argv[1:] or ["--help"]
    if name in programs:
        sys.argv = [f"bertjax {name}", *rest]
        runpy.run_path(str(programs[name]), run_name="__main__")
        return
    asked = name in ("--help", "-h", "-help")
    if not asked:
        alike = difflib.get_close_matches(name, programs, 1)
        meant = f" (did you mean {alike[0]}?)" if alike else ""
        print(f"error: no program {name!r}{meant}: bertjax --help lists them", file=sys.stderr)
        sys.exit(2)
    print("bertjax PROGRAM --flag=value ...; bertjax PROGRAM --help has the flags\n")
    for each, file in programs.items():
        said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        print(f"  {each:17} {said.partition(': python')[0].partition(chr(10))[0]}")


if __name__ == "__main__":
    main()
