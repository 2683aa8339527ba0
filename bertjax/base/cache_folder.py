"""The folder of what can be made again; JAX keeps the programs in it that it has compiled."""

import os
import sys
from pathlib import Path

_MOST_BYTES = 4 << 30  # of compiled programs; those that were not used for longest are deleted


def cache_folder() -> Path:
    """$BERTJAX_CACHE, by default ~/.cache/bertjax."""
    return Path(os.environ.get("BERTJAX_CACHE") or Path.home() / ".cache" / "bertjax")


def compiled_folder() -> Path:
    """Where the programs of `launch/` keep what JAX has compiled."""
    return cache_folder().absolute() / "compiled"


def keep_compiled_programs() -> None:
    """Lets JAX read compiled programs from earlier starts; call it before JAX is imported.

    JAX's variables take precedence: JAX_COMPILATION_CACHE_DIR is another folder,
    JAX_ENABLE_COMPILATION_CACHE=false switches it off. JAX finds a program by its code, the
    versions of jaxlib and of the device's runtime, XLA's flags, and the kind of the device; on a
    CPU, by its instructions, too.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        folder = compiled_folder()
    except RuntimeError as error:  # the user has no home
        return _warn(str(error))
    # JAX makes the folder when it has compiled something.
    there = next(place for place in (folder, *folder.parents) if os.path.exists(place))
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        return _warn(f"{there} is not a folder that this user may write to")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(_MOST_BYTES))


def _warn(why: str) -> None:
    print(
        f"warning: {why}: every start compiles its programs anew; set BERTJAX_CACHE to a folder",
        file=sys.stderr,
    )
