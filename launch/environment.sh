# shellcheck shell=bash
# Makes the project's Python environment at its first use, and updates it when setup.py or the
# constraints change. The other scripts of this folder use it so:
#
#   set -euo pipefail
#   source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
#   use_environment test peers    # extras of setup.py; there may be none
#   "$PYTHON" "$REPOSITORY/launch/pretrain.py" ...
#
# It sets REPOSITORY (absolute path of the checkout) and PYTHON (the environment's interpreter).
# The environment is REPOSITORY/.venv, or the folder that BERTJAX_VENV names; BERTJAX_PYTHON names
# the Python that makes it, if it should be another than the machine's. It needs a network only when
# it installs.

REPOSITORY="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"

use_environment() {
  local folder="${BERTJAX_VENV:-$REPOSITORY/.venv}"
  [[ "$folder" == /* ]] || folder="$PWD/$folder"
  PYTHON="$folder/bin/python"
  _is_up_to_date "$folder" "$@" || _install "$folder" "$@"
}

# The package and each extra have a stamp, so a request for fewer extras installs nothing.
_is_up_to_date() {
  local folder="$1" name
  shift
  "$PYTHON" -c "" 2>/dev/null || return 1
  for name in package "$@"; do
    cmp -s "$folder/.bertjax-$name" <(_fingerprint) || return 1
  done
}

_fingerprint() {
  echo "$REPOSITORY"
  cat "$REPOSITORY/setup.py" "$REPOSITORY"/constraints/*.txt
}

_install() {
  local folder="$1" base extras name version arguments
  shift
  if ! "$PYTHON" -m pip --version >/dev/null 2>&1; then
    base="$(_find_python)"
    echo "Making the Python environment $folder" >&2
    "$base" -m venv "$folder"
  fi
  extras="$(IFS=, && echo "$*")"
  arguments=(--editable "$REPOSITORY${extras:+[$extras]}")
  version="$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
  if [[ -f "$REPOSITORY/constraints/python$version.txt" ]]; then
    arguments+=(--constraint "$REPOSITORY/constraints/python$version.txt")
  else
    echo "No tested versions for Python $version under constraints/: installing the newest" >&2
  fi
  echo "Installing bertjax${extras:+[$extras]} (about a minute; with cuda, a few)" >&2
  # With --no-compile, byte code is made at the first import, and only for files that are imported.
  # With --use-pep517, every version of pip builds seqeval, which is source, in the same way.
  "$PYTHON" -m pip install --no-compile --use-pep517 "${arguments[@]}" |
    awk '/^ *(Downloading|Using cached|Installing) / { print substr($0, 1, 100); fflush() }' >&2
  for name in package "$@"; do
    _fingerprint >"$folder/.bertjax-$name"
  done
}

# Prints the extra "cuda" if this machine has an NVIDIA GPU that CUDA 13 can use. If it has another,
# it says on standard error what that lacks. With JAX_PLATFORMS=cpu it looks for none.
gpu_extra() {
  local ask=(nvidia-smi --id=0 "--format=csv,noheader") driver capability
  [[ "${JAX_PLATFORMS-}" != cpu ]] || return 0
  driver="$("${ask[@]}" --query-gpu=driver_version 2>/dev/null)" || return 0
  if ((${driver%%.*} < 580)); then
    echo "On the CPU: the GPU's driver is $driver, and CUDA 13 needs 580 or newer. To train on the" \
      "GPU, install such a driver and run this again" >&2
    return 0
  fi
  capability="$("${ask[@]}" --query-gpu=compute_cap 2>/dev/null)" || return 0
  if ((${capability/./} < 75)); then
    echo "On the CPU: the GPU has compute capability $capability, and CUDA 13 needs 7.5 or newer" >&2
    return 0
  fi
  echo cuda
}

# Prints the machine's python3 if there are tested versions for it; otherwise another Python with
# tested versions; otherwise a newer one.
_find_python() {
  local newest candidate version lacking="" found="found no"
  local candidates=(python3 python3.12 python3.13 python3.11 python3.14)
  if [[ "${BERTJAX_PYTHON-}" ]]; then
    candidates=("$BERTJAX_PYTHON")
    found="BERTJAX_PYTHON=$BERTJAX_PYTHON is no"
  fi
  for newest in 13 99; do
    for candidate in "${candidates[@]}"; do
      version="$("$candidate" -c "import sys; print('%d.%d' % sys.version_info[:2])
sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, $newest))" 2>/dev/null)" || continue
      if "$candidate" -c "import ensurepip, venv" >/dev/null 2>&1; then
        echo "$candidate"
        return
      fi
      lacking="${lacking:-$version}"
    done
  done
  if [[ "$lacking" ]]; then
    echo "error: Python $lacking is here without venv and ensurepip; on Debian and Ubuntu:" \
      "apt install python$lacking-venv, then run this again" >&2
  else
    echo "error: $found Python >= 3.11; install one with venv (on Ubuntu:" \
      "apt install python3.12-venv), then run this again" >&2
  fi
  return 1
}
