"""Runs through gpt2d with an engine that trains nothing: order, failures, cancels, restarts."""

import json
import os
import signal
import subprocess
import time

import pytest

from helpers import BUILD, PATIENCE_S, experiment, folders, has_ended, refusal, spec, wait_for


def methods(events, name):
    return [event["params"] for event in events if event["method"] == name]


def states(events):
    return [params["state"] for params in methods(events, "run.state")]


def test_a_run(daemon):
    with daemon(ranks=2) as d, d.client() as c:
        run = c.submit(spec("first"))
        events = c.follow(run, after=0)
        assert run == 1
        assert states(events) == ["queued", "starting", "running", "finishing", "done"]
        assert [e["params"]["seq"] for e in events] == list(range(1, len(events) + 1))
        assert [p["state"] for p in methods(events, "run.segment")] == ["training", "trained", "done"]
        steps = methods(events, "run.step")
        assert steps[-1]["step"] == steps[-1]["steps"] == 3
        done = events[-1]["params"]
        assert done["state"] == "done" and done["dropped"] == 0 and done["reason"] is None
        assert done["dir"] == str(d.state / "runs" / "1-first")
        assert os.path.exists(done["dir"] + "/RUN_COMPLETE.txt")
        shown = c.call("show", id=run)
        assert shown["segments"][0]["summary"]["loss_last"] == 1.5
        assert shown["checks"][0]["check"]["memory"]["total_bytes"] == 0
        assert shown["spec"]["gpus"] == 2
        assert [t["state"] for t in shown["transitions"]] == states(events)
        assert shown["run"]["uid"] == os.getuid()


def test_an_experiment(daemon):
    with daemon(ranks=2) as d, d.client() as c:
        run = c.submit(experiment("ab", repetitions=3))
        events = c.follow(run, after=0)
        shown = c.call("show", id=run)
        assert shown["run"]["segments"] == shown["run"]["segments_done"] == 12
        order = [(s["block"], s["position"], s["arm"]) for s in shown["segments"]]
        for block in (1, 2, 3):
            arms = "".join(arm for b, _, arm in order if b == block)
            assert arms in ("abba", "baab")
        # the next segment is with the engines before the one before it is durable
        reported = [(p["segment"], p["state"]) for p in methods(events, "run.segment")]
        for segment in range(1, 12):
            assert reported.index((segment + 1, "training")) < reported.index((segment, "done"))
        top = d.state / "runs" / f"{run}-ab"
        assert json.loads((top / "spec.json").read_text())["name"] == "ab"
        assert f"run_id={run} " in (top / "RUN_COMPLETE.txt").read_text()
        for segment in shown["segments"]:
            folder = top / "segments" / f"{segment['segment']:03d}-{segment['arm']}"
            assert segment["dir"] == str(folder)
            assert segment["state"] == "done" and segment["summary"]["tokens_total"] == segment["segment"]
            assert (folder / "RUN_COMPLETE.txt").exists()


def test_marker_comes_last(daemon):
    """The marker of an experiment does not exist while its last segment is being written."""
    with daemon() as d, d.client() as c:
        run = c.submit(experiment("ab-endheld", repetitions=1))
        marker = d.state / "runs" / f"{run}-ab-endheld" / "RUN_COMPLETE.txt"
        wait_for(lambda: c.call("show", id=run)["segments"][-1]["state"] == "trained", "trained")
        assert c.state(run) == "running" and not marker.exists()
        d.unhold()
        assert c.wait(run)["state"] == "done"
        assert marker.exists()


def test_fewer_ranks_than_there_are(daemon):
    with daemon(ranks=3) as d, d.client() as c:
        run = c.submit(spec("two", gpus=2))  # the engine asserts that it is one of the world
        assert c.wait(run)["state"] == "done"
        assert c.call("show", id=run)["run"]["gpus"] == 2
        refused = refusal(c.submit, spec("four", gpus=4))
        assert refused.code == -32002 and refused.data["errors"][0]["key"] == "gpus"


