#!/usr/bin/env bash
# Pre-trains or fine-tunes on a Cloud TPU slice: it makes the slice, trains there and deletes it.
#
#   bash launch/tpu_vm.sh COMMAND --name=NAME [--flag=value ...] [-- ARGUMENTS]
#
# COMMAND is one of
#   up      does create, setup and run, and watches the run; after a preemption it repeats them,
#           until the run is complete; then it deletes the slice
#   create  checks that a pre-training fits and that the corpus and the buckets exist; asks for the
#           slice (a queued resource) and waits for it
#   setup   sends the checkout's tracked files to every host, installs them with the tested
#           versions, copies the corpus to the host's disk, and mounts the share
#   run     starts the training on every host; it continues when this command ends
#   logs    follows the log of host 0 and then shows the end of every log whose run failed;
#           with --all it shows the end of every log at once
#   status  shows the state of the queued resource, of its node, and of the run on each host
#   ssh     opens a shell on a host, or runs the command after "--" there
#   delete  deletes the slice; if there is no slice, this is no error
#
# Flags:
#   --name=NAME              the slice's name: lower-case letters, digits and hyphens
#   --project=, --zone=      as in gcloud; by default gcloud's own settings
#   --type=, --chips=        v2 v3 v4 v5e v5p v6e, and how many        up create run
#   --spot                   cheaper, but the cloud may take it away   up create
#   --wait=MINUTES           for the slice; 0, the default: no limit   up create
#   --config=FILE            a tracked file of the checkout            up create run
#   --corpus=gs://BUCKET/DIR a folder of launch/prepare_corpus.py      up create setup
#   --workdir=gs://BUCKET/RUN the folder of the run                    up create run
#   --share=ADDRESS:/NAME    of NFS, for fine-tuning                   up setup
#   --worker=N               the host's number; 0 by default           ssh
#   --all                    every host                                logs
#   --keep                   the slice is not deleted at the end       up
#   --dry_run                every command is printed, and none is run
#
# A config whose file is called finetune_*.py is for launch/finetune.py, every other one for
# launch/pretrain.py. For fine-tuning, --corpus is the folder of the task's files (config.data), and
# --workdir=/mnt/share/RUN lies on the share, which every host has as /mnt/share (a Filestore).
#
# ARGUMENTS are for that program: --config.key=value or its other flags. Every gcloud command
# is printed on standard error before it runs; a repeated question about states only the first time.
# The exit code is 0 if the work is done, 2 for an error that you can correct, and 1 for an error of
# the cloud. The guide is docs/tpu.md.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

readonly SECONDS_BETWEEN_LOOKS=60
readonly RETRIES=3 # the most attempts in a row at one command that fails
# The command for this file on a host: see "On each host".
readonly HOST="bash bertjax/code/launch/tpu_vm.sh host"
# Where every host has the share: a run there has one path, for --workdir and config.init_from.
readonly SHARE=/mnt/share

command="" name="" project="" zone="" type="" chips="" spot="" wait=0 config="" corpus=""
workdir="" share="" worker=0 all="" keep="" dry_run=""
program=pretrain # or finetune: of launch/
arguments=() # the words after "--"
place=()     # --project and --zone, for gcloud
scratch=""   # a folder of this process
left=""      # "yes" if the slice exists

main() {
  if [[ "${1-}" == host ]]; then
    "host_$2" "${@:3}"
    return
  fi
  read_flags "$@"
  check_flags
  [[ "$dry_run" ]] || prepare_here
  "do_$command"
  [[ -z "$dry_run" ]] || say "dry run: nothing was done"
}

# ------------------------------------------------------------------------------------ flags

