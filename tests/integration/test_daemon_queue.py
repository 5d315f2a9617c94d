"""The queue for its users: priorities, drain and resume, release and warm, reasons for waiting."""

import os
import signal

import pytest

from helpers import PATIENCE_S, Daemon, experiment, has_ended, refusal, spec, wait_for


def queue(c):
    return [row["id"] for row in c.call("status")["queue"]]


def waiting(c, run):
    outlook = c.call("show", id=run)["outlook"]
    return outlook and outlook["waiting"]


def begun(c, run):
    wait_for(lambda: c.state(run) == "running", f"run {run} running")
    return run


# ---- priority ----

def test_priority_is_the_order(tmp_path):
    with Daemon(home=tmp_path) as d, d.client() as c:
        long = begun(c, c.submit(spec("long-ms20", 100000)))
        low = c.call("submit", spec=spec("low"), priority=-5)
        assert low["position"] == 0 and low["waiting"].startswith(f"behind: run {long} is running")
        plain = c.submit(spec("plain"))
        high = c.call("submit", spec=spec("high"), priority=100)
        assert high["position"] == 0
        assert queue(c) == [high["id"], plain, low["id"]]
        moved = c.call("priority", id=low["id"], priority=7)
        assert (moved["priority"], moved["before"], moved["state"]) == (7, -5, "queued")
        assert moved["outlook"]["position"] == 1
        assert moved["outlook"]["waiting"] == f"behind: run {high['id']} is queued before it"
        assert queue(c) == [high["id"], low["id"], plain]
        d.kill()
        d.start()
        for run in (high["id"], low["id"], plain):
            assert c_wait(d, run) == "done"
        with d.client() as c:
            runs = {run["id"]: run for run in c.call("list")["runs"]}
            assert [runs[i]["priority"] for i in (long, low["id"], plain, high["id"])] == [0, 7, 0, 100]
            starts = [runs[i]["started_at"] for i in (high["id"], low["id"], plain)]
            assert starts == sorted(starts)


def c_wait(d, run):
    with d.client() as c:
        return c.wait(run)["state"]


def test_priority_is_refused_where_it_means_nothing(daemon):
    with daemon() as d, d.client() as c:
        run = begun(c, c.submit(spec("long-ms20", 100000)))
        waits = c.submit(spec("waits"))
        assert "is running" in refusal(c.call, "priority", id=run, priority=1).message
        error = refusal(c.call, "priority", id=99, priority=1)
        assert error.code == -32003 and error.message == "run 99: no such run; it may have been removed by prune or retain_runs; see: gpt2ctl list"
        for value in (101, -101, 1 << 40):
            assert "-100 to 100" in refusal(c.call, "priority", id=waits, priority=value).message
            assert "-100 to 100" in refusal(c.call, "submit", spec=spec(), priority=value).message
        assert refusal(c.call, "priority", id=waits, priority="high").code == -32602
        assert queue(c) == [waits]
        c.call("cancel", id=run)


def test_the_one_made_ready_ahead_gives_way(daemon):
    """A run with a higher priority comes when the next one already has its directory."""
    with daemon() as d, d.client() as c:
        long = begun(c, c.submit(spec("long-ms20", 100000)))
        first = c.submit(experiment("first"))
        folder = c.call("show", id=first)["run"]["dir"]
        wait_for(lambda: os.path.exists(folder + "/segments"), "made ready")
        urgent = c.call("submit", spec=spec("urgent"), priority=1)["id"]
        wait_for(lambda: not os.path.exists(folder), "given up")
        c.call("priority", id=first, priority=2)
        wait_for(lambda: os.path.exists(folder + "/segments"), "made ready again")
        c.call("priority", id=first, priority=0)
        c.call("cancel", id=long)
        assert c.wait(urgent)["state"] == "done" and c.wait(first)["state"] == "done"
        runs = {run["id"]: run for run in c.call("list")["runs"]}
        assert runs[urgent]["started_at"] <= runs[first]["started_at"]


# ---- rerun ----

def test_rerun_of_is_kept(tmp_path):
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            run = c.submit(spec("first"))
            again = c.call("submit", spec=c.call("show", id=run)["spec"], rerun_of=run)["id"]
            assert c.wait(again)["state"] == "done"
            error = refusal(c.call, "submit", spec=spec(), rerun_of=99)
            assert error.code == -32003 and "rerun_of: run 99: no such run" in error.message
            assert refusal(c.call, "submit", spec=spec(), rerun_of=-1).code == -32602
        d.kill()
        d.start()
        with d.client() as c:
            runs = c.call("list")["runs"]
            assert [run["rerun_of"] for run in runs] == [None, run]
            assert runs[0]["spec_sha256"] == runs[1]["spec_sha256"]


# ---- drain ----

