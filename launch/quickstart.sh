#!/usr/bin/env bash
# Runs the whole path on this machine, in minutes: it makes an environment, a corpus and a
# vocabulary, pre-trains a model, evaluates it, and fills in blanks.
#
#   bash launch/quickstart.sh [FOLDER] [--config.key=value ...]
#
# FOLDER is quickstart/ in the checkout by default; launch/pretrain.py gets the other arguments.
# A second run uses the files of the first; a stopped run continues where it was stopped. An NVIDIA
# GPU is used where there is one, but not with JAX_PLATFORMS=cpu.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
folder="$REPOSITORY/quickstart"
if [[ "${1-}" && "$1" != --* ]]; then
  folder="$1"
  shift
fi
gpu="$(gpu_extra)"
use_environment ${gpu:+"$gpu"}
launch() {
  printf '\n== %s\n' "$1"
  "$PYTHON" "$REPOSITORY/launch/$2" "${@:3}"
}

launch "A corpus: the documentation of Python and of the packages installed here" \
  prepare_corpus.py --source=installed-docs --learn_vocabulary=8000 --output="$folder/corpus"

if [[ ! "$gpu" ]]; then
  # Training on a CPU reuses freed memory: see "Memory and compilation" in docs/pretraining.md.
  export MALLOC_ARENA_MAX=1 MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1073741824
fi
launch "Pre-training: masked LM by the recipe of ModernBERT, in packed rows of 256 tokens" \
  pretrain.py --config="$REPOSITORY/configs/pretrain_modern_tiny.py" \
  --config.corpus="$folder/corpus" --workdir="$folder/run" "$@"

launch "Held-out documents" \
  evaluate.py --model="$folder/run"

launch "Blanks" \
  fill_mask.py --model="$folder/run" \
  --text="This function [MASK] a list of strings." \
  --text="Raises ValueError if the [MASK] is not valid." \
  --text="The shape of the input [MASK]."

cat <<TEXT

== Where everything is
$folder/corpus   the vocabulary, the token store, report.json
$folder/run      config.json, metrics.jsonl, loss.png, tensorboard/, checkpoints/
BERT's own recipe: launch/pretrain.py --config=configs/pretrain_tiny.py with the same corpus.
Your own text: see "Your own text" in README.md.
TEXT
