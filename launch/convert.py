"""Exports a model for another library or a server.

python launch/convert.py --from=RUN --to=hf:FOLDER

--from is a run, hf:FOLDER, hf:NAME, tf1:FOLDER or elmo:FOLDER. --to=hf:FOLDER writes a folder that
from_pretrained of transformers loads; --to=stablehlo:FOLDER writes a model that runs on a server
with jax, without this package; --to=onnx:FOLDER writes what hf: does, and next to it onnx/ for ONNX
Runtime, optimum and transformers.js; --to=elmo:FOLDER writes an ELMo for bilm-tf and AllenNLP;
--to=peft:FOLDER writes the adapter that a run of pre-training has trained. A run of ELECTRA is its
discriminator; --part=generator takes the other model of it.
"""

from absl import flags

from bertjax.programs import commandline

_FROM = flags.DEFINE_string("from", None, "RUN, hf:FOLDER, hf:NAME, tf1:FOLDER or elmo:FOLDER.")
_TO = flags.DEFINE_string("to", None, "hf:, onnx:, stablehlo:, elmo:, peft:FOLDER; not there yet.")
_PART = flags.DEFINE_string("part", "", "A part of the model of a run, such as generator.")
_PUSH = flags.DEFINE_string("push", "", "USER/NAME on the Hugging Face hub, which gets the folder.")
flags.mark_flags_as_required(["from", "to"])


def main(_) -> None:
    from bertjax.programs import convert

    convert.run(_FROM.value, _TO.value, _PART.value, _PUSH.value)


if __name__ == "__main__":
    commandline.run(main)