def test_first_in_first_out(daemon):
    with daemon() as d, d.client() as c:
        runs = [c.submit(spec(f"r{i}-ms10", 4)) for i in range(6)]
        assert runs == [1, 2, 3, 4, 5, 6]
        for run in runs:
            assert c.wait(run)["state"] == "done"
        listed = c.call("list")["runs"]
        starts = [run["started_at"] for run in listed]
        assert starts == sorted(starts)
        assert [run["id"] for run in listed] == runs
        assert [run["id"] for run in c.call("list", newest=True, limit=2)["runs"]] == [6, 5]
        page = c.call("list", limit=4)
        assert page["next"] == 4
        assert [run["id"] for run in c.call("list", after=4)["runs"]] == [5, 6]
        assert c.call("list", state="failed")["runs"] == []


def test_the_time_left_is_not_that_of_one_step(daemon):
    """The estimate uses the pace since the segment began: 2 s are left here, although no step reports it."""
    with daemon() as d, d.client() as c:
        run = c.submit(spec("jitter-ms10", 200))
        c.call("follow", id=run)
        while (event := c.event()) and not (event["method"] == "run.step" and event["params"]["step"] > 10):
            pass
        assert 0 < event["params"]["eta_s"] < 3600


def test_status_while_a_run_trains(daemon):
    with daemon() as d, d.client() as c:
        assert c.call("status")["running"] is None
        run = c.submit(spec("long-ms20", 100000))
        c.submit(spec("next"))
        wait_for(lambda: (c.call("status")["running"] or {}).get("progress"), "progress")
        status = c.call("status")
        assert status["running"]["run"]["id"] == run
        assert status["running"]["progress"]["steps"] == 100000
        assert status["running"]["progress"]["eta_s"] > 0
        assert status["queued"] == 1 and status["counts"]["queued"] == 1
        assert status["waiting"].startswith("behind: run 1 is running")
        assert status["engine"]["state"] == "ready"
        c.call("cancel", id=run)


@pytest.mark.parametrize("fault, reason", [
    ("crash.r1.s2", "engine_lost: rank 1 killed by signal 9"),
    ("crash.r0.s1", "engine_lost: rank 0 killed by signal 9"),
    ("exit70.r1.s2", "engine_lost: rank 1 exited with status 70 (a peer went away)"),
    ("exit74.r0.s2", "engine_lost: rank 0 exited with status 74 (no more processes or threads: raise ulimit -u, TasksMax= of the unit)"),
    ("exit3.r0.s2", "engine_lost: rank 0 exited with status 3"),
    ("closes.r1.s2", "engine_lost: rank 1 exited with status 3"),
    ("garbage.r1.s2", "engine_lost: rank 1 sent an invalid message"),
    ("long.r1.s2", "engine_lost: rank 1 sent a line that is too long"),
    ("never.r1", "engine_lost: rank 1 killed by signal 9"),
    ("fail.r1.s2", "made_up: rank 1: as asked"),
    ("poison.r0.s2", "made_up: rank 0: as asked"),
    ("lost.r0.s2", "peer_lost: rank 0: no message for a while"),
    ("lost.r0.s2-crash.r1.s3", "engine_lost: rank 1 killed by signal 9"),
    ("exit70.r0.s2-crash.r1.s3", "engine_lost: rank 1 killed by signal 9"),
])
def test_a_run_fails_and_the_queue_goes_on(daemon, fault, reason):
    with daemon(ranks=2) as d, d.client() as c:
        before = d.engines()
        bad = c.submit(spec(fault + "-ms20", 1000))
        good = c.submit(spec("good"))
        end = c.wait(bad)
        assert end["state"] == "failed"
        assert end["reason"].startswith(reason)
        assert c.wait(good)["state"] == "done"
        assert (set(before) & set(d.engines()) == set()) == (not fault.startswith("fail"))
        assert c.call("show", id=bad)["segments"][0]["state"] == "failed"


@pytest.mark.parametrize("rank", [0, 1])
def test_last_words_of_an_engine(daemon, rank):
    """An engine reports why it fails and ends at once: its report is the reason."""
    with daemon(ranks=2) as d, d.client() as c:
        for i in range(8):
            bad = c.submit(spec(f"last.r{rank}.s2", 1000))
            assert c.wait(bad)["reason"] == f"made_up: rank {rank}: as asked"
            wait_for(lambda: c.call("status")["engine"]["restarts"] > i, "restart")
        assert c.wait(c.submit(spec("after")))["state"] == "done"


