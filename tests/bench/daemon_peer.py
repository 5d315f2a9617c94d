#!/usr/bin/env python3
"""The same work through gpt2d and gpt2ctl: daemon_peer.py BUILD RANKS [DEVICE [STATE]] < LINES

Starts a daemon of its own on RANKS ranks, whose state is in STATE, and for each line "SPEC" of standard input submits it, waits for its end,
and prints one JSON object. One line, {"ready_s": ...}, comes first: how long engines took from nothing to ready.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time


def figures(folder):
    metrics = json.loads((folder / "training_metrics.json").read_text(encoding="utf-8"))
    measured = metrics["epochs"][0]
    return {"tokens_per_s": measured["tokens_per_sec_global"], "step_ms_mean": 1e3 * measured["step_time_mean_sec"],
            "metrics": metrics}


def main():
    build, ranks = pathlib.Path(sys.argv[1]).absolute(), sys.argv[2]
    device = sys.argv[3] if len(sys.argv) > 3 else "cuda"
    with tempfile.TemporaryDirectory() as home:
        state = sys.argv[4] if len(sys.argv) > 4 else f"{home}/state"
        os.environ["GPT2D_SOCKET"] = f"{home}/socket"
        ctl = [str(build / "ctl" / "gpt2ctl")]
        start = time.monotonic()
        with open(f"{home}/log", "w", encoding="utf-8") as log:
            daemon = subprocess.Popen(
                [str(build / "daemon" / "gpt2d"), "-c", "/dev/null", "--state-dir", state, "--ranks", ranks,
                 "--device", device, "--engine", str(build / "engine" / f"gpt2-engine-{device}")],
                stdout=log, stderr=log)
        try:
            while not os.path.exists(f"{home}/socket") and daemon.poll() is None and time.monotonic() - start < 10:
                time.sleep(0.01)
            warm = subprocess.run(ctl + ["warm", "--wait", "--timeout", "60"], capture_output=True, text=True,
                                  check=False)
            if warm.returncode:
                print(json.dumps({"error": f"{warm.stderr} {pathlib.Path(home, 'log').read_text()}"[-1000:]}), flush=True)
                return
            print(json.dumps({"ready_s": time.monotonic() - start}), flush=True)
            for line in sys.stdin:
                run = subprocess.run(ctl + ["submit", "--follow", "--json", "--quiet", line.strip()], capture_output=True,
                                     text=True, check=False)
                try:
                    last = json.loads(run.stdout.splitlines()[-1])
                    if run.returncode:
                        raise ValueError(f"{last}")
                    answer = figures(pathlib.Path(last["dir"]))
                except (ValueError, LookupError, OSError) as e:
                    answer = {"error": f"status {run.returncode}: {e} {run.stderr}"[:1000]}
                print(json.dumps(answer), flush=True)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(30)


main()