read_flags() {
  command="${1-}"
  case "$command" in
    up | create | setup | run | logs | status | ssh | delete) shift ;;
    "" | -h | --help) usage ;;
    *) die "$command: no such command: up, create, setup, run, logs, status, ssh or delete" ;;
  esac
  local flag
  while (($#)); do
    flag="${1%%=*}"
    case "$1" in
      --) arguments=("${@:2}") && return ;;
      -h | --help) usage ;;
      --spot | --all | --keep | --dry_run) printf -v "${1#--}" yes ;;
      --name=* | --project=* | --zone=* | --type=* | --chips=* | --wait=* | --config=* | \
        --corpus=* | --workdir=* | --share=* | --worker=*)
        printf -v "${flag#--}" %s "${1#*=}"
        ;;
      *) die "$1: no such flag, or without its =value (--help shows them all)" ;;
    esac
    shift
  done
}

usage() {
  sed -n '2,/^set /{ /^set /d; s/^# \{0,1\}//; p; }' "${BASH_SOURCE[0]}"
  exit
}

check_flags() {
  need name
  [[ "$name" =~ ^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$ ]] ||
    die "--name=$name: lower-case letters, digits and hyphens; a letter first, at most 63"
  [[ "$wait" =~ ^[0-9]{1,6}$ ]] || die "--wait=$wait: not a number of minutes"
  wait=$((10#$wait)) # without 10#, bash reads 010 as 8, and 08 as an error
  [[ "$worker" =~ ^[0-9]{1,4}$ ]] || die "--worker=$worker: not the number of a host"
  corpus="${corpus%/}" workdir="${workdir%/}" share="${share%/}"
  check_address corpus "$corpus"
  [[ -z "$project" ]] || place+=("--project=$project")
  [[ -z "$zone" ]] || place+=("--zone=$zone")
  case "$command" in
    up) need type chips config corpus workdir ;;
    create) need type chips ;;
    setup) need corpus ;;
    run) need type chips config workdir ;;
  esac
  [[ -z "$type$chips" ]] || translate
  [[ -z "$config" ]] || find_config
  find_program
  [[ "$command" == ssh ]] || check_sources
}

need() {
  local flag
  for flag in "$@"; do
    [[ "${!flag}" ]] || die "$command needs --$flag (--help shows what it is)"
  done
}

check_address() { # FLAG VALUE
  [[ -z "$2" || "$2" =~ ^gs://[^/]+/. ]] ||
    die "--$1=$2: write gs://BUCKET/FOLDER: all hosts must reach it"
}

# Sets the slice's name in Cloud TPU (by its documentation of TPU software versions and of each
# type), its name in JAX, and the number of its hosts.
translate() {
  local shapes pair
  case "$type" in
    v2 | v3) shapes="4:2x2 16:4x4 64:8x8 128:8x16 256:16x16" ;;
    v4 | v5p) shapes="4:2x2x1 8:2x2x2 16:2x2x4 32:2x4x4 64:4x4x4 128:4x4x8 256:4x8x8" ;;
    v5e | v6e) shapes="1:1x1 4:2x2 8:2x4 16:4x4 32:4x8 64:8x8 128:8x16 256:16x16" ;;
    *) die "--type=$type: no such type: v2, v3, v4, v5e, v5p or v6e" ;;
  esac
  topology=""
  for pair in $shapes; do
    [[ "${pair%:*}" != "$chips" ]] || topology="$type:${pair#*:}"
  done
  # shellcheck disable=SC2001  # sed has a pattern here, bash only a string
  [[ "$topology" ]] || die "--chips=$chips: $type has slices of $(sed 's/:[^ ]*//g' <<<"$shapes")"
  case "$type" in # v2 to v4 and v5p are counted in TensorCores, two a chip
    v2 | v3 | v4) accelerator="$type-$((2 * chips))" runtime=tpu-ubuntu2204-base ;;
    v5e) accelerator="v5litepod-$chips" runtime=v2-alpha-tpuv5-lite ;;
    v5p) accelerator="v5p-$((2 * chips))" runtime=v2-alpha-tpuv5 ;;
    v6e) accelerator="v6e-$chips" runtime=v2-alpha-tpuv6e ;;
  esac
  # A host has four chips, but one host has all eight of a v5e or v6e.
  hosts=$((chips < 4 ? 1 : chips / 4))
  [[ "$type-$chips" != v[56]e-8 ]] || hosts=1
}