def test_drain_and_resume(tmp_path):
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            run = begun(c, c.submit(spec("held")))
            queued = c.submit(spec("queued"))
            reply = c.call("drain", reason="new disk")
            assert reply["running"] == run and reply["queued"] == 1 and not reply["already"]
            assert reply["drained"]["uid"] == os.getuid() and reply["drained"]["reason"] == "new disk"
            assert c.call("drain", reason="another")["already"]
            d.unhold()
            assert c.wait(run)["state"] == "done"
            late = c.call("submit", spec=spec("late"))
            assert late["position"] == 1 and late["waiting"].startswith("drained: since ")
            assert late["waiting"].endswith(": new disk; gpt2ctl resume lets runs start")
            status = c.call("status")
            assert status["daemon"]["state"] == "drained" and status["engine"]["state"] == "ready"
            assert status["drained"] == reply["drained"] and status["running"] is None
            assert [row["waiting"][:8] for row in status["queue"]] == ["drained:"] * 2
        d.kill()
        d.start()
        with d.client() as c:
            status = c.call("status")
            assert status["drained"] == reply["drained"] and status["queued"] == 2
            assert c.state(queued) == "queued"
            resumed = c.call("resume")
            assert resumed["drained"] is None and not resumed["already"]
            assert c.call("resume")["already"]
            assert " info drained: new disk\n" in d.said() and " info no longer drained\n" in d.said()
            assert c.wait(queued)["state"] == "done" and c.wait(late["id"])["state"] == "done"
            assert c.call("status")["daemon"]["state"] == "running"
        d.kill()
        d.start()
        with d.client() as c:
            assert c.call("status")["drained"] is None


def test_drain_waits_for_the_run(daemon):
    with daemon() as d, d.client() as c, d.client() as other, d.client() as third:
        run = begun(c, c.submit(spec("held-slowend")))
        token = c.ask("drain", wait=True)
        wait_for(lambda: other.call("status")["drained"], "drained")
        d.unhold()
        assert c.reply(token)["running"] is None
        assert other.state(run) == "done"
        assert other.call("drain", wait=True)["already"]
        other.call("resume")
        run = begun(other, other.submit(spec("long-ms20", 100000)))
        token = c.ask("drain", wait=True)
        wait_for(lambda: other.call("status")["drained"], "drained again")
        other.call("resume")
        error = refusal(c.reply, token)
        assert error.code == -32005 and "resumed meanwhile" in error.message
        # a client that goes away while it waits harms nothing
        third.ask("drain", wait=True)
        wait_for(lambda: other.call("status")["drained"], "drained for the third time")
        third.close()
        other.call("cancel", id=run)
        assert other.call("drain", wait=True)["already"]


# ---- release, warm ----

def test_release_and_warm(tmp_path):
    with Daemon(home=tmp_path, ranks=2) as d:
        pids = d.engines()
        with d.client() as c:
            run = begun(c, c.submit(spec("held", gpus=2)))
            queued = c.submit(spec("queued", gpus=2))
            token = c.ask("release", reason="for Ann", wait=True)
            with d.client() as other:
                wait_for(lambda: other.call("status")["released"], "the release")
            d.unhold()
            reply = c.reply(token)
            assert reply["engine"] == "released" and reply["running"] is None
            assert all(map(has_ended, pids))
            assert c.state(run) == "done" and c.state(queued) == "queued"
            assert waiting(c, queued).startswith("released: since ")
            assert waiting(c, queued).endswith(": for Ann; gpt2ctl warm takes the engines again")
            late = c.call("submit", spec=spec("late"))
            assert late["waiting"].startswith("released: ")
            assert c.call("status")["daemon"]["state"] == "released"
        d.kill()
        d.start()
        with d.client() as c:
            status = c.call("status")
            assert status["engine"]["state"] == "released" and status["released"] == reply["released"]
            assert [rank["pid"] for rank in status["engine"]["ranks"]] == [0, 0]
            warm = c.call("warm", wait=True)
            assert warm["engine"] == "ready" and warm["took_s"] > 0 and not warm["already"]
            assert c.wait(queued)["state"] == "done" and c.wait(late["id"])["state"] == "done"
            assert c.call("warm", wait=True)["already"]
            assert c.call("status")["engine"]["restarts"] == 0


@pytest.mark.parametrize("restart", [False, True])
def test_release_now_interrupts(daemon, restart):
    with daemon() as d, d.client() as c:
        run = begun(c, c.submit(spec("long-ms20", 100000, restart=restart)))
        assert c.call("release", now=True, wait=True)["engine"] == "released"
        shown = c.call("show", id=run)
        assert shown["run"]["state"] == ("queued" if restart else "interrupted")
        assert [t["reason"] for t in shown["transitions"] if t["state"] == "interrupted"] == [
            "released: a request restarted the engines at once"]
        c.call("warm")
        if restart:
            begun(c, run)
            c.call("cancel", id=run)
        else:
            assert c.wait(c.submit(spec("next")))["state"] == "done"


