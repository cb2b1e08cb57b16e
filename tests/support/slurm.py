"""A stand-in for SLURM's sbatch."""

from __future__ import annotations

import sys

# Independent trees are the same whether one machine grows them or several.
TRAIN_OPTIONS = "--preset fast --forest-method independent"


SETTINGS = {
    "TREES": "3",
    "TRAIN_JOBS": "2",
    "TRAIN_OPTIONS": TRAIN_OPTIONS,
    "VERIFY_JOBS": "2",
    "CPUS": "1",
    "MEMORY": "",
    "METASILVAE": f"{sys.executable} -m metasilvae",
}


SBATCH = """#!/usr/bin/env bash
echo "$*" >>"$CALLS"
array=
while [[ $1 == --* && $1 != --stage ]]; do
  [[ $1 == --array=* ]] && array=${1#--array=}
  shift
done
for SLURM_ARRAY_TASK_ID in ${array//,/ }; do
  export SLURM_ARRAY_TASK_ID
  "$@" >&2 || exit 1
done
[[ $array ]] || env -u SLURM_ARRAY_TASK_ID "$@" >&2 || exit 1
wc -l <"$CALLS"
"""
