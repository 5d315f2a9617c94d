"""A gpt2d.db that is damaged, restored or locked, and a state directory that was moved. The steps of gpt2d(8) are executed word for word."""

import os
import re
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from helpers import BUILD, Daemon, RpcError, agrees, experiment, figure, refusal, spec, wait_for


MANUAL = Path(__file__).resolve().parents[2] / "daemon" / "gpt2d.8"
RUNS = 40


def commands(title="A DAMAGED DATABASE"):
    """The literal blocks of a section, as lines."""
    section = MANUAL.read_text().split(f".Sh {title}\n")[1].split("\n.Sh ")[0]
    return ["\n".join(line[2:].replace("\\e", "\\") for line in block.splitlines() if line.startswith("$ "))
        for block in re.findall(r"^\.Bd -literal.*?^\.Ed", section, re.MULTILINE | re.DOTALL)]


def shell(state, script):
    done = subprocess.run(["bash", "-c", script.replace("STATE_DIR", str(state))], capture_output=True, text=True, cwd=state,
        timeout=60, check=False)
    return done.stdout.split()


def damage_page(database, pattern):
    """The last leaf of a table that has that in it."""
    was = database.read_bytes()
    page = int.from_bytes(was[16:18], "big")
    at = [found.start() // page * page for found in re.finditer(pattern, was, re.DOTALL)]
    with open(database, "r+b") as file:
        file.seek([start for start in at if was[start] == 0x0d][-1])
        file.write(b"\xa5" * page)


# a row of runs: name, uid, state
EARLY_ROW, LATE_ROW = (rb"%s.{0,8}done" % name for name in (b"run5", b"run30"))
NEEDS_SQLITE = pytest.mark.skipif(not shutil.which("sqlite3"), reason="sqlite3, the program, is not installed")


@NEEDS_SQLITE
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
            damage_page(database, LATE_ROW)
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


def start_refused(d):
    """The output of a gpt2d that does not start."""
    done = subprocess.run(d.command, capture_output=True, text=True, timeout=60, check=False, env=d.environment)
    assert done.returncode == 1, done
    return done.stderr


def checked(d, check="queue"):
    done = subprocess.run([BUILD / "daemon/gpt2d", "-c", "/dev/null", "--check", "--socket", d.socket, "--state-dir", d.state],
        capture_output=True, text=True, timeout=120, check=False)
    return next(line for line in done.stdout.splitlines() if line.split()[:2] == ["fail", check])


@pytest.mark.parametrize("change", ["state = 'weird'", "name = '../x'"])
def test_a_row_that_cannot_be(daemon, change):
    """A queued run after a repair: gpt2d does not start, and names the section that helps."""
    with daemon() as d:
        with d.client() as c:
            c.call("drain")
            c.submit(spec("queued"))
        d.stop()
        db = sqlite3.connect(d.state / "gpt2d.db")
        db.execute(f"update runs set {change}")
        db.commit()
        db.close()
        assert start_refused(d).endswith("gpt2d.db: the database is damaged, gpt2d(8) says what to do\n")


def fill(d, runs=RUNS):
    with d.client() as c:
        last = [c.submit(spec(f"run{n}")) for n in range(runs)][-1]
        c.wait(last)


def is_locked(d):
    """Whether gpt2d holds the lock that shows that the database is open."""
    file = os.stat(d.state / "gpt2d.db")
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    return f" {d.process.pid} {place} " in Path("/proc/locks").read_text(encoding="ascii")


def test_damage_is_told_everywhere(daemon):
    """A query finds the damage: nothing is accepted, started or written from then on, and all report why."""
    with daemon() as d:
        fill(d)
        assert d.stop() == 0
        whole = (d.state / "gpt2d.db").read_bytes()
        damage_page(d.state / "gpt2d.db", EARLY_ROW)
        d.start()
        with d.client() as c:
            assert c.call("status")["store"] is None
            c.call("drain")
            waiting = c.submit(spec("waiting"))
            locked = is_locked(d)  # by the kernel's list of locks
            with pytest.raises(RpcError, match="damaged"):
                c.call("list", limit=10000)
            store = c.call("status")["store"]
            assert store["path"] == f"{d.state}/gpt2d.db" and store["errno"] == "EBADMSG"
            assert "damaged" in store["error"] and "A DAMAGED DATABASE in gpt2d(8)" in store["advice"]
            assert figure(c, "gpt2d_store_failing") == 1
            said = f"{d.state}/gpt2d.db: the database is damaged"
            wait_for(lambda: f" error {said}" in d.said(), "the damage in the log")
            for _ in range(3):
                with pytest.raises(RpcError, match="the database is damaged.*A DAMAGED DATABASE") as refused:
                    c.submit(spec("next"))
                assert refused.value.code == -32006
            assert c.call("status")["store"] == store
            assert is_locked(d) == locked
            assert f"{d.state}/gpt2d.db: " in checked(d)
            assert d.said().count(f" error {said}") == 1
        before = (d.state / "gpt2d.db").read_bytes()
        d.stop()
        assert (d.state / "gpt2d.db").read_bytes() == before
        assert "A DAMAGED DATABASE" in start_refused(d)
        (d.state / "gpt2d.db").write_bytes(whole)
        d.start()
        with d.client() as c:
            assert c.call("status")["store"] is None
            assert [run["id"] for run in c.call("list", state="queued")["runs"]] == [waiting]


def test_no_run_starts_from_a_damaged_database(daemon):
    with daemon() as d:
        fill(d)
        d.stop()
        damage_page(d.state / "gpt2d.db", EARLY_ROW)
        d.start()
        d.engines()
        with d.client() as c:
            running = c.submit(spec("long-ms20", 100000))
            wait_for(lambda: c.call("status")["running"], "a run that runs")
            waiting = c.submit(spec("waiting"))
            with pytest.raises(RpcError, match="damaged"):
                c.call("list", limit=10000)
            with pytest.raises(RpcError, match="damaged"):
                c.call("cancel", id=running)
            status = wait_for(lambda: (s := c.call("status"))["running"] is None and s, "the end of the run")
            assert [run["id"] for run in status["queue"]] == [waiting]
        assert d.stop() == 1 and "stopped; some data could not be written" in d.said()


def stale_log(d):
    """A gpt2d.db of three runs beside the write-ahead log of one with many more; the copy."""
    fill(d, 3)
    d.stop()
    database, copy = d.state / "gpt2d.db", d.state / "copy"
    shutil.copyfile(database, copy)
    d.start()
    fill(d)
    db = sqlite3.connect(database)
    db.execute("pragma wal_checkpoint")
    db.close()
    fill(d, 10)
    d.kill()
    assert (d.state / "gpt2d.db-wal").stat().st_size > 0
    shutil.copyfile(copy, database)
    return copy


def test_a_log_of_another_database(daemon):
    """The start is refused and changes nothing: without the log all is valid."""
    with daemon() as d:
        copy = stale_log(d)
        log = (d.state / "gpt2d.db-wal").read_bytes()
        error = start_refused(d)
        assert "BACKUP AND RESTORE in gpt2d(8)" in error
        assert (d.state / "gpt2d.db").read_bytes() == copy.read_bytes()
        assert (d.state / "gpt2d.db-wal").read_bytes() == log
        shell(d.state, "rm -f gpt2d.db-wal gpt2d.db-shm")
        d.start()
        with d.client() as c:
            assert len(c.call("list")["runs"]) == 3
            assert c.wait(c.submit(spec("next")))["id"] > 3 + RUNS + 10


@NEEDS_SQLITE
def test_the_manuals_backup(daemon, tmp_path):
    """Made while gpt2d runs, restored over a database that has changed since and was not closed."""
    backup = tmp_path / "backup"
    backup.mkdir()
    make, restore = (block.replace("BACKUP", str(backup)) for block in commands("BACKUP AND RESTORE"))
    with daemon() as d:
        fill(d)
        shell(d.state, make)
        assert sorted(path.name for path in backup.iterdir()) == ["gpt2d.db", "runs"]
        fill(d, 20)
        d.kill()
        shutil.rmtree(d.state / "runs/1-run0")
        shell(d.state, restore)
        assert (d.state / "runs/1-run0").is_dir()
        d.start()
        with d.client() as c:
            assert {run["state"] for run in c.call("list", limit=10000)["runs"]} == {"done"}
            assert len(c.call("list", limit=10000)["runs"]) == RUNS
            assert c.wait(c.submit(spec("next")))["id"] > RUNS + 20


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_folders_that_the_database_does_not_know(tmp_path):
    """The database is removed or older than the folders in runs: those stay, and IDs continue above them."""
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            for name in ("old", "s"):
                run = c.submit(spec(name))
                assert c.wait(run)["state"] == "done"
        before = files(d.state / "runs")
        assert before
        d.stop()
        for path in d.state.glob("gpt2d.db*"):
            if not path.name.endswith(".lock"):
                path.unlink()
        d.start()
        assert "2 folders (the last is 2-s) of runs that gpt2d.db does not know" in d.said()
        with d.client() as c:
            run = c.submit(spec("s"))
            assert run == 3 and c.wait(run)["state"] == "done"
            assert c.call("prune", keep=0)["runs"]
        assert files(d.state / "runs") == before


def undone(d, work):
    """Its database from when the run was still queued is restored after it is done: the run, and its folder."""
    with d.client() as c:
        c.call("drain")
        run = c.submit(work)
    d.kill()
    copy = {path: path.read_bytes() for path in d.state.glob("gpt2d.db*")}
    d.start()
    with d.client() as c:
        c.call("resume")
        assert c.wait(run)["state"] == "done"
    d.stop()
    for path in d.state.glob("gpt2d.db*"):
        path.unlink()
    for path, content in copy.items():
        path.write_bytes(content)
    return run, d.state / "runs" / f"{run}-{work['name']}"


@pytest.mark.parametrize("work", [spec("s"), experiment("s", repetitions=1)], ids=["single", "experiment"])
def test_a_queued_run_that_has_a_folder(tmp_path, work):
    """It is trained again in another folder, and the older folder stays unchanged."""
    with Daemon(home=tmp_path) as d:
        run, folder = undone(d, work)
        before = files(folder)
        d.start()
        with d.client() as c:
            assert c.state(run) == "queued"
            c.call("resume")
            end = c.wait(run)
            assert end["state"] == "done" and end["dir"] == f"{folder}.2"
            listed = c.call("artifacts", id=run)
            assert listed["dir"] == end["dir"] and listed["files"] and not listed["missing"]
        assert "its directory has artifacts already" in d.said()
        assert files(folder) == before and agrees(d) == 1


def test_moved_state_directory(tmp_path):
    """Earlier runs are found in the new place."""
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            run = c.submit(experiment("moved", repetitions=1))
            assert c.wait(run)["state"] == "done"
            before = c.call("artifacts", id=run)
        d.stop()
        moved = d.state.parent / "runs" / "1-elsewhere"
        moved.parent.mkdir()
        d.state.rename(moved)
        d.command[d.command.index("--state-dir") + 1] = str(moved)
        d.start()
        with d.client() as c:
            now = c.call("artifacts", id=run)
            assert now["dir"] == f"{moved}/runs/{run}-moved" != before["dir"]
            assert now["files"] == before["files"] and not now["missing"]
            for segment in c.call("show", id=run)["segments"]:
                assert segment["dir"].startswith(now["dir"] + "/segments/") and Path(segment["dir"]).is_dir()


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
        assert refusal(c.submit, spec("refused")).message == f"the run is not queued: gpt2d could not store it: {said}"
        store = c.call("status")["store"]
        assert store["errno"] == "EBUSY" and store["advice"] == advice(database)
        assert store["error"] == "another process has it locked"
        writer.execute("rollback")
        wait_for(lambda: c.call("status")["store"] is None, "the end of it")
        assert c.wait(c.submit(spec("next")))["state"] == "done"
        reader.close()
        writer.close()
