"""Completion markers of unfinished runs: a disk that fails while a marker is written, and a cancelled run."""

import errno
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from engines import PROGRAM
from faults import FAIL, LIBRARY, SYNC, UNLINK, Faults
from helpers import Daemon, agrees, experiment, spec

MARKER = "RUN_COMPLETE.txt"


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
