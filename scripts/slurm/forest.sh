#!/usr/bin/env bash
# Trains and verifies a forest on a SLURM cluster: an array of jobs that train trees, a job that joins them, an array of
# jobs that verify rows, a job that merges their verdicts. Each stage starts when the one before has succeeded.
#
#   scripts/slurm/forest.sh TRAINING_SET TEST_SET FOLDER EPSILON         on the login node
#
# FOLDER, on a file system that all nodes see, receives forest.silva, verdicts.jsonl and, under parts/ and log/, what
# leads there. Run the same command again after a failure: what is there already is neither submitted nor computed again.
#
# Settings, with the values for a forest of the paper (50 trees, MNIST) as defaults:
TREES=${TREES:-50}                        # trees of the forest
TRAIN_JOBS=${TRAIN_JOBS:-$TREES}          # jobs that train them, at most one for each tree
TRAIN_MINUTES=${TRAIN_MINUTES:-60}        # time of such a job; the trees get a bit less, see below
TRAIN_OPTIONS=${TRAIN_OPTIONS:-}          # further options of `metasilvae train`, such as --allowed-features uniform 28
VERIFY_JOBS=${VERIFY_JOBS:-50}            # jobs that verify, at most one for each row
VERIFY_MINUTES=${VERIFY_MINUTES:-60}
VERIFY_OPTIONS=${VERIFY_OPTIONS:-}        # further options of `metasilvae verify`, such as --sample-timeout 10
CPUS=${CPUS:-2}                           # cores of each job
MEMORY=${MEMORY-4G}                       # memory of each job, see docs/cluster.md; empty: what the cluster grants
METASILVAE=${METASILVAE:-metasilvae}      # the command on the nodes, such as /shared/venv/bin/metasilvae
SBATCH_OPTIONS=${SBATCH_OPTIONS:-}        # for all jobs, such as --partition=long --account=me; for the last one ...
LAST_OPTIONS=${LAST_OPTIONS:-}            # ... also these: --wait returns when all is done, --mail-type=END tells you
set -euo pipefail

if [[ ${1:-} != --stage ]]; then
  if [[ $# != 4 ]]; then
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
  fi
  TRAINING_SET=$1 TEST_SET=$2 FOLDER=$3 EPSILON=$4
  mkdir -p "$FOLDER/parts" "$FOLDER/log"
  FOLDER=$(cd "$FOLDER" && pwd)
fi

tree_part() { printf '%s/parts/trees-%05d.silva' "$FOLDER" "$1"; }
verdict_part() { printf '%s/parts/verdicts-%05d.jsonl' "$FOLDER" "$1"; }

# Runs a command that writes to the path which ends it. The result gets its name only if the command succeeds. A job
# that is preempted or cancelled gets SIGTERM: `metasilvae train` then writes the best trees so far and ends with code
# 143; they stay under NAME.unfinished, for you to take, and the requeued job resumes from NAME.checkpoint, so that its
# result does not depend on the interruption. That holds for a job that is killed, too.
produce() {
  local target=${*: -1}
  [[ -e $target ]] && { echo "$target is there already"; return; }
  # srun makes it a step of the job: only steps get SIGTERM with some time left, not the children of a batch script.
  srun "${@:1:$#-1}" "$target.unfinished"
  [[ ! -e $target.unfinished.manifest.json ]] || mv "$target.unfinished.manifest.json" "$target.manifest.json"
  mv "$target.unfinished" "$target"
  rm -f "$target.checkpoint"
}

stage() {
  local number=${SLURM_ARRAY_TASK_ID:-1} parts=() seconds part
  case $1 in
  train)
    # The time limit leaves two minutes of the job for reading the data and for writing the result, so that the trees of
    # a slow job are written by metasilvae instead of being lost with it.
    seconds=$((60 * TRAIN_MINUTES - 120))
    part=$(tree_part "$number")
    # The number of shards is given by us: SLURM_ARRAY_TASK_COUNT is wrong when some jobs are submitted again.
    # shellcheck disable=SC2086  # options are several words
    produce $METASILVAE train --epsilon "$EPSILON" --trees "$TREES" --shard "$number/$TRAIN_JOBS" \
      --time-limit "$seconds" --jobs "$CPUS" --checkpoint "$part.checkpoint" --resume auto $TRAIN_OPTIONS \
      "$TRAINING_SET" "$part"
    ;;
  assemble)
    for ((number = 1; number <= TRAIN_JOBS; number++)); do parts+=("$(tree_part "$number")"); done
    # shellcheck disable=SC2086
    $METASILVAE assemble --force "$FOLDER/forest.silva" "${parts[@]}"
    ;;
  verify)
    # shellcheck disable=SC2086
    produce $METASILVAE verify --epsilon "$EPSILON" --shard "$number/$VERIFY_JOBS" --jobs "$CPUS" --format jsonl \
      $VERIFY_OPTIONS "$FOLDER/forest.silva" "$TEST_SET" --output "$(verdict_part "$number")"
    ;;
  merge)
    for ((number = 1; number <= VERIFY_JOBS; number++)); do parts+=("$(verdict_part "$number")"); done
    # shellcheck disable=SC2086
    $METASILVAE merge "${parts[@]}" --output "$FOLDER/verdicts.jsonl"
    ;;
  esac
}

if [[ ${1:-} == --stage ]]; then
  stage "$2"
  exit
fi

# On the login node: submits what is missing.

missing() { # NAME_OF_PART N: the numbers of the parts that are not there, for --array
  local number numbers=()
  for ((number = 1; number <= $2; number++)); do [[ -e $("$1" "$number") ]] || numbers+=("$number"); done
  (IFS=, && echo "${numbers[*]}")
}

last=
submit() { # STAGE MINUTES [OPTION...]: submits a stage after the one before and remembers its number
  local stage=$1 minutes=$2 after=()
  [[ $last ]] && after=(--dependency="afterok:$last" --kill-on-invalid-dep=yes)
  # --requeue: again after a preemption or a lost node. --open-mode: the log is continued then.
  # shellcheck disable=SC2086
  last=$(sbatch --parsable --job-name="metasilvae-$stage" --time="$minutes" --cpus-per-task="$CPUS" \
    --requeue --open-mode=append --output="$FOLDER/log/$stage-%a.log" "${after[@]}" ${MEMORY:+--mem="$MEMORY"} "${@:3}" $SBATCH_OPTIONS \
    "$0" --stage "$stage")
  last=${last%%;*}
  echo "$stage: job $last"
}

export TREES TRAIN_JOBS TRAIN_MINUTES TRAIN_OPTIONS VERIFY_JOBS VERIFY_MINUTES VERIFY_OPTIONS CPUS METASILVAE
export TRAINING_SET TEST_SET FOLDER EPSILON
trees=$(missing tree_part "$TRAIN_JOBS")
[[ $trees ]] && submit train "$TRAIN_MINUTES" --array="$trees"
if [[ $trees || ! -e $FOLDER/forest.silva ]]; then
  rm -f "$FOLDER"/parts/verdicts-*.jsonl # of another forest
  submit assemble 10
fi
rows=$(missing verdict_part "$VERIFY_JOBS")
[[ $rows ]] && submit verify "$VERIFY_MINUTES" --array="$rows"
# shellcheck disable=SC2086
submit merge 10 $LAST_OPTIONS