# Sets config to the file's path inside the checkout, which is the same on the hosts.
find_config() {
  local name="${config%%:*}" file inside
  # From any folder, and by the names that the programs take.
  for file in "$name" "$REPOSITORY/$name" \
    "$REPOSITORY/configs/"{,pretrain_,finetune_}"${name%.py}.py"; do
    [[ ! -f "$file" ]] || break
  done
  [[ -f "$file" ]] || die "--config=$config: no such file, here or in $REPOSITORY"
  inside="$(git -C "$REPOSITORY" ls-files --error-unmatch -- "$(realpath "$file")" 2>/dev/null)" ||
    die "--config=$config: not a tracked file of $REPOSITORY, and only those are sent: git add it"
  config="$inside${config#"$name"}"
}

# Sets program, and checks where its run lies. Without a config, as at setup, the share says it.
find_program() {
  local file="${config%%:*}"
  file="${file##*/}"
  if [[ "$file" != finetune_* && ("$config" || -z "$share") ]]; then
    [[ -z "$share" ]] ||
      die "--share=$share: only for fine-tuning, and $config is not called finetune_*.py:" \
        "leave it out, and write --workdir=gs://BUCKET/RUN"
    check_address workdir "$workdir"
    return
  fi
  program=finetune
  case "$command" in up | setup) need share ;; esac
  [[ -z "$share" || "$share" =~ ^[^/:]+:/[^/]+ ]] ||
    die "--share=$share: write ADDRESS:/NAME, a share of NFS (docs/tpu.md says how to make one)"
  [[ -z "$workdir" || "$workdir" == "$SHARE"/* ]] ||
    die "--workdir=$workdir: write $SHARE/RUN, on the --share: a fine-tuning replaces the folder" \
      "of its best model by a rename, which a bucket cannot do, and all hosts must see it"
}

# Refuses weights in a folder of this machine: the hosts have only what is sent, and buckets.
check_sources() {
  local argument path
  for argument in "${arguments[@]}"; do
    case "$argument" in
      --config.init_from=* | --config.init_from.*=* | --config.decay_from=*) path="${argument#*=}" ;;
      *) continue ;;
    esac
    case "$path" in hf:* | tf1:* | elmo:*) path="${path#*:}" ;; esac
    path="${path%%[@#]*}" # without a step or layers
    [[ ! -e "$path" || "$program $path" == "finetune $SHARE"/* ]] ||
      die "$argument: lies on this machine, and no host has it: name a run in a bucket (gcloud" \
        "storage cp -r RUN gs://BUCKET/RUN), or hf:USER/NAME of the hub, where launch/convert.py" \
        "--push puts a model"
  done
}

prepare_here() {
  command -v gcloud >/dev/null ||
    die "gcloud is not installed: https://cloud.google.com/sdk/docs/install"
  scratch="$(mktemp -d)"
  trap leave EXIT
  trap 'exit 130' INT # without it, an interrupt would end gcloud only, and this would continue
}

# --------------------------------------------------------------------------- the loop of "up"

do_up() {
  local newest="" failures=0
  local set_up="" # "yes" if the existing slice is set up
  local asked=""  # "yes" if a slice was requested and the request was accepted
  look
  case "$pod" in
    none) check_before_asking ;;
    unknown) fail "gcloud could not say whether $name is there (above)" ;;
    *) asked=yes ;;
  esac
  find_newest_checkpoint
  while true; do
    case "$pod" in lost | leaving) clear_away ;; esac
    attempt
    case "$outcome" in
      complete) break ;;
      bad_input)
        on_hosts all "$HOST ends" || true
        die "the run ended with exit code 2, bad input (above): correct it, and run this again"
        ;;
      lost) say "== $name was taken away: again, from the last checkpoint" ;;
      failed) count_failure ;;
    esac
    look
  done
  tell "== complete: $workdir (what is stored there costs, too, until you delete it)"
  [[ "$keep" ]] || remove_slice || fail "$name could not be deleted"
}

# Continues from the present state to the end of one run. Sets outcome: complete, bad_input, lost
# (the cloud took the slice away) or failed (anything else).
attempt() {
  local found="$pod"
  outcome=failed running=0
  if [[ "$found" == none ]]; then
    set_up=""
    if ! ask_for_slice; then
      [[ "$asked" ]] || fail "$name: refused (above); nothing was left there"
      return
    fi
    asked=yes
  fi
  await_slice || return 0
  # The run may have been started already, by hand or by an "up" that was interrupted.
  if [[ "$found" != none && -z "$set_up" ]]; then
    ask_hosts
    ((running == 0)) || set_up=yes
  fi
  if ((running == 0)) && ! start_run; then
    look
    is_gone || fail "the run could not be started on every host (above)"
    outcome=lost
    return
  fi
  watch_run
}

start_run() {
  [[ "$set_up" ]] || do_setup || return
  set_up=yes
  do_run
}

# Counts failures in a row, of a pre-training those without a new checkpoint; after too many, the
# program ends.
count_failure() {
  local before="$newest" since="" from="the last checkpoint"
  find_newest_checkpoint
  if [[ "$program" == pretrain ]]; then
    since=" without a new checkpoint" from="${newest:+checkpoint }${newest:-the beginning}"
  fi
  failures=$((failures + 1))
  [[ "$newest" == "$before" ]] || failures=0
  if ((failures > RETRIES)); then
    [[ "$pod" != ready ]] || on_hosts all "$HOST ends" || true
    fail "$failures failures in a row$since (above)"
  fi
  say "== again, from $from"
  pause
}

# Sets newest to the newest checkpoint's step; it stays as it was if the bucket does not answer.
# Those of a fine-tuning, in the folders of its trials, are not looked for.
find_newest_checkpoint() {
  [[ "$program" == pretrain ]] || return 0
  local steps ask=(storage ls "$workdir/checkpoints/")
  say_once "${ask[@]}"
  [[ -z "$dry_run" ]] || return 0
  steps="$(gcloud "${ask[@]}" 2>"$scratch/error")" ||
    grep -v 'matched no objects' "$scratch/error" >&2 || true
  steps="$(sed -n 's|.*/\([0-9]\{1,\}\)/$|\1|p' <<<"$steps" | sort -n | tail -n 1)"
  newest="${steps:-$newest}"
}

# Waits for the end of the run or of the slice, and sets outcome.
watch_run() {
  local patience=5 line last=""
  while true; do
    report="" ended=0 codes=""
    look
    if is_gone; then
      outcome=lost
      return
    fi
    [[ "$pod" != ready ]] || ask_hosts
    [[ -z "$dry_run" ]] || break
    line="$(head -n 1 <<<"$report")"
    [[ -z "$line" || "$line" == "$last" ]] || say "$(date +%H:%M) $line"
    last="$line"
    ((ended < hosts)) || break
    # Hosts end within minutes of the first; those that do not end hang.
    if ((ended > 0)) && ! ((patience -= 1)); then
      on_hosts all "$HOST stop" || true
      codes+=stopped
      break
    fi
    pause
  done
  tell "$report"
  case " $codes" in
    *" 2 "*) outcome=bad_input ;;
    *[!0\ ]*)
      outcome=failed
      look # the cloud may have taken the slice since the last look
      ! is_gone || outcome=lost
      ;;
    *) outcome=complete ;;
  esac
}

