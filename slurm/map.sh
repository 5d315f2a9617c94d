# shellcheck shell=bash
# map.sh: reads the SLURM_* variables of a job: its nodes in order, the ranks and the processors of a
# node. job.sh and salloc.sh source it, and read those variables nowhere else.

# The host names of a node list such as "gn-[0013-0014,20],login1", one a line, in the list's order.
# Status 1 after a message if the list is invalid.
map_expand() { # list
	local list=$1 entry
	while [ -n "$list" ]; do
		if ! [[ $list =~ ^([^],[]*(\[[^][]+\][^],[]*)*)(,(.+))?$ ]] || [ -z "${BASH_REMATCH[1]}" ]; then
			echo "node list $1: invalid at \"$list\" (expected NAME, or NAME[FIRST-LAST,...])" >&2
			return 1
		fi
		entry=${BASH_REMATCH[1]} list=${BASH_REMATCH[4]}
		map_expand_one "$entry" || return 1
	done
}

map_expand_one() { # entry without a comma outside of brackets
	local before ranges after range first last number
	if ! [[ $1 =~ ^([^[]*)\[([^]]*)\](.*)$ ]]; then
		printf '%s\n' "$1"
		return
	fi
	before=${BASH_REMATCH[1]} ranges=${BASH_REMATCH[2]} after=${BASH_REMATCH[3]}
	for range in ${ranges//,/ }; do
		if ! [[ $range =~ ^([0-9]+)(-([0-9]+))?$ ]]; then
			echo "node list $1: invalid range \"$range\" (expected NUMBER or FIRST-LAST)" >&2
			return 1
		fi
		first=${BASH_REMATCH[1]} last=${BASH_REMATCH[3]:-${BASH_REMATCH[1]}}
		if ((10#$first > 10#$last)); then
			echo "node list $1: range $range begins above its end" >&2
			return 1
		fi
		for ((number = 10#$first; number <= 10#$last; number++)); do
			# as many digits as the first number has
			printf -v range '%0*d' ${#first} "$number"
			map_expand_one "$before$range$after" || return 1
		done
	done
}

# The nodes of the job, one a line; the first one runs the batch script, rank 0 and the leader.
map_nodes() {
	scontrol show hostnames "$SLURM_JOB_NODELIST" 2>/dev/null || map_expand "$SLURM_JOB_NODELIST"
}

# The counts of a list such as "2(x3),1", one a line.
map_counts() { # list
	local part left
	for part in ${1//,/ }; do
		if ! [[ $part =~ ^([0-9]+)(\(x([0-9]+)\))?$ ]]; then
			echo "list of counts $1: invalid at \"$part\" (expected COUNT or COUNT(xTIMES))" >&2
			return 1
		fi
		for ((left = ${BASH_REMATCH[3]:-1}; left > 0; left--)); do
			printf '%s\n' "${BASH_REMATCH[1]}"
		done
	done
}

# Processors that every node of the job has.
map_cpus() {
	map_counts "$SLURM_JOB_CPUS_PER_NODE" | sort -n | head -n 1
}

# GPUs of this node that belong to the job; 0: none.
map_gpus() {
	local devices=${SLURM_STEP_GPUS:-${SLURM_JOB_GPUS:-${CUDA_VISIBLE_DEVICES:-}}}
	if [ -n "${SLURM_GPUS_ON_NODE:-}" ]; then
		echo "$SLURM_GPUS_ON_NODE"
	elif [ -n "$devices" ] && [ "$devices" != NoDevFiles ]; then
		echo "$devices" | tr ',' '\n' | wc -l
	else
		echo 0
	fi
}

# Sets map_gpu_options, of srun: a task has all GPUs that the job has on its node, whatever the options of
# sbatch were. srun would take those from the environment.
map_gpu_options() {
	local gpus
	gpus=$(map_gpus)
	map_gpu_options=()
	# shellcheck disable=SC2034 # for the caller
	[ "$gpus" -eq 0 ] || map_gpu_options=(--gpus-per-node="$gpus")
	unset SLURM_GPUS SLURM_GPUS_PER_TASK SLURM_GPUS_PER_SOCKET SLURM_GPU_BIND SLURM_NTASKS_PER_GPU \
		SLURM_CPUS_PER_GPU SLURM_TRES_PER_TASK
}

# cuda if the job has GPUs, else cpu; GPT2D_DEVICE overrides it.
map_device() {
	if [ -n "${GPT2D_DEVICE:-}" ]; then
		echo "$GPT2D_DEVICE"
	elif [ "$(map_gpus)" -gt 0 ]; then
		echo cuda
	else
		echo cpu
	fi
}

# Ranks of each node: GPT2D_RANKS, else one for each GPU, and on CPUs one for each task. Status 1 after a
# message if the nodes differ.
map_ranks() {
	local counts
	if [ -n "${GPT2D_RANKS:-}" ]; then
		echo "$GPT2D_RANKS"
	elif [ "$(map_device)" = cuda ]; then
		map_gpus
	else
		counts=$(map_counts "${SLURM_TASKS_PER_NODE:-1}" | sort -u) || return 1
		if [ "$(wc -l <<<"$counts")" -ne 1 ]; then
			echo "the nodes have different numbers of tasks ($SLURM_TASKS_PER_NODE): give --ntasks-per-node or GPT2D_RANKS" >&2
			return 1
		fi
		echo "$counts"
	fi
}
