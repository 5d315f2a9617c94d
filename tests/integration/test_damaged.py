"""A damaged gpt2d.db: what gpt2d(8) says to do is done here, word for word."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers import spec

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