# ---------------------------------------------------------------------------- other commands

do_create() {
  look
  case "$pod" in
    none) ;;
    unknown) die "gcloud could not say whether $name is there (above)" ;;
    *)
      die "$name is there already ($request): take another --name, use it (setup, run, up)," \
        "or delete it: $(own_command delete)"
      ;;
  esac
  check_before_asking
  ask_for_slice || fail "$name: refused (above); nothing was left there"
  await_slice || fail "$name: $request $node (status tells more)"
  tell "== $name is ready, $hosts hosts. Next: setup, then run; it costs until it is deleted."
}

do_setup() {
  local archive="${scratch:-.}/bertjax.tar.gz" root
  root="$(quoted "$REPOSITORY")"
  say "git -C $root ls-files -z | tar -czf $(quoted "$archive") -C $root --null -T -"
  if [[ -z "$dry_run" ]]; then
    git -C "$REPOSITORY" ls-files -z |
      tar -czf "$archive" -C "$REPOSITORY" --null -T - || return
  fi
  persist cloud compute tpus tpu-vm scp "$archive" "$name:bertjax.tar.gz" "${place[@]}" \
    --worker=all --quiet || return
  persist on_hosts all "rm -rf bertjax/new && mkdir -p bertjax/new &&" \
    "tar -xzf bertjax.tar.gz -C bertjax/new &&" \
    "bash bertjax/new/launch/tpu_vm.sh host setup $(quoted "$corpus" ${share:+"$share"})"
}

