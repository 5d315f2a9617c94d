"""Blocks of an experiment: void blocks, their replacement, the end of the experiment, its files."""

import csv
import hashlib
import json
import os
import re
import signal
import time

import pytest

import shapes
from helpers import agrees, experiment, wait_for

FIRST = 1  # number of the first segment and block


def design(repetitions, steps=2, name="exp", arms=("a", "b"), **keys):
    """An experiment of arms that differ in nothing that changes losses; keys are of its design."""
    run = experiment(name, steps, repetitions, restart=True)
    run["arms"] = {arm: {"zero_optimization": {"reduce_bucket_size": 1000000 + i}} for i, arm in enumerate(arms)}
    run["design"] = {"repetitions": repetitions, "mirrored": True, "seed": 1, "aa_control": False, **keys}
    return run


def rules(*pairs):
    """The environment in which the summary of a segment that is `when` has the members of `set`."""
    return {"GPT2D_FAKE_SUMMARY": json.dumps([{"when": when, "set": members} for when, members in pairs])}


def blocks(shown):
    """The segments by block."""
    found = {}
    for segment in shown["segments"]:
        found.setdefault(segment["block"] - FIRST, []).append(segment)
    return [found[block] for block in sorted(found)]


def voids(shown):
    """Why each block is void, or None."""
    reasons = [{segment["void"] for segment in block} for block in blocks(shown)]
    assert all(len(block) == 1 for block in reasons)
    return [block.pop() for block in reasons]


def files(d, run):
    """experiment.json and the lines of summary.csv of a run, which fit the schema."""
    folder = next((d.state / "runs").glob(f"{run}-*"))
    result = json.loads((folder / "experiment.json").read_text())
    with open(folder / "summary.csv", newline="") as f:
        lines = list(csv.DictReader(f))
    shapes.check("artifacts", "experiment.json", result)
    marker = folder / "RUN_COMPLETE.txt"
    if marker.exists():
        for name, key in (("experiment.json", "experiment_sha256"), ("summary.csv", "summary_sha256")):
            assert f"{key}={hashlib.sha256((folder / name).read_bytes()).hexdigest()}" in marker.read_text()
    return result, lines


def block_events(events):
    return [event["params"] for event in events if event["method"] == "run.block"]


def test_files(daemon):
    with daemon(environment=rules(({}, {"losses": [3.0, 2.5]}))) as d, d.client() as c:
        run = c.submit(design(2))
        events = c.follow(run)
        assert events[-1]["params"]["state"] == "done"
        shown = c.call("show", id=run)
        assert [len(block) for block in blocks(shown)] == [4, 4] and voids(shown) == [None, None]
        result, lines = files(d, run)
        assert [segment["arm"] for segment in result["segments"]] == [segment["arm"] for segment in shown["segments"]]
        assert [line["arm"] for line in lines] == [segment["arm"] for segment in shown["segments"]]
        assert all(line["state"] == "done" and line["void"] == "" for line in lines)
        assert result["segments"][0]["summary"]["losses"] == [3.0, 2.5] and result["design"]["seed"] == 1
        assert result["design"]["kept"] == 2 and result["versions"]["compiler"].startswith(("gcc", "clang"))
        assert [(event["block"], event["kept"], event["blocks"]) for event in block_events(events)] == \
            [(FIRST, 1, 2), (FIRST + 1, 2, 2)]
        assert {"experiment.json", "summary.csv"} <= {file["path"] for file in c.call("artifacts", id=run)["files"]}
        assert agrees(d) == 1


def test_arms_that_are_equal(daemon):
    """The second arm is the control and the only comparison: every block runs."""
    with daemon() as d, d.client() as c:
        run = design(3)
        run["arms"] = {"a": {}, "b": {}}
        del run["design"]["aa_control"]
        run = c.submit(run)
        assert c.wait(run)["state"] == "done"
        assert voids(c.call("show", id=run)) == [None] * 3


