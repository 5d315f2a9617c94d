"""The end of a run whose engines are ending: the store and its folder always agree (cases F7, H6, H7)."""

import errno
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from engines import PROGRAM
from faults import FAIL, LIBRARY, SYNC, UNLINK, Faults
from helpers import Daemon, agrees, experiment, spec, wait_for


MARKER = "RUN_COMPLETE.txt"


def whole(marker):
    return marker.exists() and marker.read_text().endswith("\n")


def stored(d):
    """(state, attempt, segments_done) of run 1, once gpt2d has gone."""
    with sqlite3.connect(d.state / "gpt2d.db") as db:
        return db.execute("select state, attempt, segments_done from runs where id = 1").fetchone()


def transitions(d):
    with sqlite3.connect(d.state / "gpt2d.db") as db:
        return [row[0] for row in db.execute("select state from transitions where run = 1 order by rowid")]


def in_last_step(d, c):
    """The engine has reported its last step, and reads nothing more."""
    def said():
        running = c.call("status")["running"]
        progress = running and running["progress"]
        return progress and progress["step"] == progress["steps"] and running["run"]["segments_done"] == progress["segment"] - 1

    wait_for(said, "the last step")


def cancel(d, c):
    """Requested, and sent to the engine, which ignores it."""
    asked = c.ask("cancel", id=1)
    wait_for(lambda: "a cancel waits" in d.said(), "the cancel")
    return asked


def stop(d, c, how):
    if how == "cancel":
        cancel(d, c)
    for i in range(2):  # the second time nobody waits for the engines' reply
        if how == "shutdown":
            c.call("shutdown", now=True)
        else:
            d.process.send_signal(signal.SIGTERM)
        wait_for(lambda: d.said().count("signal 15") > i or how == "shutdown", "the signal")
        wait_for(lambda: "a cancel waits" in d.said(), "the engines to be asked")
    assert d.process.wait(60) == 0
    d.process.stdout.close()
    d.process.stderr.close()


NOW = ("--stop-timeout", "0")


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("how", ["term", "shutdown", "cancel"])
def test_stopped_in_its_last_step(tmp_path, how, restart):
    """The engines complete it before they end: it is done, and not trained again."""
    with Daemon(home=tmp_path, options=NOW, ranks=2) as d:
        with d.client() as c:
            c.submit(spec("laststep", restart=restart))
            in_last_step(d, c)
            stop(d, c, how)
        assert stored(d) == ("done", 1, 1)
        assert transitions(d) == ["queued", "starting", "running", "finishing", "done"]
        assert agrees(d) == 1


def test_a_cancel_is_told_that_it_is_done(tmp_path):
    with Daemon(home=tmp_path, options=NOW) as d:
        with d.client() as c:
            c.submit(spec("laststep"))
            in_last_step(d, c)
            asked = cancel(d, c)
            d.process.send_signal(signal.SIGTERM)
            wait_for(lambda: d.said().count("signal 15") == 1, "the first signal")
            d.process.send_signal(signal.SIGTERM)
            assert c.reply(asked) == {"id": 1, "state": "done", "already": True}
        assert d.process.wait(60) == 0
        assert stored(d)[0] == "done" and agrees(d) == 1


@pytest.mark.parametrize("segment, end", [(1, ("interrupted", 1, 2)), (3, ("done", 1, 4))])
@pytest.mark.parametrize("how", ["term", "shutdown"])
def test_an_experiment_stopped_in_a_last_step(tmp_path, how, segment, end):
    """The segment is done, and with the last one the run, whose marker gpt2d writes then."""
    with Daemon(home=tmp_path, options=NOW) as d:
        with d.client() as c:
            c.submit(experiment(f"laststep{segment + 1}", repetitions=1))
            wait_for(lambda: (c.call("status")["running"] or {"run": {"segments_done": 0}})["run"]["segments_done"] == segment,
                "the segments before")
            in_last_step(d, c)
            stop(d, c, how)
        assert stored(d) == end
        assert agrees(d) == (end[0] == "done")
        d.start()
        with d.client() as c:
            shown = c.call("show", id=1)
            states = [s["state"] for s in shown["segments"]]
            assert states == ["done"] * (segment + 1) + ["skipped"] * (3 - segment)
            assert shown["run"]["state"] == end[0]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("word", ["nosay", "silent"])
@pytest.mark.parametrize("kind", ["single", "experiment"])
def test_a_rank_dies_when_all_is_written(tmp_path, kind, word, rank):
    """In an experiment the first segment is done, but not its block; a silent engine delays the others."""
    with Daemon(home=tmp_path, ranks=2) as d, d.client() as c:
        engines = d.engines()
        run = c.submit(spec(word) if kind == "single" else experiment(word, repetitions=1))
        segments = c.call("show", id=run)["run"]["segments"]
        folder = d.state / "runs" / f"1-{word}"
        last = 1 if kind == "single" or word == "silent" else segments
        wait_for(lambda: sum(map(whole, folder.rglob(MARKER))) == last, "the markers")
        os.kill(engines[rank], signal.SIGKILL)
        if kind == "experiment" and word == "silent":  # the next engines begin another block
            wait_for(lambda: c.call("show", id=run)["segments"][4:], "another block")
            wait_for(lambda: c.call("show", id=run)["segments"][4]["state"] == "training", "its first segment")
            block = c.call("show", id=run)["segments"][:4]
            assert [s["state"] for s in block] == ["done", "skipped", "skipped", "skipped"]
            assert {s["void"] for s in block} == {f"engine_replaced: engine_lost: rank {rank} killed by signal 9"}
            return
        end = c.wait(run)
        shown = c.call("show", id=run)
        if last == segments:
            assert end["state"] == "done" and shown["run"]["segments_done"] == segments
            assert {s["state"] for s in shown["segments"]} == {"done"}
        else:
            assert end["state"] == "failed" and end["reason"] == f"engine_lost: rank {rank} killed by signal 9"
            assert [s["state"] for s in shown["segments"]] == ["done", "skipped", "skipped", "skipped"]
        assert agrees(d) == (last == segments)
        assert c.wait(c.submit(spec("next")))["state"] == "done"
        d.kill()
        d.start()
        agrees(d)


