"""Another process reads the queue's database and does not end: its write-ahead log grows, which is told with who it is."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

from helpers import BUILD, Daemon, agrees, spec, wait_for
from test_locked import advice

HELD_BYTES = 64 << 20  # gpt2d(8)
IDLE = "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute('select 1 from runs').fetchall(); print(flush=True); sys.stdin.read()"


def read_on(database):
    """A connection that begins to read and forgets to end."""
    db = sqlite3.connect(database, isolation_level=None)
    db.execute("begin")
    db.execute("select count(*) from runs").fetchall()
    return db


def write(d, c, megabytes):
    """So much into the log, which is not gpt2d's to write; gpt2d meets it with its next commit."""
    with closing(sqlite3.connect(d.state / "gpt2d.db", isolation_level=None)) as db:
        db.execute("pragma wal_autocheckpoint = 0")
        db.execute("begin")
        for _ in range(megabytes):
            db.execute("insert into log(run, at_ns, level, message) values(1, 0, 0, ?)", (1000000 * "x",))
        db.execute("commit")
    return c.submit(spec("next"))


def gpt2ctl(d, *words):
    return subprocess.run([BUILD / "ctl" / "gpt2ctl", *words], capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "GPT2D_SOCKET": str(d.socket)}).stdout


def test_a_forgotten_reader_is_told_until_it_ends(tmp_path):
    with Daemon(home=tmp_path) as d, d.client() as c:
        database, log = d.state / "gpt2d.db", d.state / "gpt2d.db-wal"
        assert c.wait(c.submit(spec("first")))["state"] == "done"
        c.call("drain")
        said = f" warning {log}: "
        # one that only has it open is in nobody's way
        with subprocess.Popen([sys.executable, "-c", IDLE, database], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as idle:
            idle.stdout.readline()
            reader = read_on(database)
            write(d, c, 50)
            assert c.call("status")["wal"] is None and said not in d.said()
            write(d, c, 20)
            held = wait_for(lambda: c.call("status")["wal"], "the news of it")
            assert held["path"] == str(log) and held["since"].endswith("Z") and held["advice"] == advice(database)
            assert HELD_BYTES <= held["bytes"] == log.stat().st_size
            assert d.said().count(said) == 1 and f"; {held['advice']}\n" in d.said()
            assert f"\ngpt2d_wal_held_bytes {held['bytes']}\n" in gpt2ctl(d, "metrics")
            text = gpt2ctl(d, "status")
            assert f"wal     {log} has " in text and held["advice"] in text
            assert "wal     the queue's log has " in gpt2ctl(d, "top", "-n", "1")
            write(d, c, 20)
            wait_for(lambda: c.call("status")["wal"]["bytes"] > held["bytes"] + (18 << 20), "its growth")
            assert c.call("status")["wal"]["since"] == held["since"] and d.said().count(said) == 1
            reader.execute("rollback")
            wait_for(lambda: c.call("status")["wal"] is None, "the end of it")
            assert "\ngpt2d_wal_held_bytes 0\n" in gpt2ctl(d, "metrics")
            idle.stdin.close()
        assert d.said().count(f" info {log}: ") == 1 and "wal  " not in gpt2ctl(d, "status")
        assert log.stat().st_size < HELD_BYTES // 2
        reader.close()
        c.call("resume")
        assert c.wait(c.submit(spec("last")))["state"] == "done"


def test_a_long_log_that_nobody_holds_is_no_news(tmp_path):
    """Much is written at once, and readers come and go."""
    with Daemon(home=tmp_path) as d, d.client() as c:
        assert c.wait(c.submit(spec("first")))["state"] == "done"
        for _ in range(3):
            assert c.wait(write(d, c, 80))["state"] == "done"
            read_on(d.state / "gpt2d.db").close()
            assert c.call("status")["wal"] is None
        assert "gpt2d.db-wal: " not in d.said()


def test_gpt2d_ends_and_starts_beside_a_reader(tmp_path):
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            assert c.wait(c.submit(spec("first")))["state"] == "done"
            with closing(read_on(d.state / "gpt2d.db")):
                write(d, c, 80)
                wait_for(lambda: c.call("status")["wal"], "the news of it")
                assert d.stop() == 0
                d.start()
                with d.client() as other:
                    assert other.wait(other.submit(spec("second")))["state"] == "done"
                    wait_for(lambda: other.call("status")["wal"], "the news of it again")
        with d.client() as c:
            wait_for(lambda: c.call("status")["wal"] is None, "the end of it")
        agrees(d)
