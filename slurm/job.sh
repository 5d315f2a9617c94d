#!/usr/bin/env bash
# job.sh: starts gpt2d on every node of a Slurm job, trains the specs one after another and stops
# everything. gpt2d.sbatch, gpt2d-one.sbatch and salloc.sh run it on the first node.
# usage: job.sh [SPEC.json...]; without a spec it opens a shell
# The exit status is 0 if every spec has a result. slurm/README.md lists the variables.
# shellcheck disable=SC2317 # traps call functions
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=slurm/map.sh
. "$here/map.sh"

say() { printf '%(%H:%M:%S)T %s\n' -1 "$*"; }
fail() { say "job.sh: $*" >&2; exit 1; }

[ -n "${SLURM_JOB_ID:-}" ] || fail "no Slurm job; usage: sbatch $here/gpt2d.sbatch SPEC.json..."
# a batch script has no terminal
[ $# -gt 0 ] || [ -n "${SLURM_STEP_ID:-}" ] || fail "no spec; usage: sbatch $here/gpt2d.sbatch SPEC.json..."

# ---- the job ----

mapfile -t nodes < <(map_nodes)
[ ${#nodes[@]} -gt 0 ] || fail "SLURM_JOB_NODELIST names no node"
cpus=$(map_cpus) && ranks=$(map_ranks) || exit 1
device=$(map_device)
map_gpu_options
run_dir=${RUN_DIR:-${SLURM_SUBMIT_DIR:-$PWD}/gpt2d-$SLURM_JOB_ID}
# the ID of the step too: an allocation may run this several times
folder=${GPT2D_LOCAL:-/tmp}/gpt2d-$SLURM_JOB_ID.${SLURM_STEP_ID:-batch}.${SLURM_RESTART_COUNT:-0}
PATH=${GPT2D_BIN:+$GPT2D_BIN:}$PATH:$here/../../../bin
for build in "$here"/../build-cuda "$here"/../build; do
	PATH=$PATH:$build/daemon:$build/ctl
done
export PATH GPT2D_SOCKET=$folder/gpt2d.sock

mkdir -p "$run_dir/log" || fail "RUN_DIR $run_dir cannot be made"
if [ ! -w "$run_dir" ] || [ ! -w "$run_dir/log" ]; then fail "RUN_DIR $run_dir is not writable"; fi
run_dir=$(cd "$run_dir" && pwd)
export RUN_DIR=$run_dir

# Sets step to the srun of one task on each of these nodes. --cpus-per-task is not inherited from sbatch;
# --overlap lets the steps share processors and GPUs.
on_nodes() { # node...
	local list
	list=$(tr ' ' , <<<"$*")
	step=(srun --overlap --nodes=$# --ntasks=$# --ntasks-per-node=1 --nodelist="$list" --cpus-per-task="$cpus" --cpu-bind=none
		"${map_gpu_options[@]}")
}

# ---- variables of the torchrun launcher before gpt2d ----

sets=() options=(--log-level info)

extra_args() {
	while [ $# -gt 0 ]; do
		case $1 in
		--max_*_steps=*) set -- "" "${1%%=*}" "${1#*=}" "${@:2}" ;; # as two words
		--max_train_steps) sets+=(--set "work.micro_steps=${2:-}"); shift ;;
		--max_val_steps) sets+=(--set "work.validation_steps=${2:-}"); shift ;;
		--profile_mode) say "GPT2_EXTRA_ARGS: --profile_mode is ignored: gpt2d measures every step and saves no checkpoint unless the spec asks for one" ;;
		*) say "GPT2_EXTRA_ARGS: $1 is ignored: give gpt2d's keys in the spec" ;;
		esac
		shift
	done
}

is_on() { [ -n "${1:-}" ] && [ "$1" != 0 ]; }