@pytest.mark.parametrize("word", ["nosay", "silent"])
def test_a_marker_that_does_not_fit_goes(tmp_path, word):
    with Daemon(home=tmp_path) as d, d.client() as c:
        engines = d.engines()
        run = c.submit(spec(f"{word}-badmark"))
        marker = d.state / "runs" / f"1-{word}-badmark" / MARKER
        wait_for(lambda: whole(marker), "the marker")
        os.kill(engines[0], signal.SIGKILL)
        end = c.wait(run)
        assert end["state"] == "failed" and end["reason"] == "engine_lost: rank 0 killed by signal 9"
        assert agrees(d) == 0
        assert c.call("show", id=run)["segments"][0]["state"] != "done"


@pytest.mark.parametrize("word", ["laststep", "laststep-silent-badmark"])
def test_gpt2d_is_killed_before_the_engines_end(tmp_path, word):
    """Stopped, all is written, the engine does not end: the next start reaches the same result as the stop."""
    with Daemon(home=tmp_path, options=NOW, environment={"GPT2D_FAKE_START": "stay"}) as d:
        with d.client() as c:
            c.submit(spec(word))
            in_last_step(d, c)
        d.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "a cancel waits" in d.said(), "the engines to be asked")
        d.process.send_signal(signal.SIGTERM)
        marker = d.state / "runs" / f"1-{word}" / MARKER
        wait_for(lambda: whole(marker) or d.process.poll() is not None, "the marker")
        d.kill()
        d.start()
        with d.client() as c:
            assert c.call("show", id=1)["run"]["state"] == ("interrupted" if "badmark" in word else "done")
        assert agrees(d) == (word == "laststep")


def test_gpt2d_is_killed_when_all_is_written(tmp_path):
    """The end was not reported: it was running, and is done."""
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            run = c.submit(spec("silent", restart=True))
            marker = d.state / "runs" / "1-silent" / MARKER
            wait_for(lambda: whole(marker) and c.state(run) == "running", "the marker")
        d.kill()
        d.start()
        with d.client() as c:
            shown = c.call("show", id=run)
        assert shown["run"]["state"] == "done" and shown["run"]["attempt"] == 1
        assert shown["segments"][0]["state"] == "done" and agrees(d) == 1


def shown(d, run):
    with d.client() as c:
        return c.call("show", id=run, limit=1000)


def train(d, work):
    with d.client() as c:
        run = c.submit(work)
        c.wait(run)
    return shown(d, run)


def change(d, *statements):
    with closing(sqlite3.connect(d.state / "gpt2d.db")) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


@pytest.mark.skipif(not PROGRAM.exists() or not LIBRARY.exists(), reason="no engine or no library of faults was built")
@pytest.mark.parametrize("work, folder", [(spec("s"), "1-s"), (experiment("s", repetitions=1), "1-s/segments/001-a")],
    ids=["single", "experiment"])
def test_a_disk_that_fails_as_the_marker_is_made(tmp_path, work, folder):
    """Neither the folder's sync after the marker's rename nor the engine's removal: gpt2d removes it and trains again."""
    faults = Faults(tmp_path, under=tmp_path / "state" / "runs" / folder)
    with Daemon(home=tmp_path, environment=faults.environment, engine=PROGRAM) as d:
        marker = d.state / "runs" / folder / MARKER
        faults.engine.disarm(ops=SYNC | UNLINK)
        assert train(d, work)["run"]["state"] == "done"
        calls = faults.engine.count
        d.stop()
        shutil.rmtree(d.state)
        d.start()
        faults.engine.arm(FAIL, errno.EIO, first=calls, ops=SYNC | UNLINK)
        again = train(d, work)
        faults.engine.disarm()
        assert f"{marker}: Input/output error" in d.said()
        assert again["run"]["state"] == "done" and not marker.exists() and agrees(d) == 1
        if len(again["segments"]) == 1:
            assert again["run"]["dir"].endswith("1-s.2") and not (d.state / "runs" / "1-s" / MARKER).exists()
        else:  # the same folder, another block
            assert again["run"]["dir"].endswith("1-s") and again["segments"][0]["void"].startswith("interrupted: io: ")
        assert {segment["state"] for segment in again["segments"][4:] or again["segments"]} == {"done"}


def test_a_segment_that_is_done_in_a_run_that_is_not(tmp_path):
    """A single run that was cancelled while its engine wrote the last file: its segment is done, by its folder."""
    with Daemon(home=tmp_path) as d:
        marker = Path(train(d, spec("s"))["run"]["dir"]) / MARKER
        d.stop()
        change(d, "update runs set state = 'cancelled'")
        d.start()
        assert marker.exists() and shown(d, 1)["segments"][0]["state"] == "done"