def test_void_block_is_replaced(daemon):
    """An engine reports a thermal slowdown in block 1: the rest of that block is skipped, and a block is added."""
    environment = rules(({"block": FIRST + 1, "position": FIRST + 1}, {"void": ["thermal_slowdown"]}))
    with daemon(environment=environment) as d, d.client() as c:
        run = c.submit(design(3))
        events = c.follow(run)
        assert events[-1]["params"]["state"] == "done"
        shown = c.call("show", id=run)
        assert voids(shown) == [None, "thermal_slowdown", None, None]
        assert shown["run"]["segments"] == 16 and shown["run"]["segments_done"] < 16
        assert [event["kept"] for event in block_events(events)] == [1, 1, 2, 3]
        result, _ = files(d, run)
        assert result["design"]["kept"] == 3 and [block["kept"] for block in result["blocks"]] == [True, False, True, True]
        agrees(d)


def test_no_more_than_the_spare_blocks(daemon):
    with daemon(environment=rules(({}, {"void": ["hw_slowdown"]}))) as d, d.client() as c:
        run = c.submit(design(2, spare_blocks=1))
        assert c.wait(run)["reason"] == "no_block: no block counts; the last one: hw_slowdown"
        assert voids(c.call("show", id=run)) == ["hw_slowdown"] * 3


def noisy(arms, n=16):
    """Seconds of an arm's segments: about those given, a little different from block to block."""
    return rules(*(({"arm": arm, "block": FIRST + block}, {"seconds_measured": seconds * (1 + 1e-4 * (block * 7 % 5))})
        for arm, seconds in arms.items() for block in range(n)))


def test_stops_when_narrow(daemon):
    environment = rules(*(({"arm": "b", "block": FIRST + block}, {"seconds_measured": 1 + 1e-5 * (block * 7 % 5)})
        for block in range(16)), ({"arm": "a"}, {"seconds_measured": 1.0}))
    with daemon(environment=environment) as d, d.client() as c:
        run = c.submit(design(12, stop_when={"half_width": 0.002}))
        events = c.follow(run)
        assert events[-1]["params"]["state"] == "done"
        shown = c.call("show", id=run)
        assert len(blocks(shown)) == 8 and shown["run"]["segments"] == 32
        assert block_events(events)[-1]["blocks"] == 8
        assert files(d, run)[0]["design"]["alpha"] == 0.03
        agrees(d)


def test_suspect_control(daemon):
    """The baseline differs from itself: four blocks more, once."""
    with daemon(environment=noisy({"a": 1.0, "b": 1.0, "a-aa": 1.2})) as d, d.client() as c:
        run = c.submit(design(8, aa_control=True))
        events = c.follow(run)
        assert events[-1]["params"]["state"] == "done"
        assert len(blocks(c.call("show", id=run))) == 12
        row = next(row for row in files(d, run)[0]["comparisons"] if row["arm"] == "b")
        assert row["verdict"] == "AMBIGUOUS" and row["aa_control"]["ok"] is False


def test_lost_engine(daemon):
    """It costs its block; the experiment continues with the next engines."""
    with daemon() as d, d.client() as c:
        run = c.submit(design(3, steps=30, name="exp-ms10"))
        wait_for(lambda: c.call("show", id=run)["segments"][5]["state"] == "training", "the second block")
        os.kill(c.call("status")["engine"]["ranks"][0]["pid"], signal.SIGKILL)
        assert c.wait(run)["state"] == "done"
        shown = c.call("show", id=run)
        assert [bool(void) for void in voids(shown)] == [False, True, False, False]
        assert voids(shown)[1].startswith("engine_replaced: engine_lost: ")
        assert {segment["state"] for segment in blocks(shown)[1]} == {"done", "failed", "skipped"}
        assert shown["run"]["attempt"] == 1 and agrees(d) == 1
        assert [line["message"] for line in c.call("logs", id=run)["lines"] if line["level"] == "warning"] == \
            [f"block {FIRST + 1} is void: {voids(shown)[1]}"]


