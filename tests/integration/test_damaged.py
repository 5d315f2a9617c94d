"""A damaged gpt2d.db: what gpt2d(8) says to do is done here, word for word."""

import os
import re
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from helpers import BUILD, RpcError, spec, wait_for

MANUAL = Path(__file__).resolve().parents[2] / "daemon" / "gpt2d.8"
RUNS = 40


def commands():
    """The blocks of A DAMAGED DATABASE, of each its lines."""
    section = MANUAL.read_text().split(".Sh A DAMAGED DATABASE\n")[1].split("\n.Sh ")[0]
    return ["\n".join(line[2:].replace("\\e", "\\") for line in block.splitlines() if line.startswith("$ "))
        for block in re.findall(r"^\.Bd -literal.*?^\.Ed", section, re.MULTILINE | re.DOTALL)]


def shell(state, script):
    done = subprocess.run(["bash", "-c", script.replace("STATE_DIR", str(state))], capture_output=True, text=True, cwd=state,
        timeout=60, check=False)
    return done.stdout.split()


@pytest.mark.skipif(not shutil.which("sqlite3"), reason="sqlite3, the program, is not installed")
@pytest.mark.parametrize("damage", ["none", "page"])
def test_the_manuals_repair(daemon, damage):
    with daemon() as d:
        with d.client() as c:
            for n in range(RUNS):
                c.submit(spec(f"run{n}"))
            c.wait(RUNS)
        d.stop()
        database = d.state / "gpt2d.db"
        if damage == "page":
            page = int.from_bytes(database.read_bytes()[16:18], "big")
            name = b"run30"
            at = database.read_bytes().rindex(name) // page * page
            with open(database, "r+b") as file:
                file.seek(at)
                file.write(os.urandom(page))
        make, replace = commands()
        integrity, found = shell(d.state, make)
        assert integrity == "ok" and RUNS // 4 <= int(found) <= RUNS
        assert damage != "none" or int(found) == RUNS
        shell(d.state, replace)
        assert (d.state / "gpt2d.db.damaged").exists() and not (d.state / "rows.sql").exists()
        assert database.stat().st_mode & 0o777 == 0o600
        d.start()
        with d.client() as c:
            runs = c.call("list")["runs"]
            assert len(runs) == int(found) and {run["state"] for run in runs} <= {"done", "interrupted", "queued"}
            assert c.wait(c.submit(spec("next")))["state"] == "done"


def change(d, sql):
    db = sqlite3.connect(d.state / "gpt2d.db")
    db.execute(sql)
    db.commit()
    db.close()


def start_refused(d):
    """What a gpt2d says that does not start."""
    done = subprocess.run(d.command, capture_output=True, text=True, timeout=60, check=False, env=d.environment)
    assert done.returncode == 1, done
    return done.stderr


def checked(d):
    done = subprocess.run([BUILD / "daemon/gpt2d", "-c", "/dev/null", "--check", "--socket", d.socket, "--state-dir", d.state],
        capture_output=True, text=True, timeout=120, check=False)
    return next(line for line in done.stdout.splitlines() if line.split()[:2] == ["fail", "queue"])


STATES = "one of queued, starting, running, finishing, done, failed, cancelled, interrupted"


@pytest.mark.parametrize("column, value, said", [
    ("state", "'weird'", f'state: "weird" is not allowed, {STATES}'),
    ("gpus", "-3", 'gpus: "-3" is not allowed, a whole number from 0 to 1024'),
    ("segments", "'many'", 'segments: "many" is not allowed, a whole number from 1 to 32000'),
    ("segments_done", "7", 'segments_done: "7" is not allowed, the run has 1 segments'),
    ("attempt", "0", 'attempt: "0" is not allowed, a whole number from 1 to 2147483646'),
    ("ended_ns", "-1", 'ended_ns: "-1" is not allowed, a whole number from 0'),
    ("name", "'../x'", 'name: "../x" is not allowed, '),
])
def test_a_row_that_cannot_be(daemon, column, value, said):
    """It is named by whom it is in the way of, and all goes on once it is set again."""
    with daemon() as d:
        with d.client() as c:
            c.wait(c.submit(spec("before")))
            c.wait(c.submit(spec("fail.r0.s1")))
        d.stop()
        db = sqlite3.connect(d.state / "gpt2d.db")
        was, = db.execute(f"select {column} from runs where id = 2").fetchone()
        db.close()
        change(d, f"update runs set {column} = {value} where id = 2")
        error = start_refused(d)
        assert f"{d.state}/gpt2d.db: runs, id 2: {said}" in error
        assert error.endswith("; A DAMAGED DATABASE in gpt2d(8) says what to do\n")
        assert f"runs, id 2: {said}" in checked(d)
        change(d, f"update runs set {column} = {was!r} where id = 2")
        d.start()
        with d.client() as c:
            assert c.wait(2)["state"] == "failed"


def test_a_row_that_cannot_be_of_a_run_that_is_done(daemon):
    """gpt2d starts; whoever asks is refused, and the log names it; --check does before."""
    with daemon() as d:
        with d.client() as c:
            c.wait(c.submit(spec("before")))
        d.stop()
        change(d, "update runs set gpus = -3 where id = 1")
        assert 'runs, id 1: gpus: "-3" is not allowed' in checked(d)
        d.start()
        with d.client() as c:
            with pytest.raises(RpcError, match="damaged"):
                c.call("list")
            wait_for(lambda: 'error gpt2d.db: runs, id 1: gpus: "-3" is not allowed, a whole' in d.said(), "the row in the log")
            assert any('gpus: "-3"' in line["message"] for line in c.call("logs")["lines"])


@pytest.mark.parametrize("table", ["segments", "transitions", "log", "holds"])
def test_a_table_that_is_missing(daemon, table):
    with daemon() as d:
        d.stop()
        change(d, f"drop table {table}")
        said = f"no such table: {table}"
        assert f"gpt2d.db: {said}; A DAMAGED DATABASE in gpt2d(8) says what to do\n" in start_refused(d)
        assert said in checked(d)
        shutil.rmtree(d.state)
        d.start()
