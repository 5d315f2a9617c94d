"""Each rank's own times of each step, and the rank for which the others wait."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

import engines
from helpers import spec

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
