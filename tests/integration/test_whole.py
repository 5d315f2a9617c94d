"""gpt2d with the real engine: behaviour of both together."""

import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

import engines
from helpers import refusal, spec


def shown_done(c, run):
    """The reply to "show" of a run that is done."""
    done = c.wait(run)
    assert done["state"] == "done", done
    return c.call("show", id=run)


def metrics(segment):
    return json.loads((Path(segment["dir"]) / "training_metrics.json").read_text())["gpt2d"]


def test_arms_of_different_worlds(daemon):
    """gpus may differ between arms like any key: each segment runs on its own arm's ranks."""
    run = engines.spec(2, gpus=1, train_micro_batch_size_per_gpu=4, arms={
        "one": {}, "two": {"gpus": 2, "train_micro_batch_size_per_gpu": 2},
    }, design={"repetitions": 2, "aa_control": False})
    with daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        segments = shown_done(c, c.submit(run))["segments"]
        worlds = {segment["arm"]: metrics(segment)["world"] for segment in segments}
        losses = {segment["arm"]: metrics(segment)["losses"] for segment in segments}
    assert len(segments) == 8 and worlds == {"one": 1, "two": 2}
    assert max(abs(a - b) for a, b in zip(losses["one"], losses["two"])) < 1e-5


def test_data_that_is_replaced_between_segments(daemon, tmp_path):
    """By another file with its name, which becomes new data for the next run; arms have different files."""
    files = {name: tmp_path / f"{name}.bin" for name in ("one", "two", "new")}
    for name, file in files.items():
        file.write_bytes(b"\x01\x00\x02\x00" * (3000 if name == "new" else 4000))
    run = engines.spec(1, data={"train": str(files["one"])}, arms={
        "one": {}, "two": {"data": {"train": str(files["two"])}},
    }, design={"repetitions": 100}, work={"optimizer_steps": 12})
    short = {**run, "design": {"repetitions": 2}}
    with daemon(ranks=1, engine=engines.PROGRAM) as d, d.client() as c:
        shown_done(c, c.submit(short))
        id = c.submit(run)
        c.call("follow", id=id, after=0)
        while c.event()["params"].get("segment") != 3:
            pass
        files["new"].rename(files["two"])
        while (event := c.event())["method"] != "run.done":
            pass
        end = event["params"]
        failed = [s for s in c.call("show", id=id)["segments"] if s["state"] == "failed"]
        assert end["state"] == "failed"
        assert end["reason"].startswith(f"arm_failed: two: data: rank 0: {files['two']}: not the file of the run's first "
            "segments: 16000 bytes")
        assert [segment["arm"] for segment in failed] == ["two"]
        shown_done(c, c.submit(short))  # each run has its own


def test_recomputed_activations_are_the_same_training(daemon):
    """Arms that keep all activations, some, or only the blocks' inputs: one loss trace, less memory."""
    settings = ["none", "selective", "full"]
    model = {"n_layer": 4, "n_head": 2, "n_embd": 32, "vocab_size": 96, "n_positions": 32, "dropout": 0.1}
    run = engines.spec(2, model=model, arms={s: {"activation_checkpointing": s} for s in settings},
        design={"repetitions": 2, "aa_control": False})
    with daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        planned = {arm["arm"]: arm["check"]["memory"] for arm in c.call("dry-run", spec=run)["arms"]}
        segments = shown_done(c, c.submit(run))["segments"]
        taken = {segment["arm"]: metrics(segment)["memory"] for segment in segments}
        losses = {segment["arm"]: metrics(segment)["losses"] for segment in segments}
        hashes = {segment["summary"]["loss_hash"] for segment in segments}
    assert len(hashes) == 1 and len(segments) == 12
    assert losses["none"] == losses["selective"] == losses["full"]
    for setting in settings:
        assert taken[setting]["activation_checkpointing"] == planned[setting]["activation_checkpointing"] == setting
        for key in ("activations_bytes", "logits_bytes"):
            assert taken[setting][key] == planned[setting][key] > 0
        assert planned["none"][f"activations_{setting}_bytes"] == planned[setting]["activations_bytes"]
    assert taken["full"]["device_bytes"] < taken["selective"]["device_bytes"] < taken["none"]["device_bytes"]


def test_a_refusal_for_memory_names_what_would_fit(daemon):
    """As many sequences as fit only with little kept, and do not fit with everything kept."""
    model = {"n_layer": 40, "n_head": 2, "n_embd": 128, "vocab_size": 96, "n_positions": 32}
    run = engines.spec(1, model=model, data={"kind": "synthetic", "synthetic_tokens": 2**40}, gradient_accumulation_steps=1)
    with daemon(ranks=1, engine=engines.PROGRAM) as d, d.client() as c:
        memory = c.call("dry-run", spec=run)["arms"][0]["check"]["memory"]
        per_sequence = memory["activations_selective_bytes"] / run["train_micro_batch_size_per_gpu"]
        run["train_micro_batch_size_per_gpu"] = int(memory["available_bytes"] / per_sequence) + 1
        refused = refusal(c.submit, run)
        assert not c.call("list")["runs"]
        run["activation_checkpointing"] = "full"
        memory = c.call("dry-run", spec=run)["arms"][0]["check"]["memory"]
    error = refused.data["errors"][0]
    assert error["key"] == "train_micro_batch_size_per_gpu"
    assert re.search(r"^memory: [\d.]+ [GT]B planned.*, [\d.]+ GB available", error["message"]), error
    assert "; largest of a rank: activations, " in error["message"]
    size, unit = re.search(r"; with activation_checkpointing full ([\d.]+) ([MG])B$", error["message"]).groups()
    assert float(size) * {"M": 1e6, "G": 1e9}[unit] == pytest.approx(memory["planned_bytes"], rel=0.006)
    assert memory["planned_bytes"] < memory["available_bytes"]