def test_arm_fails(daemon):
    """An arm that loses an engine twice in a row is left out; the results of the others count."""
    with daemon(environment={"GPT2D_FAKE_CRASH": json.dumps({"arm": "b"})}) as d, d.client() as c:
        run = c.submit(design(3, arms=("a", "b", "c")))
        end = c.wait(run)
        assert end["state"] == "failed" and end["reason"].startswith("arm_failed: b: engine_lost: ")
        shown = c.call("show", id=run)
        assert [bool(void) for void in voids(shown)] == [True, True, False, False][:len(voids(shown))]
        assert all(segment["state"] == ("skipped" if segment["arm"] == "b" else "done")
            for block in blocks(shown)[2:] for segment in block)
        result, _ = files(d, run)
        assert [arm["failed"] for arm in result["arms"]] == [False, True, False]
        assert result["design"]["kept"] == len(blocks(shown)) - 2 > 0
        agrees(d)


def test_arm_cannot_be_trained(daemon, tmp_path):
    """Its first segment fails: its others are left out, also after a restart, and the other arms continue in whole blocks."""
    with daemon(home=tmp_path, environment={"GPT2D_FAKE_FAIL": json.dumps({"arm": "b"})}) as d:
        with d.client() as c:
            run = c.submit(design(3, steps=20, name="exp-ms10", arms=("a", "b", "c")))
            wait_for(lambda: any(s["state"] == "training" for s in blocks(c.call("show", id=run))[1]), "the second block")
        os.kill(d.process.pid, signal.SIGKILL)
        d.process.wait()
        d.start()
        with d.client() as c:
            end = c.wait(run)
            assert (end["state"], end["reason"]) == ("failed", "arm_failed: b: made_up: rank 0: as asked")
            shown = c.call("show", id=run)
            assert voids(shown) == [None, "daemon_restart", None, None]
            states = [segment["state"] for segment in shown["segments"] if segment["arm"] == "b"]
            assert states.count("failed") == 1 and set(states) == {"failed", "skipped"}
            result, _ = files(d, run)
            assert result["design"]["kept"] == 3 and [arm["failed"] for arm in result["arms"]] == [False, True, False]
            assert {row["arm"]: row["reason_text"] for row in result["comparisons"]}["b"] == "the arm failed"
            assert c.call("status")["engine"]["restarts"] == 0 and agrees(d) == 0


def test_only_arm_cannot_be_trained(daemon):
    """The rest of the block would be trained for nothing."""
    with daemon(environment={"GPT2D_FAKE_FAIL": json.dumps({"arm": "b"})}) as d, d.client() as c:
        run = c.submit(design(8, aa_control=True))
        assert c.wait(run)["reason"] == "arm_failed: b: made_up: rank 0: as asked"
        shown = c.call("show", id=run)
        assert len(blocks(shown)) == 1 and "waiting" not in {segment["state"] for segment in shown["segments"]}
        assert c.wait(c.submit(design(1, arms=("c", "d"))))["state"] == "done" and agrees(d) == 1


def test_only_arm_fails(daemon):
    """Nothing is left to compare: the experiment ends."""
    with daemon(environment={"GPT2D_FAKE_CRASH": json.dumps({"arm": "a"})}) as d, d.client() as c:
        run = c.submit(design(8))
        assert c.wait(run)["reason"].startswith("arm_failed: a: ")
        assert len(blocks(c.call("show", id=run))) == 2
        agrees(d)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_restart(daemon, tmp_path, how):
    """Finished blocks stay, the open one is void, and the experiment continues with the next."""
    with daemon(home=tmp_path, environment=rules(({}, {}))) as d:
        with d.client() as c:
            run = c.submit(design(4, steps=30, name="exp-ms10"))
            wait_for(lambda: c.call("show", id=run)["segments"][5]["state"] == "training", "the second block")
            before = [segment["ended_at"] for segment in c.call("show", id=run)["segments"][:4]]
            if how == signal.SIGTERM:
                c.call("shutdown", now=True)
            else:
                os.kill(d.process.pid, how)
        d.process.wait()
        d.start()
        with d.client() as c:
            assert c.wait(run)["state"] == "done"
            shown = c.call("show", id=run)
            assert voids(shown) == [None, "daemon_restart", None, None, None]
            assert [segment["ended_at"] for segment in shown["segments"][:4]] == before
            assert shown["run"]["attempt"] == 1 and shown["run"]["segments"] == 20
            result, _ = files(d, run)
            assert result["spans_restart"] is True and result["design"]["kept"] == 4
            assert agrees(d) == 1