knobs() {
	local words
	[ -z "${MICRO_BATCH_SIZE_PER_GPU:-}" ] || sets+=(--set "train_micro_batch_size_per_gpu=$MICRO_BATCH_SIZE_PER_GPU")
	[ -z "${GRAD_ACCUM_STEPS:-}" ] || sets+=(--set "gradient_accumulation_steps=$GRAD_ACCUM_STEPS")
	read -ra words <<<"${GPT2_EXTRA_ARGS:-}"
	extra_args "${words[@]}"
	if is_on "${NCCL_LOGS:-}"; then
		export NCCL_DEBUG=${NCCL_DEBUG:-INFO} NCCL_DEBUG_FILE=$run_dir/log/nccl.%h.%p.txt
		say "NCCL_LOGS: NCCL writes to $run_dir/log/nccl.HOST.PID.txt"
	fi
	if is_on "${DIST_DEBUG:-}"; then
		export UCX_LOG_LEVEL=${UCX_LOG_LEVEL:-info} NCCL_DEBUG=${NCCL_DEBUG:-INFO}
		options=(--log-level debug)
		say "DIST_DEBUG: gpt2d, UCX and NCCL log more to $run_dir/log"
	fi
	! is_on "${TORCHRUN_LOGS:-}" || say "TORCHRUN_LOGS is ignored: there is no torchrun; $run_dir/log always has a log of each node"
	! is_on "${NSYS:-}" || say "NSYS is ignored: nsys would have to start gpt2d; training_metrics.json has the phases of a step"
}

# ---- the daemons ----

steps=() # process IDs of the sruns of the daemons, the leader's first
foldered=() # nodes with a folder that no node.sh removes
signalled= # process IDs of sruns that got a signal to end
watcher=
signal= # that ends the job; LOST: a gpt2d has ended
copying= # 1: the results of a run are being copied

