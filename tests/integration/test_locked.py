"""Another process has the queue's database locked: it is named, and when it lets go all goes on."""

import json
import os
import sqlite3
import subprocess

import pytest

from helpers import PATIENCE_S, Daemon, RpcError, spec, wait_for


def advice(database, locked=None):
    """Where the kernel tells who has a lock on that file, who; else how to find them."""
    file = os.stat(locked or f"{database}-shm")
    with open("/proc/locks", encoding="ascii") as locks:
        told = f" {os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino} " in locks.read()
    if told:
        with open("/proc/self/comm", encoding="utf-8") as name:
            return f"end pid {os.getpid()} ({name.read().strip()}), or wait for it"
    return f'find it with "fuser -v {database}*", and end it'


def lock(database):
    db = sqlite3.connect(database, isolation_level=None)
    db.execute("begin immediate")
    return db


def test_who_has_the_database_locked_is_told(tmp_path):
    """Not who reads it only. The lock's end ends it, without a restart."""
    with Daemon(home=tmp_path) as d, d.client() as c:
        database = d.state / "gpt2d.db"
        assert c.wait(c.submit(spec("first")))["state"] == "done"
        reader = sqlite3.connect(database, isolation_level=None)
        reader.execute("begin")
        reader.execute("select count(*) from runs").fetchall()
        writer = lock(database)
        said = f"{database}: another process has it locked; {advice(database)}"
        with pytest.raises(RpcError) as refused:
            c.submit(spec("refused"))
        assert refused.value.message == f"the run is not queued; it could not be stored: {said}"
        store = c.call("status")["store"]
        assert store["errno"] == "EBUSY" and store["advice"] == advice(database)
        assert store["error"] == "another process has it locked"
        writer.execute("rollback")
        wait_for(lambda: c.call("status")["store"] is None, "the end of it")
        assert c.wait(c.submit(spec("next")))["state"] == "done"
        reader.close()
        writer.close()


def test_a_start_beside_a_lock_names_its_holder(tmp_path):
    with Daemon(home=tmp_path) as d:
        database = d.state / "gpt2d.db"
        assert d.stop() == 0
        db = sqlite3.connect(database, isolation_level=None)
        db.execute("pragma locking_mode = exclusive")
        db.execute("begin exclusive")
        start = subprocess.run(d.command, env=d.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            timeout=PATIENCE_S, check=False)
        assert start.returncode == 3
        assert f"{database}: another process has it locked; {advice(database, database)}" in start.stderr
        db.close()
        d.start()


def killed_in_a_run(d):
    """The id of the run."""
    with d.client() as c:
        run = c.submit(spec("long-ms20", 100000))
        wait_for(lambda: c.call("show", id=run)["progress"], "its progress")
    d.kill()
    return run


def looked_at(d):
    """What --check says of the queue."""
    done = subprocess.run([*d.command, "--check", "--json"], env=d.environment, stdout=subprocess.PIPE, text=True,
        timeout=PATIENCE_S, check=False)
    return next(check for check in json.loads(done.stdout)["checks"] if check["check"] == "queue")


@pytest.mark.parametrize("locking", ["normal", "exclusive"])
def test_what_would_keep_it_from_starting_is_found(tmp_path, locking):
    """Who reads it only does not, nor one that lets go while it is looked at."""
    with Daemon(home=tmp_path) as d:
        database = d.state / "gpt2d.db"
        killed_in_a_run(d)
        db = sqlite3.connect(database, isolation_level=None)
        db.execute("begin")
        db.execute("select count(*) from runs").fetchall()
        assert looked_at(d)["verdict"] == "ok"
        db.execute("rollback")
        db.execute(f"pragma locking_mode = {locking}")
        db.execute("begin immediate")
        locked = database if locking == "exclusive" else None
        before = written(d.state)
        found = looked_at(d)
        assert (found["verdict"], found["found"]) == ("fail", f"{database}: another process has it locked")
        assert found["advice"] == advice(database, locked)
        assert written(d.state) == before
        db.close()
        assert looked_at(d)["verdict"] == "ok"
        d.start()


def test_a_lock_beside_a_running_daemon_is_found(tmp_path):
    """Which then answers, and cannot write."""
    with Daemon(home=tmp_path) as d:
        database = d.state / "gpt2d.db"
        well = {"verdict": "ok", "found": f"{database} is open in gpt2d, process {d.process.pid}: gpt2ctl status"}
        assert looked_at(d).items() >= well.items()
        writer = lock(database)
        assert looked_at(d) == {"check": "queue", "verdict": "fail", "advice": advice(database),
            "found": f"{database} is open in gpt2d, process {d.process.pid}, and another process has it locked"}
        writer.close()
        assert looked_at(d).items() >= well.items()


def written(folder):
    """To read the files would give up this process's locks."""
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.glob("gpt2d.db*")}


def test_a_start_that_meets_a_lock_names_its_holder(tmp_path):
    """It can be opened and read, and what became of a run cannot be written."""
    with Daemon(home=tmp_path) as d:
        database = d.state / "gpt2d.db"
        run = killed_in_a_run(d)
        db = lock(database)
        start = subprocess.run(d.command, env=d.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            timeout=PATIENCE_S, check=False)
        assert start.returncode == 3
        assert start.stderr.endswith(f"gpt2d: {database}: another process has it locked; {advice(database)}\n")
        assert "is interrupted" not in d.said()
        db.close()
        d.start()
        with d.client() as c:
            assert c.state(run) == "interrupted"