do_run() {
  local given=("--config=$config" "--workdir=$workdir" "--hosts=$hosts" "--chips=$chips")
  [[ "$program" == finetune ]] || given+=(--verify)
  persist on_hosts all "$HOST run $program $(quoted "${given[@]}" "${arguments[@]}")"
}

do_logs() {
  if [[ -z "$all" ]]; then
    on_hosts 0 "$HOST follow" || say "host 0 could not be followed (above)"
  fi
  on_hosts all "$HOST ends${all:+ all}"
}

do_status() {
  look
  if [[ "$pod" == ready ]]; then ask_hosts; else report=""; fi
  [[ -z "$dry_run" ]] || return 0
  echo "queued resource $name: $request"
  [[ -z "$node" ]] || echo "node $name: $node"
  [[ -z "$report" ]] || echo "$report"
}

do_ssh() {
  local there=()
  ((${#arguments[@]} == 0)) || there=("--command=$(quoted "${arguments[@]}")")
  cloud compute tpus tpu-vm ssh "$name" "${place[@]}" "--worker=$worker" "${there[@]}"
}

do_delete() {
  look
  case "$pod" in
    none) say "$name: nothing there to delete" ;;
    unknown) fail "gcloud could not say whether $name is there (above)" ;;
    *) clear_away && tell "$name: deleted" ;;
  esac
}

# -------------------------------------------------------------------------- before it costs

check_before_asking() {
  if [[ "$corpus" ]]; then
    check_bucket "$corpus"
    if [[ "$program" == finetune ]]; then
      cloud storage ls "$corpus/" >&2 ||
        die "$corpus: nothing there: copy the folder of the task's files to it:" \
          "gcloud storage rsync --recursive FOLDER $corpus"
    else
      cloud storage ls "$corpus/store/manifest.json" >&2 ||
        die "$corpus: not a staged corpus, no store/manifest.json there: make one with" \
          "launch/prepare_corpus.py, then: gcloud storage rsync --recursive FOLDER $corpus"
    fi
  fi
  [[ "$workdir" != gs://* ]] || check_bucket "$workdir"
  [[ -z "$config" ]] || check_config
}

check_bucket() { # gs://BUCKET/...
  local bucket="${1#gs://}"
  bucket="gs://${bucket%%/*}"
  cloud storage ls "$bucket" >/dev/null ||
    die "$bucket: not there, or not yours to read: gcloud storage buckets create $bucket" \
      "--location=REGION makes it, in the region of your zone"
}

# Compiles the step of a pre-training for this slice on this machine; returns 0 if it fits.
check_config() {
  local argument of_config=()
  for argument in "${arguments[@]}"; do
    case "$argument" in
      --config.*=*) of_config+=("$argument") ;;
      --config.*) die "$argument: write --config.key=value" ;;
    esac
  done
  if [[ "$program" == finetune ]]; then
    say "$config: a fine-tuning is not compiled before the slice is asked for"
    return
  fi
  [[ "$dry_run" ]] || use_environment tpu
  local compile=("${PYTHON-python}" "$REPOSITORY/launch/compile_check.py"
    "--config=$REPOSITORY/$config" "--topology=$topology" "${of_config[@]}")
  say "$(quoted "${compile[@]}")"
  [[ "$dry_run" ]] || "${compile[@]}" ||
    die "$config does not go on $chips chips of $type (above); no slice was asked for"
}

