"""A state directory on a file system of a few MiB without a free byte (case H8)."""

import contextlib
import errno
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from faults import (ENDED, FAIL, FILES, KILL, LIBRARY, NEEDS_ROOM, TORN, Faults, fill, sample, small_file_system,
    start_if_it_can)
from helpers import BUILD, PATIENCE_S, Daemon, RpcError, experiment, folders, ids, refusal, spec, trash, wait_for
from test_ctl_daemon import ctl


@pytest.fixture
def small(tmp_path):
    """A folder on a file system of 16 MiB."""
    path = tmp_path / "small"
    reason = small_file_system(path)
    if reason:
        pytest.skip(f"no small file system: {reason}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=False)


def on(path, tmp_path, **options):
    """A daemon there; its log is elsewhere."""
    return Daemon(home=path, options=("--log-file", str(tmp_path / "log")), **options)


def done(c, names):
    for name in names:
        end = c.wait(c.submit(spec(name)))
        assert end["state"] == "done", end


def checkpoint(d, mode):
    """passive: the next write begins at the log's start; truncate: and the log has nothing to give back."""
    with contextlib.closing(sqlite3.connect(d.state / "gpt2d.db", timeout=60)) as db:
        def whole():
            busy, pages, moved = db.execute(f"pragma wal_checkpoint({mode})").fetchone()
            return busy == 0 and pages == moved

        wait_for(whole, "a checkpoint")


def refused(call, *args, **params):
    error = refusal(call, *args, **params)
    assert error.code == -32006
    return error.message


def grow(d, runs):
    """At least as large as a run's files: their removal makes room for the records."""
    for run in runs:
        (next((d.state / "runs").glob(f"{run}-*")) / "more").write_bytes(bytes(200000))


def test_prune_makes_room(small, tmp_path):
    with on(small, tmp_path) as d, d.client() as c:
        for _ in range(3):
            done(c, [f"r{i}" for i in range(12)])
            grow(d, folders(d)[-12:])
            checkpoint(d, "truncate")
            fill(small / "filler")
            keep = ids(c)[-5:]
            assert "gpt2d.db: No space left on device; make room on " in refused(c.submit, spec("refused"))
            assert c.call("status")["store"]["errno"] == "ENOSPC"
            pruned = ctl(d, "prune", "--yes", "--keep", "5")
            assert pruned.returncode == 0, pruned.stderr
            assert ids(c) == folders(d) == keep and trash(d) == []
            done(c, ["after"])
            assert c.call("status")["store"] is None
            (small / "filler").unlink()


@pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
@pytest.mark.parametrize("action", [KILL, TORN])
def test_prune_is_killed_at_every_step(small, tmp_path, action):
    """After the next start each run exists with its files, or neither exists."""
    faults = Faults(tmp_path, under=small / "state")
    filler, pruned = small / "filler", 0
    with on(small, tmp_path, environment=faults.environment) as d:
        with d.client() as c:
            done(c, ["x"])
            grow(d, ids(c))
            fill(filler)
            before = faults.daemon.count
            c.call("prune", keep=0)
            total = faults.daemon.count - before
            assert total >= 20
            filler.unlink()
        for n in sample(total, 4):
            with d.client() as c:
                done(c, ["a", "b", "c"])
                whole = ids(c)
                grow(d, whole)
                files = {run: sorted(os.listdir(c.call("show", id=run)["run"]["dir"])) for run in whole}
                fill(filler)
                faults.daemon.arm(action, first=n, last=n, ops=FILES)
                try:
                    c.call("prune", keep=1)
                except (OSError, EOFError):
                    pass
            faults.daemon.disarm()
            if d.process.poll() is None:
                d.kill()
            d.process.wait()
            filler.unlink()
            d.start()
            with d.client() as c:
                left = ids(c)
                assert left == folders(d) and set(left) <= set(whole) and whole[-1] in left
                for run in left:
                    shown = c.call("show", id=run)["run"]
                    assert shown["state"] == "done" and sorted(os.listdir(shown["dir"])) == files[run]
                wait_for(lambda: trash(d) == [], "the trash is emptied")
                pruned += len(whole) - len(left)
                c.call("prune", keep=1)
                assert ids(c) == [whole[-1]] == folders(d)
                done(c, ["works"])
        assert pruned > 0


def test_start_on_a_full_disk(small, tmp_path):
    """After a kill and after a good end: gpt2d starts, or reports that there is no room. Then the queue is complete."""
    with on(small, tmp_path) as d:
        for end in (d.kill, d.stop):
            with d.client() as c:
                done(c, ["a", "b", "c"])
                grow(d, ids(c))
                c.call("drain")
                waits = c.submit(spec("waits"))
            end()
            fill(small / "filler")
            if start_if_it_can(d):
                with d.client() as c:
                    assert c.state(waits) == "queued" and c.call("status")["drained"]
                    c.call("prune", keep=1)
                    assert ids(c) == [waits - 1, waits]
                (small / "filler").unlink()
            else:
                d.process.wait(PATIENCE_S)
                assert "; make room on " in d.process.stderr.read()
                (small / "filler").unlink()
                d.start()
            with d.client() as c:
                c.call("resume")
                assert c.wait(waits)["state"] == "done"


def test_stop_on_a_full_disk(small, tmp_path):
    """Data only in memory is lost, and gpt2d says so. The next start determines the result of each run."""
    with on(small, tmp_path) as d:
        with d.client() as c:
            run, cancelled, waits = [c.submit(spec(name, 100000)) for name in ("long-ms20", "cancelled", "waits-ms20")]
            wait_for(lambda: c.call("show", id=run)["progress"], "its progress")
            checkpoint(d, "truncate")
            fill(small / "filler")
            for number in (cancelled, run):
                assert "cancelled, but that is not on disk" in refused(c.call, "cancel", id=number)
            assert d.stop() == 1
        assert f"run {run}: state cancelled could not be written: No space left on device" in (tmp_path / "log").read_text()
        (small / "filler").unlink()
        d.start()
        with d.client() as c:
            assert c.state(run) == "interrupted"
            assert {c.state(number) for number in (cancelled, waits)} <= {"queued", "starting", "running"}


# ---- a file system that has made itself read-only ----

def ext4(path, *options):
    """Mount a small one that is read-only after an error, a moment or for good: its switch for that, or why not."""
    image = path.with_suffix(".image")
    with open(image, "wb") as f:
        f.truncate(32 << 20)
    path.mkdir()
    for command in (["mkfs.ext4", "-q", *options, str(image)], ["mount", "-o", "loop,errors=remount-ro", str(image), str(path)]):
        try:
            made = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError as missing:
            return str(missing)
        if made.returncode:
            return made.stderr.strip() or command[0]
    device = os.path.basename(subprocess.run(["findmnt", "-no", "SOURCE", str(path)], capture_output=True, text=True,
        check=True).stdout.strip())
    switch = Path(f"/sys/fs/ext4/{device}/trigger_fs_error")
    return switch if switch.exists() else f"no {switch}"


def test_read_only(tmp_path):
    """As after an error of the disk: all is refused with the file and advice; the next gpt2d finds the old data."""
    home = tmp_path / "disk"
    if os.geteuid() != 0:
        pytest.skip("only root mounts a file system")
    switch = ext4(home)
    try:
        if isinstance(switch, str):
            pytest.skip(f"no file system that turns read-only: {switch}")
        file = f"{home}/state/gpt2d.db: "
        with on(home, tmp_path) as d:
            with d.client() as c:
                done(c, ["a", "b"])
                switch.write_text("1")
                for call in (lambda: c.submit(spec("c")), lambda: c.call("keep", id=1), lambda: c.call("drain")):
                    said = refused(call)
                    assert file in said and ("; make " in said or "; see the kernel's log" in said)
                assert refused(c.call, "prune", keep=1).startswith(f"run 1: {d.state}/runs/1-a: cannot be removed: ")
                store = c.call("status")["store"]
                assert store["errno"] in ("EROFS", "EIO") and store["path"] == f"{home}/state/gpt2d.db"
                assert [run["state"] for run in c.call("list")["runs"]] == ["done", "done"]
            assert d.stop() == 0
            wait_for(lambda: subprocess.run(["umount", str(home)], check=False).returncode == 0, "that it is unused")
            subprocess.run(["mount", "-o", "loop", str(home.with_suffix(".image")), str(home)], check=True)
            d.start()
            with d.client() as c:
                assert ids(c) == [1, 2]
                done(c, ["d"])
                assert [run["id"] for run in c.call("prune", keep=1)["runs"]] == [1, 2]
    finally:
        subprocess.run(["umount", "-l", str(home)], check=False, capture_output=True)


@pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_no_end_is_told_that_is_not_stored(tmp_path, end):
    """A failed one and a cancelled one are reported by no verb and no event: gpt2d ends, and they have ended otherwise."""
    faults = Faults(tmp_path)
    with Daemon(home=tmp_path, environment=faults.environment) as d:
        with d.client() as c, d.client() as events:
            run, waits = c.submit(spec("long-ms20", 100000)), c.submit(spec("waits"))
            wait_for(lambda: c.call("show", id=run)["progress"], "its progress")
            wait_for((d.state / "runs" / f"{waits}-waits").exists, "the next run's folder")
            events.call("follow", id=run)
            faults.daemon.arm(FAIL, errno.ENOSPC, ops=NEEDS_ROOM)
            os.kill(d.engines()[0], signal.SIGKILL)
            refused(c.call, "cancel", id=waits)
            wait_for(lambda: c.call("show", id=run)["progress"] is None, "that its engine is lost")
            refused(c.call, "cancel", id=waits, queued=True)
            with pytest.raises(RpcError, match=f"run {waits}: is ending, only a queued run can be moved"):
                c.call("priority", id=waits, priority=1)
            for number, state in ((run, "running"), (waits, "queued")):
                shown = c.call("show", id=number)
                assert shown["run"]["state"] == state and shown["run"]["ended_at"] is None
                assert shown["progress"] is None and shown["outlook"] is None
                text = ctl(d, "show", str(number)).stdout
                assert "ended     -\n" in text
                assert " left" not in text
            counts = c.call("status")["counts"]
            assert [state for state in counts if counts[state]] == ["queued", "running"]
            assert 'state="failed"} 0\n' in c.call("metrics")["text"]
            if end == "stop":
                assert d.stop() == 1
                assert "stopped; some data could not be written\n" in d.said()
            else:
                d.kill()
            reported = []
            try:
                reported += iter(events.event, None)
            except ConnectionError:
                pass
            assert not [event for event in reported if event["method"] == "run.done"]
            states = [event["params"] for event in reported if event["method"] == "run.state"]
            assert not [state for state in states if state["state"] in ENDED]
        faults.daemon.disarm()
        d.start()
        with d.client() as c:
            assert c.state(run) == "interrupted" and c.wait(waits)["state"] == "done"


@pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
def test_no_run_starts_after_an_end_that_is_not_stored(tmp_path):
    """Nothing was written since the disk is full: the end of the previous run is the first write without room."""
    faults = Faults(tmp_path)
    with Daemon(home=tmp_path, environment=faults.environment) as d, d.client() as c:
        run, waits = c.submit(spec("long-ms20", 100000)), c.submit(spec("waits"))
        wait_for(lambda: c.call("show", id=run)["progress"], "its progress")
        wait_for((d.state / "runs" / f"{waits}-waits").exists, "the next run's folder")
        faults.daemon.arm(FAIL, errno.ENOSPC, ops=NEEDS_ROOM)
        refused(c.call, "cancel", id=run)
        assert c.state(waits) == "queued"
        faults.daemon.disarm()
        assert c.wait(waits)["state"] == "done" and c.state(run) == "cancelled"


def test_a_full_disk_holds_the_queue(tmp_path):
    """None of ten runs fails: the first one without room holds the queue until there is some."""
    runs = tmp_path / "state" / "runs"
    runs.parent.mkdir()
    reason = small_file_system(runs)
    if reason:
        pytest.skip(f"no small file system: {reason}")
    try:
        with Daemon(home=tmp_path, engine=BUILD / "engine" / "gpt2-engine-cpu") as d, d.client() as c:
            c.call("drain")
            queued = [c.submit(spec(f"run{i}")) for i in range(10)]
            fill(runs / "full")
            c.call("resume")
            wait_for(lambda: str(c.call("status")["waiting"]).startswith("room: "), "the hold")
            time.sleep(2.5)  # the disk is probed meanwhile
            assert str(c.call("status")["waiting"]).startswith("room: ")
            assert "starts runs when it can" in ctl(d, "status").stdout
            assert {c.state(run) for run in queued} == {"queued"}
            (runs / "full").unlink()
            assert [c.wait(run)["state"] for run in queued] == ["done"] * 10
    finally:
        subprocess.run(["umount", "-l", str(runs)], check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_queue_waits_for_room(tmp_path):
    """No inode is left for the next run's folder: the queue waits for one and is not failed run by run."""
    runs = tmp_path / "state" / "runs"
    runs.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16M,nr_inodes=300", "none", str(runs)], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        with on(tmp_path, tmp_path) as d, d.client() as c:
            c.call("drain")
            fill = []
            with pytest.raises(OSError):
                while len(fill) < 300:
                    (runs / f".fill{len(fill)}").touch()
                    fill.append(runs / f".fill{len(fill)}")
            waits = [c.submit(experiment(f"r{i}", repetitions=1)) for i in range(3)]
            c.call("resume")
            wait_for(lambda: str(c.call("status")["waiting"]).startswith("room: "), "the queue waits for room")
            assert f": run {waits[0]}: enospc: {runs}/{waits[0]}-r0: No space left on device" in c.call("status")["waiting"]
            assert [c.state(run) for run in waits] == ["queued"] * 3
            for path in fill:
                path.unlink()
            for run in waits:
                assert c.wait(run)["state"] == "done"
            assert "can be written again" in d.said()
    finally:
        subprocess.run(["umount", "-l", str(runs)], check=False)