start() {
	local key words
	# only this job uses the key; srun's standard input takes it to the nodes
	key=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')
	on_nodes "${nodes[@]}"
	foldered=("${nodes[@]:1}")
	# shellcheck disable=SC2016 # $1 is the inner shell's
	"${step[@]}" bash -c 'umask 077 && mkdir "$1" && cat >"$1/key"' _ "$folder" <<<"$key" ||
		fail "no folder $folder on some node; GPT2D_LOCAL names another place on the nodes' own disks"
	if [ -n "${GPT2D_PACKAGE:-}" ]; then
		# shellcheck disable=SC2016
		"${step[@]}" bash -c 'mkdir "$1/package" && tar -xf "$2" -C "$1/package" --strip-components=1' \
			_ "$folder" "$(realpath "$GPT2D_PACKAGE")" || fail "GPT2D_PACKAGE $GPT2D_PACKAGE could not be unpacked"
		PATH=${GPT2D_BIN:+$GPT2D_BIN:}$folder/package/bin:$PATH # from here on the folder is ours
	fi
	command -v gpt2d gpt2ctl >/dev/null ||
		fail "no gpt2d and gpt2ctl in PATH, GPT2D_BIN, or the build folders beside $here"
	options+=(--ranks "$ranks" --device "$device")
	read -ra words <<<"${GPT2D_OPTIONS:-}"
	options+=("${words[@]}")
	rm -f "$run_dir"/log/*.out
	if [ ${#nodes[@]} -eq 1 ]; then
		start_nodes 0 ""
	else
		on_nodes "${nodes[0]}"
		start_nodes 0 "${nodes[1]}" --listen :0 --nodes ${#nodes[@]}
		await "the leader" test -s "$folder/state/listening"
		on_nodes "${nodes[@]:1}"
		start_nodes 1 "${nodes[0]}" --join "$(cat "$folder/state/listening")"
	fi
	await "the engines" grep -q '^gpt2d: ready' "$run_dir/log/${nodes[0]}.out"
	watch_steps &
	watcher=$!
	say "ready: ${#nodes[@]} node(s), $ranks rank(s) each, device $device, job $SLURM_JOB_ID"
}

start_nodes() { # ID of the first, a peer, options of gpt2d...
	local id=$1 peer=$2
	shift 2
	"${step[@]}" --kill-on-bad-exit=1 --output="${run_dir//%/%%}/log/%N.out" --input=none \
		"$here/node.sh" "$folder" "$id" "$peer" "${options[@]}" "$@" &
	steps+=($!)
	[ "$id" -eq 0 ] || foldered=()
}

# Repeats a command until it succeeds. The job fails if a daemon ends before that.
await() { # what for, command...
	local what=$1 deadline=$((SECONDS + ${GPT2D_START_TIMEOUT:-300})) pid
	shift
	until "$@" >/dev/null 2>&1; do
		for pid in "${steps[@]}"; do
			kill -0 "$pid" 2>/dev/null || { show_logs; fail "a gpt2d has ended before it was ready"; }
		done
		[ $SECONDS -lt $deadline ] || { show_logs; fail "timed out waiting for $what"; }
		[ -z "$signal" ] || finish
		sleep 0.1
	done
}

show_logs() {
	local file
	for file in "$run_dir"/log/*.out "$run_dir"/log/*.log; do
		[ ! -s "$file" ] || { echo "--- the end of $file"; tail -n 5 "$file"; } >&2
	done
}

# Ends the job if a gpt2d ends.
watch_steps() {
	local pid
	while sleep 1; do
		for pid in "${steps[@]}"; do
			kill -0 "$pid" 2>/dev/null || { kill -USR2 $$; return; }
		done
	done
}

# Once: a second signal, more than a second later, would not let the run in progress end its step. srun
# forwards SIGUSR1 to gpt2d; at SIGTERM srun would kill gpt2d.
signal_step() { # process ID of its srun
	[[ $signalled != *" $1 "* ]] || return
	signalled+=" $1 "
	kill -USR1 "$1" 2>/dev/null
}

# Ends the daemons: the leader first, so that the run in progress ends in good order on all nodes.
stop() {
	local pid
	[ -z "$watcher" ] || kill "$watcher" 2>/dev/null
	for pid in "${steps[@]}"; do
		signal_step "$pid"
		await_step "$pid" || [ "$pid" = "${steps[0]}" ] || foldered=("${nodes[@]:1}")
	done
	steps=()
}

# A signal that comes while srun or gpt2d starts may be lost. gpt2d ends within 10 s after one that it gets.
await_step() { # process ID of its srun: the exit status
	local deadline=$((SECONDS + 12))
	while kill -0 "$1" 2>/dev/null; do
		sleep 0.1
		if [ $SECONDS -ge $deadline ]; then
			kill -USR1 "$1" 2>/dev/null
			deadline=$((SECONDS + 12))
		fi
	done
	wait "$1"
}

# wait returns early when a trap has run.
await_end() { # process ID: its exit status
	while kill -0 "$1" 2>/dev/null; do
		wait "$1"
	done
	wait "$1"
}

on_signal() {
	[ -z "$signal" ] || return
	signal=$1
	# the output of the command in progress may be redirected
	if [ "$1" = LOST ]; then
		say "a gpt2d has ended; its log is in $run_dir/log" >&2
	else
		say "signal $1: the run in progress is interrupted, no other one starts" >&2
	fi
	# gpt2d may have got SIGTERM too, or not (scancel --batch). While results are copied it is still needed.
	if [ -z "$copying" ] && [ ${#steps[@]} -gt 0 ]; then
		signal_step "${steps[0]}"
	fi
}

at_exit() {
	trap '' TERM INT USR1
	stop
	if [ ${#foldered[@]} -gt 0 ]; then
		on_nodes "${foldered[@]}"
		"${step[@]}" --input=none rm -rf "$folder"
	fi
	rm -rf "$folder"
}

# ---- the specs ----

# Runs a command in the background and waits for it: bash runs a trap only between commands.
run() { # command...
	"$@" &
	await_end $!
}

name_of() { basename "$1" .json; }

# Sets saves: a run that writes checkpoints writes them to RUN_DIR, and continues from the last one that
# an earlier attempt has written there. A spec that sets checkpoint.dir is not changed.
checkpoints() { # spec, name
	local all=$run_dir/$2.checkpoints last
	saves=()
	if ! grep -q '"checkpoint"' "$1" || grep -q '"dir"' "$1"; then return; fi
	last=$(find "$all" -path '*/step-*/manifest.json' -printf '%T@ %h\n' 2>/dev/null | sort -n | sed -n '$s/^[^ ]* //p')
	if [ -n "$last" ]; then
		say "$2: continues from $last"
		saves+=(--set "resume_from=$last")
	fi
	all+=/$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}
	mkdir -p "$all"
	saves+=(--set "checkpoint.dir=$all")
}

