"""Extracts a trained model's vectors of texts, without fine-tuning (section 5.3)."""

from pathlib import Path

from bertjax.base.checks import input_error_at
from bertjax.base.files import local_folder
from bertjax.inference.features.compute import Extractor, Options
from bertjax.inference.features.extract import extract
from bertjax.inference.features.result import check_output
from bertjax.runs.source import open_model
from bertjax.training.memory import less_memory


@less_memory("set --batch_tokens=4096 (then 2048, and so on)")
def run(model: str, source: str, output: str, options: Options) -> None:
    """Writes the features of all texts of a file, in the order of the texts.

    Finished shards are in OUTPUT.parts until all are done; the same command continues with them.
    Options that are None are the model's own (`Options.of_model`).

    Raises:
      InputError: the model or the file is missing; options do not fit the model; a text is too
        long; the output exists, or shards of another command exist.
    """
    check_output(local_folder(output))
    pretrained = open_model(model)
    print(pretrained.summary())
    extractor = Extractor(pretrained, options.of_model(pretrained))
    print(f"features: {extractor.in_words}")
    extract(extractor, source, Path(output))


def parse_layers(text: str) -> tuple[int, ...]:
    """Parses layers such as "-4,-3,-2,-1"; raises InputError for another text."""
    with input_error_at(
        f"--layers={text}", hint="write numbers with commas between them: -1, or -2,-1"
    ):
        return tuple(int(layer) for layer in text.split(","))
