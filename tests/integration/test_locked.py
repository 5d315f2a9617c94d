"""Another process has the queue's database locked: gpt2d says how to find it, and continues once it is unlocked."""

import sqlite3
import subprocess

import pytest

from helpers import PATIENCE_S, Daemon, RpcError, spec, wait_for


def advice(database):
    return f"fuser -v {database} shows the process; end it, or wait for it"


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
        assert f"{database}: another process has it locked; {advice(database)}" in start.stderr
        db.close()
        d.start()


def killed_in_a_run(d):
    """The id of the run."""
    with d.client() as c:
        run = c.submit(spec("long-ms20", 100000))
        wait_for(lambda: c.call("show", id=run)["progress"], "its progress")
    d.kill()
    return run


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
