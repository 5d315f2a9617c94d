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
# salloc does not know the GPUs of the nodes, and may run on another host
gpus=$(scontrol show --details job "$SLURM_JOB_ID" | sed -n 's/.* GRES=\(.*,\)\{0,1\}gpu:\([^,(]*:\)\{0,1\}\([0-9]*\)(.*/\3/p' | head -n 1)
export SLURM_GPUS_ON_NODE=${SLURM_GPUS_ON_NODE:-${gpus:-0}}
map_gpu_options
# in a step SLURM_TASKS_PER_NODE is that of the step: env gives job.sh that of the allocation
exec srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist="$first" --cpus-per-task="$(map_cpus)" \
	--cpu-bind=none "${map_gpu_options[@]}" "${terminal[@]}" env SLURM_TASKS_PER_NODE="${SLURM_TASKS_PER_NODE:-1}" "$here/job.sh" "$@"