@pytest.mark.parametrize("fault, reason", [
    ("stop.r1.s2", "engine_hung: rank 1: silent for 6 s"),
    ("stop.r0.s2", "engine_hung: rank 0: silent for 6 s"),
    ("hang.r0.s2", "engine_hung: no progress for 6 s"),
    ("hang.r1.s2", "engine_hung: no progress for 6 s"),
    ("flood.r1.s2", "engine_hung: no progress for 6 s"),
])
def test_a_hung_engine_is_replaced(daemon, fault, reason):
    options = ("--alive-timeout", "6") if fault.startswith("stop") else ("--progress-timeout", "6")
    with daemon(ranks=2, options=options) as d, d.client() as c:
        bad = c.submit(spec(fault + "-ms20", 1000))
        good = c.submit(spec("good"))
        assert c.wait(bad)["reason"] == reason
        assert c.wait(good)["state"] == "done"


def test_engines_that_end_before_they_begin(daemon):
    """They get a run and end: that is not the run's fault, and the next ones get it, once."""
    with daemon(ranks=2) as d, d.client() as c:
        events = c.follow(c.submit(spec("early.r0")), after=0)
        assert events[-1]["params"]["state"] == "done"
        assert states(events) == ["queued", "starting", "running", "finishing", "done"]
        assert [p["state"] for p in methods(events, "run.segment")] == [
            "training", "waiting", "training", "trained", "done"]
        run = c.submit(experiment("ab-early.r0", 3, repetitions=1))  # each segment
        end = c.wait(run)
        assert end["state"] == "failed" and "engine_lost: rank 0 killed by signal 9" in end["reason"]
        bad = c.submit(spec("never.r0"))
        assert c.wait(bad)["reason"] == "engine_lost: rank 0 killed by signal 9"
        assert c.wait(c.submit(spec("after")))["state"] == "done"


def test_artifacts_that_never_come(daemon):
    """The disk does not answer: the run does not stay "finishing" for ever, and the reason is the disk."""
    with daemon(options=("--progress-timeout", "5")) as d, d.client() as c:
        bad = c.submit(spec("noend"))
        end = c.wait(bad)
        assert end["state"] == "failed"
        assert end["reason"].startswith("disk_hung: segment 1 is trained, but wrote nothing for 5 s below ")
        assert c.wait(c.submit(spec("after")))["state"] == "done"


def test_idle_engine_stopped(daemon):
    """Without a run: the engines are replaced, and clients and queue do not notice."""
    with daemon(ranks=2, options=("--alive-timeout", "6")) as d, d.client() as c:
        before = d.engines()
        os.kill(before[1], signal.SIGSTOP)
        wait_for(lambda: c.call("status")["engine"]["restarts"] == 1, "restart")
        assert c.call("status")["engine"]["reason"] == "engine_hung: rank 1: silent for 6 s"
        assert c.wait(c.submit(spec("after")))["state"] == "done"
        assert set(before) & set(d.engines()) == set()


def test_all_stood_still(daemon):
    """gpt2d and its engines are suspended for longer than engines may be silent: the run continues."""
    with daemon(ranks=2, options=("--alive-timeout", "6", "--progress-timeout", "6")) as d, d.client() as c:
        run = c.submit(spec("long-ms20", 100000))
        wait_for(lambda: (r := c.call("status")["running"]) and r["progress"], "its first step")
        everyone = [d.process.pid, *d.engines()]
        for pid in everyone:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(9)
        for pid in everyone:
            os.kill(pid, signal.SIGCONT)
        step = c.call("status")["running"]["progress"]["step"]
        wait_for(lambda: c.call("status")["running"]["progress"]["step"] > step + 20, "further steps")
        assert c.call("status")["engine"]["restarts"] == 0
        c.call("cancel", id=run)
        assert c.wait(run)["state"] == "cancelled"


def test_engines_that_do_not_end(daemon):
    """engine.exit is ignored: gpt2d kills them, and ends."""
    with daemon(ranks=2, environment={"GPT2D_FAKE_START": "stay"}) as d:
        pids = d.engines()
        os.kill(pids[1], signal.SIGSTOP)
        assert d.stop() == 0
        assert "engines: not ended within 5 s, killed" in d.said()
        assert all(map(has_ended, pids))


