#!/usr/bin/env bash
# Runs the whole test suite in the project's own environment, which it makes first.
#
#   bash launch/test.sh [--peers] [arguments of pytest]
#
#   --peers   install also what only some tests need: PyTorch, Transformers, TensorFlow, Apache Beam,
#             gcsfs and the TPU compiler
set -euo pipefail

# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

extras=(test)
if [[ "${1-}" == --peers ]]; then
  extras+=(peers beam tf1 gcs tpu)
  shift
fi
use_environment "${extras[@]}"
cd "$REPOSITORY"
exec "$PYTHON" -m pytest "$@"