def test_release_now_lets_a_trained_run_finish(daemon):
    with daemon() as d, d.client() as c:
        run = c.submit(spec("endheld"))
        wait_for(lambda: c.state(run) == "finishing", "finishing")
        token = c.ask("release", now=True, wait=True)
        with d.client() as other:
            wait_for(lambda: other.call("status")["released"], "the release")
        d.unhold()
        assert c.reply(token)["engine"] == "released"
        assert c.state(run) == "done"


def test_engines_that_do_not_stop_are_ended(daemon):
    """The stopped rank does not read engine.exit."""
    with daemon(ranks=2) as d, d.client() as c:
        pids = d.engines()
        os.kill(pids[1], signal.SIGSTOP)
        assert c.call("release", wait=True)["engine"] == "released"
        assert all(map(has_ended, pids))
        assert c.call("warm", wait=True)["engine"] == "ready"


def test_warm_that_fails_says_why(tmp_path):
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            c.call("release", wait=True)
            queued = c.submit(spec("queued"))
        d.stop()
        d.environment["GPT2D_FAKE_START"] = "dead"
        d.start()
        with d.client() as c:
            error = refusal(c.call, "warm", wait=True)
            assert error.code == -32005 and "exited with status 9" in error.message
            assert "gpt2ctl status" in error.message
            wait_for(lambda: waiting(c, queued).startswith("engines: "), "the reason")
            assert c.call("release", wait=True)["engine"] == "released"


def test_idle_release_wakes_for_a_run(daemon):
    with daemon(options=["--idle-release", "3"]) as d, d.client() as c:
        pids = d.engines()
        wait_for(lambda: c.call("status")["engine"]["state"] == "released", "released")
        assert all(map(has_ended, pids))
        assert c.call("status")["released"] is None and c.call("status")["daemon"]["state"] == "running"
        assert c.wait(c.submit(spec("wakes")))["state"] == "done"
        wait_for(lambda: c.call("status")["engine"]["state"] == "released", "released again")
        assert not c.call("warm", wait=True)["already"]
        run = begun(c, c.submit(spec("long-ms20", 250)))
        assert c.wait(run)["state"] == "done" # 5 s: a run is no idleness


def test_status_shows_the_head_of_a_long_queue(daemon):
    with daemon() as d, d.client() as c:
        c.call("drain")
        for i in range(103):
            c.submit(spec(f"r{i}"))
        status = c.call("status")
        assert status["queued"] == 103 and [row["id"] for row in status["queue"]] == list(range(1, 101))


# ---- why ----

def test_engines_that_do_not_start_are_the_reason(daemon):
    with daemon(environment={"GPT2D_FAKE_START": "mute"}, ready=False) as d, d.client() as c:
        run = c.submit(spec("waits"))
        assert waiting(c, run).startswith("engines: they have been starting for ")
        assert c.call("status")["engine"]["starting_s"] >= 0


def test_start_is_estimated(daemon):
    with daemon() as d, d.client() as c:
        long = begun(c, c.submit(spec("long-ms20", 100000)))
        second, third = c.submit(spec("second")), c.submit(spec("third"))
        # half an hour, if each step took no longer than it has to
        wait_for(lambda: 1000 < (c.call("show", id=second)["outlook"]["starts_in_s"] or 0) < 100000, "an estimate")
        head, last = c.call("status")["queue"]
        assert head["starts_in_s"] > 1000 and last["starts_in_s"] is None
        assert head["waiting"].startswith(f"behind: run {long} is running, about ")
        assert last["waiting"] == f"behind: run {second} is queued before it"
        assert (head["id"], last["id"], last["position"]) == (second, third, 1)
        c.call("cancel", id=long)


def test_cancel_of_queued_ones_only(daemon):
    with daemon() as d, d.client() as c:
        run = begun(c, c.submit(spec("long-ms20", 100000)))
        queued = c.submit(spec("queued"))
        assert c.call("cancel", id=run, queued=True) == {"id": run, "state": "running", "already": True}
        assert c.call("cancel", id=queued, queued=True)["state"] == "cancelled"
        assert c.state(run) == "running"
        c.call("cancel", id=run)


def test_a_shutdown_answers_who_waits(daemon):
    with daemon() as d, d.client() as c, d.client() as other:
        begun(c, c.submit(spec("long-ms20", 100000)))
        token = c.ask("drain", wait=True)
        wait_for(lambda: other.call("status")["drained"], "drained")
        other.call("shutdown", now=True)
        assert "is stopping" in refusal(c.reply, token).message
        assert d.process.wait(PATIENCE_S) == 0
        d.start()