# -------------------------------------------------------------------------------- the slice

ask_for_slice() {
  local kind=()
  [[ -z "$spot" ]] || kind=(--spot)
  left=yes
  cloud compute tpus queued-resources create "$name" "${place[@]}" "--node-id=$name" \
    "--accelerator-type=$accelerator" "--runtime-version=$runtime" \
    "--labels=bertjax=$name" "${kind[@]}" && return
  left=""
  say "Quota: https://console.cloud.google.com/iam-admin/quotas has one for each type, zone and" \
    "kind (spot or on demand)"
  return 1
}

# Waits until the slice is ready; fails if it cannot become ready.
await_slice() {
  local waited=0 last=""
  [[ -z "$dry_run" ]] || return 0
  while look; do
    [[ "$request $node" == "$last" ]] || say "$(date +%H:%M) $name: $request $node"
    last="$request $node"
    [[ "$pod" != ready ]] || return 0
    ! is_gone || break
    if ((wait > 0 && waited >= wait * 60)); then give_up_waiting; fi
    pause
    ((waited += SECONDS_BETWEEN_LOOKS))
  done
  cloud compute tpus queued-resources describe "$name" "${place[@]}" "--format=value(state)" >&2 ||
    true
  return 1
}

give_up_waiting() {
  if [[ "$command" == up ]]; then
    remove_slice || true
    fail "$name: not granted within $wait minutes, and withdrawn: try another zone, --type or time"
  fi
  fail "$name: not granted within $wait minutes. It stays in the queue, and costs from the moment" \
    "it is granted, watched or not: look with status, or withdraw it with delete"
}

# Sets request and node to the states that gcloud reports, and pod to their meaning: none, waiting,
# ready, leaving or lost; or unknown, if gcloud fails.
look() {
  state_of queued-resources state.state
  request="$answer" node=""
  if [[ "$request" == ACTIVE || "$dry_run" ]]; then
    state_of tpu-vm state
    node="$answer"
  fi
  case "$request $node" in
    "ACTIVE READY") pod=ready ;;
    "none ") pod=none ;;
    unknown\ * | *\ unknown) pod=unknown ;;
    SUSPENDING\ * | DELETING\ *) pod=leaving ;;
    SUSPENDED\ * | FAILED\ *) pod=lost ;;
    *\ none | *\ PREEMPTED | *\ TERMINATED | *\ STOP* | *\ DELETING | *\ HID*) pod=lost ;;
    *) pod=waiting ;;
  esac
  if [[ "$dry_run" ]]; then # a dry run supposes that every command succeeds
    case "$command$left" in up | create) pod=none ;; *) pod=ready ;; esac
  fi
  case "$pod" in none) left="" ;; unknown) ;; *) left=yes ;; esac
}

# Whether the last look found no slice that can still run.
is_gone() {
  [[ "$pod" == none || "$pod" == lost || "$pod" == leaving ]]
}

state_of() { # queued-resources|tpu-vm FIELD; it sets answer
  local ask=(compute tpus "$1" describe "$name" "${place[@]}" "--format=value($2)")
  say_once "${ask[@]}"
  answer=""
  [[ -z "$dry_run" ]] || return 0
  if answer="$(gcloud "${ask[@]}" 2>"$scratch/error")"; then
    answer="${answer:-unknown}"
  elif grep -q NOT_FOUND "$scratch/error"; then
    answer=none
  else
    cat "$scratch/error" >&2
    answer=unknown
  fi
}

