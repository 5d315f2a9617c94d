#!/usr/bin/env python3
"""The same work in llm.c (README.md: how it is built): llmc_peer.py TRAIN_GPT2CU < LINES

For each line "SPEC" of standard input a training from nothing of llm.c's own GPT-2 124M on as many GPUs as the spec's
"gpus", one process each, and one JSON object. bf16, fp32 master weights, ZeRO-1 on several GPUs, nothing computed
again in backward (-r 0), GELU in the products (-ge 2); its gradients are bf16 and so are what it reduces. A step's
time is the one llm.c prints; the warm-up steps of the spec are left out.
"""

import json
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time

MAGIC, VERSION, HEADER_INTS = 20240520, 1, 256  # llm.c's token files
STEP = re.compile(r"^step +(\d+)/\d+ \| loss ([0-9.naninf-]+) .*\| ([0-9.]+) ms \|", re.MULTILINE)
LIMIT = 120  # seconds for one training


def write_tokens(path, count, vocabulary):
    """Tokens of a counter: what they are is no part of the time."""
    values = [(i * 2654435761 >> 7) % vocabulary for i in range(count)]
    header = [MAGIC, VERSION, count] + [0] * (HEADER_INTS - 3)
    path.write_bytes(struct.pack(f"<{HEADER_INTS}i", *header) + struct.pack(f"<{count}H", *values))


def command_of(program, spec, folder, rank, steps):
    ranks = spec.get("gpus", 1)
    micro, seq = spec["train_micro_batch_size_per_gpu"], spec["seq_len"]
    total = micro * seq * spec.get("gradient_accumulation_steps", 1) * ranks
    tokens = folder / f"tokens_{total}.bin"
    if not tokens.exists():
        write_tokens(tokens, 4 * total + 1, spec["model"]["vocab_size"])
    options = {"i": tokens, "j": tokens, "e": "d12", "b": micro, "t": seq, "d": total, "x": steps, "l": 1e-4, "c": 0.1,
               "v": 1000000, "m": 1, "s": 0, "h": 0, "r": 0, "ge": 2, "z": 1 if ranks > 1 else 0, "pi": "fs",
               "pf": folder, "pn": ranks, "pr": rank, "pg": ranks}
    return [program] + [str(part) for key, value in options.items() for part in ("-" + key, value)]


def used_mib():
    """What other programs hold on the first GPU: llm.c prints what all of them do."""
    said = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=True).stdout.split()
    return float(said[int((os.environ.get("CUDA_VISIBLE_DEVICES") or "0").split(",")[0])])


def train(program, spec, folder):
    work = spec["work"]
    warm, steps, ranks = work.get("warmup_steps", 0), work["optimizer_steps"], spec.get("gpus", 1)
    for left_over in folder.glob("ncclUniqueId*"):
        left_over.unlink()
    others_mib = used_mib()
    start = time.monotonic()
    logs = [folder / f"rank{rank}.log" for rank in range(ranks)]
    children = []
    try:
        for rank, log in enumerate(logs):
            with open(log, "w", encoding="utf-8") as out:
                children.append(subprocess.Popen(command_of(program, spec, folder, rank, steps), cwd=folder, stdout=out,
                                                 stderr=subprocess.STDOUT))
        for child in children:
            child.wait(max(1, LIMIT - (time.monotonic() - start)))
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()
    text = logs[0].read_text(encoding="utf-8", errors="replace")
    found = STEP.findall(text)
    if any(child.returncode for child in children) or len(found) != steps:
        raise RuntimeError(f"{len(found)} of {steps} steps, statuses {[c.returncode for c in children]}: "
                           f"{text.strip()[-200:]}")
    ms = [float(row[2]) for row in found[warm:]]
    memory = re.search(r"device memory usage: (\d+) MiB", text)
    total = ranks * spec["train_micro_batch_size_per_gpu"] * spec["seq_len"] * spec.get("gradient_accumulation_steps", 1)
    return {"tokens_per_s": 1e3 * total / statistics.fmean(ms), "step_ms_mean": statistics.fmean(ms),
            "step_ms_median": statistics.median(ms), "steps": len(ms), "loss_last": float(found[-1][1]),
            "precision": "bf16", "grad_dtype": "bf16", "memory_mib": float(memory.group(1)) - others_mib if memory else None,
            "seconds": time.monotonic() - start}


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            try:
                spec = json.loads(pathlib.Path(line.strip()).read_text(encoding="utf-8"))
                if not spec.get("bf16", {}).get("enabled"):
                    raise ValueError("this build of llm.c computes in bf16 only")
                print(json.dumps(train(program, spec, pathlib.Path(folder))), flush=True)
            except Exception as e:  # the driver goes on with its other works
                print(json.dumps({"error": f"{type(e).__name__}: {e}"[:500]}), flush=True)


main()
