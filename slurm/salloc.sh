#!/usr/bin/env bash
# salloc.sh: starts gpt2d on all nodes of an allocation and opens a shell on the first node, in which
# gpt2ctl works. With specs, it trains them instead. gpt2d ends with the shell.
# usage: salloc [--nodes=N] [--gpus-per-node=N] slurm/salloc.sh [SPEC.json...]
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=slurm/map.sh
. "$here/map.sh"
[ -n "${SLURM_JOB_ID:-}" ] || { echo "salloc.sh: no Slurm job; usage: salloc [OPTION...] $0 [SPEC.json...]" >&2; exit 2; }
terminal=()
[ $# -gt 0 ] || [ ! -t 0 ] || terminal=(--pty)
first=$(map_nodes | head -n 1)
# in a step SLURM_TASKS_PER_NODE is that of the step: env gives job.sh that of the allocation
exec srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist="$first" --cpus-per-task="$(map_cpus)" \
	--cpu-bind=none "${terminal[@]}" env SLURM_TASKS_PER_NODE="${SLURM_TASKS_PER_NODE:-1}" "$here/job.sh" "$@"
