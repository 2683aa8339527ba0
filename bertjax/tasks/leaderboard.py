"""The zip file that the leaderboard of GLUE or SuperGLUE takes: the predictions of all tasks."""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write

Submitted = Mapping[tuple[str, str], tuple[str, int]]  # (task, split) -> (file, number of rows)


def write_zip(
    submitted: Submitted,
    runs: Mapping[str, Path],
    output: Path,
    checked: Callable[[Path, int], str],
) -> None:
    """Writes the zip file.

    Args:
      runs: maps each task to the folder with its predictions of the test splits.
      checked: gives the text of a file; raises InputError unless it has that number of rows.

    Raises:
      InputError: files are missing (the message names all), or a file does not belong to the
        official test set.
    """
    expected = {
        file: (Path(runs[task]) / file, rows)
        for (task, _), (file, rows) in submitted.items()
        if task in runs
    }
    names = [file for file, _ in submitted.values()]
    missing = [file for file in names if file not in expected or not expected[file][0].is_file()]
    if missing:
        raise InputError(
            f"the leaderboard wants {len(submitted)} files, and these are missing: "
            f"{', '.join(missing)}: fine-tune and predict those tasks with their test files"
        )
    contents = {file: checked(path, rows) for file, (path, rows) in expected.items()}
    with atomic_write(output) as file, zipfile.ZipFile(file, "w") as archive:
        for name, content in contents.items():
            # With a fixed date, equal predictions give equal files.
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
