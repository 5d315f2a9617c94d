"""Another process has the queue's database locked: gpt2d says how to find it, and continues once it is unlocked."""

import sqlite3

import pytest

from helpers import Daemon, RpcError, spec, wait_for


def advice(database):
    return f"fuser -v {database} shows the process; end it, or wait for it"


def lock(database):
    db = sqlite3.connect(database, isolation_level=None)
    db.execute("begin immediate")
    return db


def test_who_has_the_database_locked_is_told(tmp_path):
    """A reader does not count. The end of the lock is enough, without a restart."""
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
        assert refused.value.message == f"the run is not queued: gpt2d could not store it: {said}"
        store = c.call("status")["store"]
        assert store["errno"] == "EBUSY" and store["advice"] == advice(database)
        assert store["error"] == "another process has it locked"
        writer.execute("rollback")
        wait_for(lambda: c.call("status")["store"] is None, "the end of it")
        assert c.wait(c.submit(spec("next")))["state"] == "done"
        reader.close()
        writer.close()
