#!/usr/bin/env bash
# Runs the test suite in the project's own environment, which it makes first.
#
#   bash launch/test.sh [--peers] [arguments of pytest]
#
#   --peers   install also what only some tests need: PyTorch, Transformers, TensorFlow, Apache Beam,
#             gcsfs and the TPU compiler
#   --slow    run also the tests that take more than a few seconds
#
# The tests are spread over as many processes as there are cores, four at most; --numprocesses=0
# keeps them in one, for a debugger.
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
exec "$PYTHON" -m pytest --numprocesses=logical --maxprocesses=4 --dist=worksteal \
  --durations=10 "$@"