pytestmark = pytest.mark.skipif(not engines.PROGRAM.exists(), reason="no engine was built")

STEPS, WARMUP = 100, 2
PHASES = ("data_s", "forward_s", "backward_s", "exposed_comm_s", "optimizer_s")
STOPPED_S, RUNNING_S = 0.015, 0.005


@contextlib.contextmanager
def slowed_down(pid):
    """It is stopped three quarters of the time."""
    over = threading.Event()

    def slow_down():
        while not over.wait(RUNNING_S):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(STOPPED_S)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=slow_down)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def trained(d, c, name):
    """The run's folder and the summary of its segment."""
    run = c.submit(spec(name, gpus=2, work={"optimizer_steps": STEPS, "warmup_steps": WARMUP}))
    assert c.wait(run)["state"] == "done"
    shown = c.call("show", id=run)
    return Path(shown["run"]["dir"]), shown["segments"][0]["summary"]


def read(path):
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(file))


def mean(values):
    values = list(values)
    return sum(values) / len(values)


@pytest.mark.parametrize("slow", [0, 1])
def test_the_slow_rank(daemon, slow):
    with daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        even, at_speed = trained(d, c, "even")
        with slowed_down(d.engines()[slow]):
            uneven, summary = trained(d, c, "uneven")
        rows = read(uneven / "rank_times.csv")
        assert [(row["global_step"], row["rank"]) for row in rows] == [
            (str(step), str(rank)) for step in range(1, STEPS + 1) for rank in range(2)]

        metrics = json.loads((uneven / "training_metrics.json").read_text())["gpt2d"]
        times = [sum(float(row["step_time_s"]) for row in rows[2 * WARMUP:] if row["rank"] == str(rank)) for rank in range(2)]
        assert summary["seconds_measured"] == pytest.approx(max(times), rel=1e-9)
        works = []
        for rank in range(2):
            own = [row for row in rows[2 * WARMUP:] if row["rank"] == str(rank)]
            works.append(mean(float(row["step_time_s"]) - float(row["exposed_comm_s"]) for row in own))
            assert metrics["ranks"][rank]["work_mean_s"] == pytest.approx(works[rank], rel=1e-9)
            for phase in PHASES:
                assert metrics["ranks"][rank]["phases"][phase.replace("_s", "_mean_s")] == pytest.approx(
                    mean(float(row[phase]) for row in own), rel=1e-9, abs=1e-12)
        exposed = summary["exposed_comm_mean_s"]
        assert summary["exposed_transfer_mean_s"] + summary["exposed_wait_mean_s"] == pytest.approx(exposed)
        assert summary["exposed_wait_mean_s"] > exposed / 5 and summary["exposed_split_steps"] == STEPS - WARMUP
        assert 0 < exposed / 3 < summary["comm_total_mean_s"]
        assert summary["forward_mean_s"] == pytest.approx(
            mean(metrics["ranks"][rank]["phases"]["forward_mean_s"] for rank in range(2)))
        assert works[slow] > 1.5 * works[1 - slow]
        assert metrics["slowest_rank"] == {"rank": slow, "work_mean_s": pytest.approx(works[slow]),
            "others_median_s": pytest.approx(works[1 - slow]), "parts": 8,
            "most_in": metrics["slowest_rank"]["most_in"]}
        assert metrics["slowest_rank"]["most_in"] >= 6
        assert summary["slowest_rank"] == metrics["slowest_rank"]
        for verb in ("show", "compare"):
            said = subprocess.run([engines.BUILD / "ctl/gpt2ctl", "--socket", d.socket, verb, "2"], capture_output=True,
                text=True, timeout=60, check=True).stdout
            assert f"\nslow rank: the others wait for rank {slow}, +" in said

        # what step_log.csv has is the slowest rank's of each, and nobody trained otherwise for it
        for i, step in enumerate(read(uneven / "step_log.csv")):
            for key in ("step_time_s", *PHASES):
                assert float(step[key]) == max(float(row[key]) for row in rows[2 * i:2 * i + 2])
        assert summary["loss_hash"] == at_speed["loss_hash"]
        listed = {file["path"]: file for file in c.call("artifacts", id=2)["files"]}
        assert listed["rank_times.csv"]["bytes"] == (uneven / "rank_times.csv").stat().st_size


def test_one_rank_waits_for_none(daemon):
    with daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        run = c.submit(spec("one", gpus=1))
        assert c.wait(run)["state"] == "done"
        shown = c.call("show", id=run)
        assert shown["segments"][0]["summary"]["slowest_rank"] is None
        assert not (Path(shown["run"]["dir"]) / "rank_times.csv").exists()