def test_engine_killed_from_outside(daemon):
    with daemon(ranks=2) as d, d.client() as c:
        run = c.submit(experiment("ab-ms20", 10000))
        wait_for(lambda: c.state(run) == "running", "running")
        os.kill(d.engines()[1], signal.SIGKILL)
        wait_for(lambda: c.call("show", id=run)["segments"][4]["state"] == "training", "the next block")
        block = c.call("show", id=run)["segments"][:4]
        assert [segment["state"] for segment in block] == ["failed"] + 3 * ["skipped"]
        assert {segment["void"] for segment in block} == {"engine_replaced: engine_lost: rank 1 killed by signal 9"}
        c.call("cancel", id=run)
        assert c.wait(run)["state"] == "cancelled"
        wait_for(lambda: c.call("status")["engine"]["state"] == "ready", "new engines")
        os.kill(d.engines()[0], signal.SIGKILL)  # idle
        wait_for(lambda: c.call("status")["engine"]["restarts"] >= 2, "restart")
        assert c.wait(c.submit(spec("after")))["state"] == "done"


def test_artifacts_cannot_be_written(daemon):
    with daemon() as d, d.client() as c:
        run = c.submit(spec("endfail"))
        end = c.wait(run)
        assert end["state"] == "failed" and end["reason"].startswith("artifacts: rank 0: step_log.csv")
        run = c.submit(experiment("ab-endfail-ms20", 20))
        assert c.wait(run)["reason"].startswith("artifacts")
        assert c.wait(c.submit(spec("after")))["state"] == "done"


def test_artifacts_fail_while_the_last_segment_trains(daemon):
    """An engine that does not receive the stop trains the last segment to its end: the run has failed."""
    with daemon(options=("--cancel-timeout", "60")) as d, d.client() as c:
        run = c.submit(experiment("endfail1-slowend-deaf-ms100", 20, repetitions=1) | {
            "design": {"repetitions": 1, "mirrored": False, "seed": 1}})
        end = c.wait(run)
        assert end["state"] == "failed" and end["reason"].startswith("artifacts: ")
        assert c.wait(c.submit(spec("next")))["state"] == "done"


# ---- cancel: case H12 ----

def test_cancel_while_queued(daemon):
    with daemon() as d, d.client() as c:
        first = c.submit(spec("long-ms20", 100000))
        runs = [c.submit(spec(f"q{i}")) for i in range(3)]
        for run in runs:
            assert c.call("cancel", id=run) == {"id": run, "state": "cancelled", "already": False}
            again = c.call("cancel", id=run)
            assert again == {"id": run, "state": "cancelled", "already": True}
        wait_for(lambda: c.call("status")["queued"] == 0, "the start of the first one")
        c.call("cancel", id=first)
        assert c.wait(first)["state"] == "cancelled"
        wait_for(lambda: folders(d) == [first], "the folder that was made ahead has gone")


def test_cancel_while_running(daemon):
    with daemon(ranks=2) as d, d.client() as c:
        before = d.engines()
        run = c.submit(experiment("ab-ms20", 1000))
        wait_for(lambda: c.state(run) == "running", "running")
        with d.client() as other:
            assert other.call("cancel", id=run)["already"] is False
            assert other.call("cancel", id=run)["already"] is True
        end = c.wait(run)
        assert end["state"] == "cancelled"
        assert c.call("cancel", id=run) == {"id": run, "state": "cancelled", "already": True}
        shown = c.call("show", id=run)
        assert [t["state"] for t in shown["transitions"]].count("cancelled") == 1
        assert {s["state"] for s in shown["segments"]} == {"cancelled", "skipped"}
        assert c.wait(c.submit(spec("after")))["state"] == "done"
        assert d.engines() == before


def test_cancel_at_any_moment(daemon):
    """Exactly one end at any moment, and the queue continues."""
    with daemon(ranks=2) as d, d.client() as c:
        for i in range(25):
            run = c.submit(experiment("ab-ms2", 3, repetitions=1))
            time.sleep(0.005 * i)
            c.call("cancel", id=run)
            end = c.wait(run)
            assert end["state"] in ("cancelled", "done")
            ends = [t["state"] for t in c.call("show", id=run)["transitions"]
                if t["state"] in ("cancelled", "done", "failed")]
            assert ends == [end["state"]]
        assert c.call("status")["engine"]["restarts"] == 0