# Deletes the slice when the cloud has finished its own work with it.
clear_away() {
  while [[ "$pod" == leaving ]]; do
    say "$(date +%H:%M) $name: $request"
    pause
    look
  done
  [[ "$pod" == none ]] || remove_slice || fail "$name could not be deleted (above)"
}

remove_slice() {
  local try
  for ((try = 1; try <= RETRIES; try++)); do
    if cloud compute tpus queued-resources delete "$name" "${place[@]}" --force --quiet; then
      pod=none left=""
      return
    fi
    pause
    look
    [[ "$pod" != none ]] || return 0
  done
  return 1
}

# Prints the last line at every kind of end: what still exists and costs money.
leave() {
  rm -rf "$scratch"
  [[ "$left" ]] || return 0
  case "$command" in
    up | create) say "$name is there, and costs. To delete it: $(own_command delete)" ;;
  esac
}

own_command() {
  echo "bash $(quoted "$REPOSITORY/launch/tpu_vm.sh" "$1" "--name=$name" "${place[@]}")"
}

# -------------------------------------------------------------------------------- the hosts

on_hosts() { # WORKER|all TEXT...; the login shell there, which is bash, runs the text
  cloud compute tpus tpu-vm ssh "$name" "${place[@]}" "--worker=$1" --quiet "--command=${*:2}"
}

# Asks each host about its run. Sets report (a line from each host that answers), running and ended
# (the numbers of runs) and codes (the exit codes of those that ended).
ask_hosts() {
  local line ask=(compute tpus tpu-vm ssh "$name" "${place[@]}" --worker=all --quiet
    "--command=$HOST status")
  say_once "${ask[@]}"
  report="" running=0 ended=0 codes=""
  [[ -z "$dry_run" ]] || return 0
  report="$(gcloud "${ask[@]}" 2>"$scratch/error" | sort -V)" || tail -n 5 "$scratch/error" >&2
  while read -r line; do
    case "$line" in
      host\ *": running"*) ((running += 1)) ;;
      host\ *": exit "* | host\ *": no run") ((ended += 1)) && codes+="${line##* } " ;;
    esac
  done <<<"$report"
}

# Repeats a command that may fail for a moment, as the ssh of a new VM does. The hosts do not repeat
# finished work. Bad input (exit code 2) is not repeated.
persist() {
  local try code
  for ((try = 1; try <= RETRIES; try++)); do
    code=0
    "$@" || code=$?
    ((code != 0 && code != 2)) || return "$code"
    say "failed with $code, $try of $RETRIES times"
    ((try == RETRIES)) || pause
  done
  return "$code"
}

# ------------------------------------------------------------------------------------ words

cloud() {
  say "$(quoted gcloud "$@")"
  [[ "$dry_run" ]] || gcloud "$@"
}

declare -A said
say_once() {
  local text
  text="$(quoted gcloud "$@")"
  [[ "${said["$text"]-}" ]] || say "$text"
  said["$text"]=yes
}

# Prints words as bash reads them, with quotes only where they are necessary.
quoted() {
  local word words=()
  for word in "$@"; do
    if [[ "$word" =~ ^[A-Za-z0-9_@%+=:,./-]+$ ]]; then words+=("$word"); else words+=("${word@Q}"); fi
  done
  echo "${words[*]}"
}

pause() {
  sleep "$SECONDS_BETWEEN_LOOKS"
}

say() {
  echo "$*" >&2
}

tell() { # MESSAGE about finished work, which a dry run has not
  [[ "$dry_run" ]] || say "$*"
}

die() {
  say "error: $*"
  exit 2
}

fail() {
  say "error: $*"
  exit 1
}

# ----------------------------------------------------------------------------- On each host
#
# ~/bertjax on a host contains code/ (the checkout, with this file), venv/, corpus/, and the files
# of the run: run.log, run.pid, run.exit (its exit code) and run.lock, which a running run holds.