def test_killed_at_any_time(daemon, tmp_path):
    """No finished block is lost, even if gpt2d dies often."""
    with daemon(home=tmp_path, environment=rules(({}, {}))) as d:
        with d.client() as c:
            run = c.submit(design(4, steps=20, name="exp-ms10", spare_blocks=4))
        done = 0
        for block in (1, 2):
            with d.client() as c:
                wait_for(lambda: sum(s["state"] == "done" for s in c.call("show", id=run)["segments"]) >= done + 5,
                    "a block")
                done = 4 * block
            os.kill(d.process.pid, signal.SIGKILL)
            d.process.wait()
            d.start()
        with d.client() as c:
            assert c.wait(run)["state"] == "done"
            shown = c.call("show", id=run)
            assert sum(void is None for void in voids(shown)) == 4
            assert files(d, run)[0]["design"]["kept"] == 4 and agrees(d) == 1


@pytest.mark.parametrize("how, state, reason", [("cancel", "cancelled", "cancelled: asked for"),
    ("shutdown", "interrupted", "daemon_stop: ")])
def test_ends_early(daemon, how, state, reason):
    """The files have the blocks so far, and how the run ended."""
    with daemon() as d:
        with d.client() as c:
            run = c.submit({**design(4, steps=30, name="exp-ms10"), "restart": False})
            wait_for(lambda: c.call("show", id=run)["segments"][5]["state"] == "training", "the second block")
            if how == "cancel":
                c.call("cancel", id=run)
                assert c.wait(run)["state"] == state
            else:
                c.call("shutdown", now=True)
        if how == "shutdown":
            d.process.wait()
        result, lines = files(d, run)
        assert result["run"]["state"] == state and result["run"]["reason"].startswith(reason) and result["run"]["ended_at"]
        assert result["design"]["kept"] == 1 and [block["kept"] for block in result["blocks"]] == [True, False]
        assert result["comparisons"][0]["blocks"] == 1
        assert [line["state"] for line in lines[:5]] == ["done"] * 5 and lines[5]["state"] in ("cancelled", "training")
        assert {line["state"] for line in lines[6:]} == {"waiting"} and len(lines) == 16
        if how == "shutdown":
            d.start()
        with d.client() as c:
            assert c.call("show", id=run)["run"]["state"] == state
            second = c.submit(design(1))
            assert c.wait(second)["state"] == "done" and agrees(d) == 1


def test_ends_before_a_segment_is_done(daemon):
    """Then there is nothing to compare, and no file of it."""
    with daemon() as d, d.client() as c:
        run = c.submit(design(4, steps=1000, name="exp-ms10"))
        wait_for(lambda: c.call("show", id=run)["segments"][0]["state"] == "training", "the first segment")
        c.call("cancel", id=run)
        assert c.wait(run)["state"] == "cancelled"
        folder = next((d.state / "runs").glob(f"{run}-*"))
        assert not (folder / "experiment.json").exists() and not (folder / "summary.csv").exists()


def test_standstill(daemon):
    """gpt2d is suspended for a while in a block."""
    with daemon() as d, d.client() as c:
        run = c.submit(design(2, steps=100, name="exp-ms10"))
        wait_for(lambda: c.call("show", id=run)["segments"][1]["state"] == "training", "the second segment")
        d.process.send_signal(signal.SIGSTOP)
        time.sleep(1.2)
        d.process.send_signal(signal.SIGCONT)
        assert c.wait(run)["state"] == "done"
        void = voids(c.call("show", id=run))
        assert re.fullmatch(r"standstill: gpt2d, \d+\.\d s", void[0]) and void[1:] == [None, None]