# Results are in RUN_DIR/NAME; the files of a run that is not done are in RUN_DIR/NAME.incomplete.
train() { # spec
	local name id kept saves
	name=$(name_of "$1")
	kept=$run_dir/$name
	rm -rf "$kept.incomplete"
	checkpoints "$1" "$name"
	run gpt2ctl submit "${sets[@]}" "${saves[@]}" --print-id "$1" >"$folder/id" || return
	id=$(cat "$folder/id")
	say "$name: run $id"
	run gpt2ctl wait "$id" || kept=$kept.incomplete
	copying=1
	# gpt2ctl may notice before the watcher that gpt2d is gone
	kill -0 "${steps[0]}" 2>/dev/null || on_signal LOST
	if [ -z "$signal" ] && copy "$id" "$kept"; then id=; fi
	copying=
	if [ -n "$signal" ] && [ -n "$id" ]; then # gpt2d is ending; its folder is on this node
		stop
		keep "$folder/state/runs/$id-"* "$run_dir/$name"
	fi
}

# The status is that of the artifacts.
copy() { # run ID, folder
	local status
	mkdir -p "$2"
	# an earlier attempt may have left a part of its files there
	run gpt2ctl artifacts "$1" --copy "$2" --force >/dev/null
	status=$?
	if [ -n "$signal" ] && [ $status -ne 0 ]; then return $status; fi # gpt2d has ended
	run gpt2ctl logs "$1" >"$2/log.txt"
	run gpt2ctl compare "$1" --json >"$2/compare.json"
	run gpt2ctl compare "$1" | tee "$2/compare.txt"
	return $status
}

keep() { # folder of the run, RUN_DIR/NAME
	local to=$2
	[ -d "$1" ] || return # the run has not started
	[ -f "$1/RUN_COMPLETE.txt" ] || to=$2.incomplete
	# RUN_COMPLETE.txt comes last: the files beside it are whole then
	mkdir -p "$to" && tar -C "$1" --exclude=./RUN_COMPLETE.txt -cf - . | tar -C "$to" -xf - &&
		[ "$to" = "$2" ] && cp "$1/RUN_COMPLETE.txt" "$to"
}

# The state of every spec; 0 if each one has a result.
report() {
	local spec name
	for spec in "$@"; do
		name=$(name_of "$spec")
		if [ -f "$run_dir/$name/RUN_COMPLETE.txt" ]; then
			echo "done        $name"
		elif [ -d "$run_dir/$name.incomplete" ] || [ -d "$run_dir/$name" ]; then # or its copy failed
			echo "incomplete  $name"
		else
			echo "not run     $name"
		fi
	done | tee "$run_dir/summary.txt"
	# summary.txt may lack lines where RUN_DIR is full
	for spec in "$@"; do
		[ -f "$run_dir/$(name_of "$spec")/RUN_COMPLETE.txt" ] || return 1
	done
}

# The files that the torchrun launcher saved on the host of rank 0, and the description of the job.
evidence() {
	if command -v nvidia-smi >/dev/null; then nvidia-smi topo -m; fi >"$run_dir/topo.txt" 2>&1
	if command -v ibstat >/dev/null; then ibstat; fi >"$run_dir/ibstat.txt" 2>&1
	scontrol show job "$SLURM_JOB_ID" >"$run_dir/job.txt" 2>&1
}

# Ends the job. At its time limit it may be queued again.
finish() {
	stop
	report "${specs[@]}" && exit
	if [ "$signal" = USR1 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt "${GPT2D_REQUEUE:-0}" ]; then
		say "the job is queued again, restart $((${SLURM_RESTART_COUNT:-0} + 1)) of $GPT2D_REQUEUE"
		at_exit
		trap - TERM
		scontrol requeue "$SLURM_JOB_ID" && sleep 60 # until Slurm ends this script
	fi
	exit 1
}

specs=("$@")
for spec in "$@"; do
	[ -r "$spec" ] || fail "$spec: no such file"
done
[ -z "$(for spec in "$@"; do name_of "$spec"; done | sort | uniq -d)" ] || fail "two specs have the same name"

trap at_exit EXIT
trap 'on_signal TERM' TERM
trap 'on_signal INT' INT
trap 'on_signal USR1' USR1
trap 'on_signal LOST' USR2
knobs
evidence
start
if [ $# -eq 0 ]; then
	say "gpt2ctl works in this shell; gpt2d ends with it"
	"${SHELL:-/bin/bash}"
	exit
fi
for spec in "$@"; do
	[ -z "$signal" ] || break
	if [ -f "$run_dir/$(name_of "$spec")/RUN_COMPLETE.txt" ]; then
		say "$(name_of "$spec"): has a result in $run_dir"
	else
		train "$spec"
	fi
done
finish
