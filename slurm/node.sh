#!/usr/bin/env bash
# node.sh: runs the gpt2d of one node of a job; srun starts it for job.sh.
# usage: node.sh FOLDER FIRST_ID PEER [OPTION...]
# FOLDER is on the node's own disk. The nodes of a step have the IDs FIRST_ID, FIRST_ID + 1, ... PEER is
# another node of the job; empty: there is none. OPTIONs are those of gpt2d.
set -u
folder=$1 id=$(($2 + SLURM_NODEID)) peer=$3
shift 3
# job.sh still copies from the folder of the first node
trap '[ "$id" -eq 0 ] || rm -rf "$folder"' EXIT
options=(--socket "$folder/gpt2d.sock" --state-dir "$folder/state" --log-file "$RUN_DIR/log/$SLURMD_NODENAME.log" "$@")

if [ -n "$peer" ]; then
	address=$({ getent ahostsv4 "$peer" || getent ahosts "$peer"; } | sed -n '1s/ .*//p')
	interface=${GPT2D_INTERFACE:-$(ip -o route get "$address" | sed -n 's/.* dev \([^ ]*\).*/\1/p')}
	if [ -z "$interface" ]; then
		echo "node.sh: no route from $SLURMD_NODENAME to $peer: set GPT2D_INTERFACE" >&2
		exit 1
	fi
	options+=(--node-id "$id" --key-file "$folder/key" --interface "$interface" --link-interface "$interface")
fi

# Slurm and srun signal gpt2d too. This shell only waits.
trap : TERM INT USR1
gpt2d "${options[@]}" &
gpt2d=$!
while kill -0 "$gpt2d" 2>/dev/null; do
	wait "$gpt2d"
done
wait "$gpt2d"
