# shellcheck shell=bash
# The project's Python environment, made on first use and brought up to date when setup.py or
# the constraints change. For the scripts beside it:
#
#   set -euo pipefail
#   source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
#   use_environment test peers    # with these extras of setup.py; may be none
#   "$PYTHON" "$REPOSITORY/launch/pretrain.py" ...
#
# Sets REPOSITORY (absolute path of the checkout) and PYTHON (the environment's interpreter).
# The environment is REPOSITORY/.venv, or the folder that BERTJAX_VENV names. Needs a network
# only when it installs.

REPOSITORY="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"

use_environment() {
  local folder="${BERTJAX_VENV:-$REPOSITORY/.venv}"
  [[ "$folder" == /* ]] || folder="$PWD/$folder"
  PYTHON="$folder/bin/python"
  _is_up_to_date "$folder" "$@" || _install "$folder" "$@"
}

# One stamp for the package and for each extra, so that asking for fewer extras installs nothing.
_is_up_to_date() {
  local folder="$1" part
  shift
  "$PYTHON" -c "" 2>/dev/null || return 1
  for part in package "$@"; do
    cmp -s "$folder/.bertjax-$part" <(_fingerprint) || return 1
  done
}

_fingerprint() {
  echo "$REPOSITORY"
  cat "$REPOSITORY/setup.py" "$REPOSITORY"/constraints/*.txt
}

_install() {
  local folder="$1" base extras part version arguments
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
  echo "Installing bertjax${extras:+[$extras]} (about a minute)" >&2
  # --no-compile: byte code is made on first import, for the few files that are imported.
  # --use-pep517: builds seqeval, which comes as source, alike with every pip.
  "$PYTHON" -m pip install --no-compile --use-pep517 "${arguments[@]}" |
    awk '/^ *(Downloading|Using cached|Installing) / { print substr($0, 1, 100); fflush() }' >&2
  for part in package "$@"; do
    _fingerprint >"$folder/.bertjax-$part"
  done
}

# The machine's own python3 if there are tested versions for it, else another one with them, else
# a newer one.
_find_python() {
  local newest candidate version lacking=""
  for newest in 12 99; do
    for candidate in python3 python3.12 python3.11 python3.13 python3.14; do
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
    echo "error: found no Python >= 3.11; install one with venv (on Ubuntu:" \
      "apt install python3.12-venv), then run this again" >&2
  fi
  return 1
}
