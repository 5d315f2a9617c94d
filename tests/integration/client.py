"""A scripted gpt2d's answers, and gpt2ctl called with them, for the tests of gpt2ctl."""

import json
import os
import subprocess

from fake_daemon import run_object
from helpers import BUILD

CTL = BUILD / "ctl" / "gpt2ctl"

SPEC = {
    "name": "demo",
    "model": {"preset": "nano"},
    "data": {"kind": "synthetic", "synthetic_tokens": 100000},
    "seq_len": 64,
    "gpus": 2,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 1,
    "work": {"optimizer_steps": 20},
}


def environment(path=None, **more):
    env = {key: value for key, value in os.environ.items()
        if key not in ("GPT2D_SOCKET", "XDG_RUNTIME_DIR", "NO_COLOR", "COLUMNS")}
    env["TERM"] = "xterm"
    if path:
        env["GPT2D_SOCKET"] = str(path)
    env.update(more)
    return env


def ctl(*args, path=None, input=None, env=None, timeout=60, **more):
    return subprocess.run([CTL, *map(str, args)], input=input, capture_output=True, text=True,
        env=environment(path, **(env or {})), timeout=timeout, **more)


def step(n, seq, **more):
    return ("run.step", {"seq": seq, "segment": 1, "segments": 1, "block": 1, "arm": "run", "step": n, "steps": 20,
        "loss": 5.5 - n / 10, "tokens_per_sec": 12345.0, "step_time_ns": 1000000, "eta_s": 1.0, **more})


def done(seq, state="done", reason=None, dropped=0):
    return ("run.done", {"seq": seq, "state": state, "reason": reason, "dir": "/state/runs/1-demo", "dropped": dropped})


def one_object(text):
    lines = text.splitlines()
    assert len(lines) == 1, text
    value = json.loads(lines[0])
    assert value["schema"] == 1
    return value


def verbs():
    return json.loads(ctl("help", "--json").stdout)["verbs"]


def status_reply(params, connection):
    return {
        "daemon": {"pid": 4, "uid": 0, "version": "0.1.0", "build": "fake", "state": "serving", "uptime_s": 61.0,
            "rss_bytes": 9000000, "socket": "/s", "state_dir": "/state", "clients": 1},
        "engine": {"state": "ready", "reason": None, "program": "gpt2-engine-cpu", "threads": 1, "restarts": 0,
            "retry_in_s": None, "ranks": [{"rank": 0, "pid": 11, "state": "ready", "device": {"name": "cpu"}}]},
        "running": {"run": run_object(3, state="running"), "progress": step(10, 1, eta_s=5.0)[1]},
        "waiting": None, "queued": 4, "counts": {"done": 2, "queued": 4, "running": 1}}


def segment(number, arm, times, **more):
    """The segment with this index, from 0."""
    tokens = 100 * len(times)
    return {"segment": number + 1, "block": number // 2 + 1, "position": number % 2 + 1, "arm": arm, "state": "done", "reason": "", "void": None,
        "started_at": None, "ended_at": None, "dir": "", "summary": {
            "tokens_measured": tokens, "seconds_measured": sum(times) / 1e9, "tok_s_global": tokens * 1e9 / sum(times),
            "step_time_ns": times, "exposed_comm_mean_s": 1e-4, "forward_mean_s": 1e-3, "backward_mean_s": 2e-3,
            "optimizer_mean_s": 1e-4, "data_mean_s": 1e-5, "losses": [5.0, 4.0], "loss_hash": "aa", "data_hash": "dd",
            "tokens_total": tokens, "steps_attempted": len(times), "steps_applied": len(times),
            "init_ns": 4000000, "switch_ns": 12000000 if number else None, "steps_skipped": 0,
            "plan": {"reduce_elems": 64, "n_reduce": 8 if arm == "B" else 1, "gather_elems": 64, "n_gather": 8,
                "arena_elems": 512, "elem_bytes": 4}, **more}}


def experiment(*segments, design=None, arms=None, **run):
    """A "show" method: a run whose spec has the arms of the segments, which differ in the reduce bucket."""
    names = sorted({row["arm"] for row in segments})
    spec = {**SPEC, "arms": arms or {name: {"zero_optimization": {"reduce_bucket_size": 64 << i}} for i, name in enumerate(names)},
        "design": {"aa_control": False, **(design or {})}}
    if names == ["run"]:
        spec = SPEC

    def show(params, connection):
        return {"run": run_object(5, "ab", **{"state": "done", "segments": len(segments), **run}), "spec": spec, "checks": [],
            "segments": list(segments), "transitions": [], "progress": None, "next": None}
    return show