host_setup() { # CORPUS [SHARE]; it is called from new/, where the checkout was unpacked
  cd ~/bertjax
  flock --nonblock run.lock true || die "$(host_name): a run is going here, with the code it has"
  rm -rf code
  mv new code
  PATH="$PATH:$HOME/.local/bin"
  command -v uv >/dev/null || python3 -m pip install --quiet --user uv
  uv venv --quiet --allow-existing --python 3.12 venv
  uv pip install --quiet --python venv/bin/python \
    --constraint code/constraints/python3.12.txt --editable './code[tpu,gcs]'
  mkdir -p corpus
  gcloud storage rsync --recursive --delete-unmatched-destination-objects "$1" corpus
  if [[ "${2-}" ]]; then
    mount_share "$2"
  else
    [[ -f corpus/store/manifest.json ]] || die "$(host_name): no store/manifest.json in $1"
  fi
  echo "$(host_name): ready"
}

mount_share() { # ADDRESS:/NAME
  local mounted
  mounted="$(mounted_share)"
  if [[ "$mounted" != "$1" ]]; then
    [[ -z "$mounted" ]] || sudo umount "$SHARE"
    if [[ ! -e /sbin/mount.nfs ]]; then
      sudo apt-get -qq update
      sudo apt-get -qq install --yes nfs-common
    fi
    sudo mkdir -p "$SHARE"
    # Without caches of names and attributes, what one host writes is there for all at once.
    sudo mount -t nfs -o lookupcache=none,actimeo=0 "$1" "$SHARE"
  fi
  [[ -w "$SHARE" ]] || sudo chmod a+rwx "$SHARE" # only root may write a new Filestore
}

mounted_share() {
  findmnt --noheadings --output=SOURCE "$SHARE" || true
}

host_run() { # pretrain|finetune ARGUMENTS of this program of launch/
  cd ~/bertjax
  [[ "$1" == pretrain || "$(mounted_share)" ]] ||
    die "$(host_name): $SHARE is not mounted: setup with --share does it"
  exec 9>run.lock # the processes that are started here hold the lock
  if ! flock --nonblock 9; then
    echo "$(host_name): running already"
    return
  fi
  echo killed >run.exit # at its end the run replaces it by its exit code
  setsid bash code/launch/tpu_vm.sh host train "$@" >>run.log 2>&1 </dev/null &
  echo "$!" >run.pid # it is written before the message that a run exists
  echo "$(host_name): started"
}

host_train() {
  local code=0 data=corpus
  [[ "$1" == pretrain ]] || data=data
  trap : TERM # the program below also gets the signal, and its exit code is needed
  cd code
  echo "== $(date --iso-8601=seconds) launch/$1.py $(quoted "${@:2}")"
  ../venv/bin/python "launch/$1.py" "--config.$data=$HOME/bertjax/corpus" "${@:2}" || code=$?
  echo "$code" >../run.exit
}

host_stop() {
  cd ~/bertjax
  flock --nonblock run.lock true || kill -TERM -- "-$(<run.pid)"
  flock --timeout 60 run.lock true || kill -KILL -- "-$(<run.pid)"
}

host_status() {
  cd ~/bertjax
  echo "$(host_name): $(host_state)"
}

host_follow() {
  cd ~/bertjax
  tail --lines=100 --follow=name --pid="$(<run.pid)" run.log
}

host_ends() { # [all]
  cd ~/bertjax
  local state
  state="$(host_state)"
  case "${1-}$state" in
    all* | "exit "*[!0]*)
      echo "$(host_name): $state"
      tail --lines=20 run.log | sed "s/^/$(host_name)| /"
      ;;
  esac
}

host_state() {
  if ! flock --nonblock run.lock true; then
    echo "running: $(tail --lines=1 run.log | cut --characters=-160)"
  elif [[ -f run.exit ]]; then
    echo "exit $(<run.exit)"
  else
    echo "no run"
  fi
}

# Prints "host 2" for the VM ...-w-2 of a slice.
host_name() {
  local full
  full="$(hostname)"
  if [[ "$full" =~ -w-([0-9]+)$ ]]; then echo "host ${BASH_REMATCH[1]}"; else echo "host $full"; fi
}

main "$@"