def test_cancel_while_finishing(daemon):
    with daemon() as d, d.client() as c:
        run = c.submit(spec("endheld"))
        wait_for(lambda: c.state(run) == "finishing", "finishing")
        assert c.call("cancel", id=run) == {"id": run, "state": "finishing", "already": True}
        d.unhold()
        assert c.wait(run)["state"] == "done"


def test_cancel_of_a_deaf_engine(daemon):
    with daemon(ranks=2, options=("--cancel-timeout", "1")) as d, d.client() as c:
        run = c.submit(spec("deaf-ms20", 10000))
        wait_for(lambda: c.state(run) == "running", "running")
        c.call("cancel", id=run)
        assert c.wait(run)["state"] == "cancelled"
        assert c.wait(c.submit(spec("after")))["state"] == "done"
        assert c.call("status")["engine"]["restarts"] == 1


def test_no_such_run(daemon):
    with daemon() as d, d.client() as c:
        for method in ("cancel", "show", "follow"):
            for run in (0, 7, -1, 2**62):
                refused = refusal(c.call, method, id=run)
                assert refused.code == -32003
                assert refused.message == f"run {run}: no such run; it may have been removed by prune or retain_runs; see: gpt2ctl list"


# ---- engines that do not get ready ----

@pytest.mark.parametrize("how, reason", [
    ("dead", "engine_lost: rank 0 exited with status 9"),
    ("old", "engine_refused: rank 0 speaks protocol 99, gpt2d speaks 1"),
    ("other", "engine_refused: rank 0 is build another-build, gpt2d is build "),
    ("half", "engine_lost: rank 1 exited with status 73 (ranks could not reach each other)"),
    ("mute", "engine_lost: engines are not ready after 1 s"),
])
def test_engines_that_do_not_start(daemon, how, reason):
    with daemon(ranks=2 if how == "half" else 1, ready=False, environment={"GPT2D_FAKE_START": how},
            options=("--start-timeout", "1" if how == "mute" else "60")) as d:
        with d.client() as c:
            run = c.submit(spec())
            wait_for(lambda: c.call("status")["engine"]["restarts"] >= 2, "restarts")
            status = c.call("status")
            assert status["engine"]["reason"].startswith(reason)
            if how in ("old", "other"):
                assert status["engine"]["reason"].endswith("; install gpt2d and its engine from the same build")
            assert status["waiting"].startswith("engines: ")
            shown = subprocess.run([BUILD / "ctl/gpt2ctl", "--socket", d.socket, "status"], capture_output=True, text=True, timeout=60, check=True)
            assert "        messages of the engines: gpt2ctl logs\n" in shown.stdout
            assert c.state(run) == "queued"
            assert c.call("cancel", id=run)["state"] == "cancelled"


def test_engines_that_do_not_start_are_given_time(daemon):
    """The pause before the next try grows, and status shows how long it is."""
    with daemon(ready=False, environment={"GPT2D_FAKE_START": "dead"}) as d, d.client() as c:
        run = c.submit(spec())
        engine = wait_for(lambda: (engine := c.call("status")["engine"])["retry_in_s"] in (3, 4) and engine, "a long pause")
        assert engine["restarts"] >= 5
        waiting = c.call("show", id=run)["outlook"]["waiting"]
        assert waiting.startswith("engines: gpt2d restarts them in ") and "; why they ended: engine_lost: rank 0 exited" in waiting
        before = c.call("status")["engine"]["restarts"]
        c.call("warm")
        engine = wait_for(lambda: (engine := c.call("status")["engine"])["restarts"] > before and engine, "a try at once")
        assert engine["retry_in_s"] in (None, 0, 1)


def test_a_stop_does_not_wait_for_a_step_twice(daemon, tmp_path):
    with daemon(home=tmp_path) as d:
        with d.client() as c:
            run = c.submit(spec("deaf-ms3600000", 1))
            wait_for(lambda: c.state(run) == "running", "running")
            c.call("follow", id=run)
            d.process.terminate()
            wait_for(lambda: c.call("status")["daemon"]["state"] == "stopping", "the stop")
            d.process.terminate()
            assert c.followed(run)[-1]["params"]["state"] == "interrupted"
        assert d.process.wait(PATIENCE_S) == 0
