"""gpt2d --check: a line for each check, the problem and the advice, and no changes."""

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from helpers import BUILD, FAKE_ENGINE, Daemon, spec, wait_for

GPT2D = BUILD / "daemon" / "gpt2d"
NAMES = ["gpt2d", "settings", "clock", "device", "libraries", "engine", "log", "metrics", "data", "socket", "disk", "queue",
    "processors", "/proc", "/dev/shm", "nofile", "memlock", "GPUs"]


def run(home, *words, conf="/dev/null", prefix=(), **more):
    return subprocess.run([*prefix, GPT2D, "-c", conf, "--check", "--socket", home / "s", "--state-dir", home / "state", *words],
        capture_output=True, text=True, timeout=180, check=False, **more)


def checks(home, *words, status=0, **more):
    """From the JSON: {name: (verdict, found, advice)}; a duplicate name keeps its first."""
    done = run(home, "--json", *words, **more)
    assert done.returncode == status, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["ok"] == (status == 0)
    found = {}
    for check in answer["checks"]:
        assert (check["verdict"] == "ok") == (check["advice"] is None)
        found.setdefault(check["check"], (check["verdict"], check["found"], check["advice"]))
    return found


def test_all_is_well_and_nothing_is_left(home):
    before = sorted(home.rglob("*"))
    shown = run(home)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert [line[6:].split()[0] for line in shown.stdout.splitlines()] == NAMES
    assert "fail" not in [line.split()[0] for line in shown.stdout.splitlines()]
    assert sorted(home.rglob("*")) == before
    found = checks(home)
    assert "OpenBLAS" in found["engine"][1]
    assert found["disk"][1].startswith(f"{home}/state on ") and "does not exist yet" in found["disk"][1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_a_file_system_that_is_read_only(home):
    """Nobody may write there, even its owner."""
    place = home / "readonly"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1M", "none", str(place)], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        verdict, found, advice = checks(home, "--state-dir", place / "state", status=1)["state"]
        tested = subprocess.run([GPT2D, "-c", "/dev/null", "-n", "--state-dir", place / "state"], capture_output=True, text=True,
            timeout=60, check=False)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)
    assert verdict == "fail" and "Read-only file system" in found
    assert (tested.returncode, tested.stderr) == (2, f"gpt2d: {found}\n")
    assert advice == "mount it for writing, or set state_dir"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_little_room(home):
    place = home / "full"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(place)], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        (place / "state").mkdir()
        found = checks(home, "--state-dir", place / "state")
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)
    assert found["disk"][0] == "warn" and ", 16 KiB free" in found["disk"][1] and "gpt2ctl prune" in found["disk"][2]


def test_wrong_settings(home):
    conf = home / "conf"
    conf.write_text("ranks = 0\nx = 1\n")
    conf.chmod(0o600)
    verdict, found, advice = checks(home, status=1, conf=conf)["settings"]
    assert verdict == "fail" and found.startswith(f"{conf}:1: ranks: ") and "gpt2d -n" in advice


def test_engines_that_are_not_right(home):
    found = checks(home, "--engine", "/nowhere/engine", status=1)
    assert found["device"][:2] == ("fail", "engine: /nowhere/engine: No such file or directory")
    assert "engine" not in found
    for text, why in (("#!/bin/false\n", "exited with status 1"), ("#!/bin/sh\nkill -SEGV $$\n", "killed by signal 11"),
            ("no program\n", f"could not be started: {home}/engine: Exec format error")):
        (home / "engine").write_text(text)
        (home / "engine").chmod(0o700)
        found = checks(home, "--engine", home / "engine", status=1)
        assert found["engine"][:2] == ("fail", f"the engine does not check a spec: {why}")
    assert checks(home, "--engine", FAKE_ENGINE)["engine"][:2] == ("ok", "it answers: fake")
    assert checks(home, "--engine", FAKE_ENGINE, "--ranks", "2")["engine"][1] == "it answers: fake; two ranks connect"


def test_two_ranks_connect_over_the_interface_between_nodes(home):
    key = home / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    several = ("--listen", "127.0.0.1:0", "--nodes", "2", "--key-file", key)
    found = checks(home, *several, "--interface", "lo")["engine"][1]
    assert found.endswith("; two ranks connect over lo"), found
    missing = run(home, *several, "--interface", "nosuch0")
    assert missing.returncode != 0 and "nosuch0" in missing.stdout + missing.stderr


def test_ranks_that_cannot_connect(home):
    """L15: devices named in UCX's environment must exist."""
    environment = {**os.environ, "UCX_TLS": "tcp", "UCX_NET_DEVICES": "nosuch0"}
    verdict, found, _ = checks(home, "--device", "cpu", "--ranks", "2", status=1, env=environment)["engine"]
    assert verdict == "fail" and found.startswith("two ranks cannot connect: UCX with UCX_TLS=tcp: network device 'nosuch0' ")
    assert checks(home, "--device", "cpu", "--ranks", "1", env=environment)["engine"][0] == "ok"


def processes_of(marker):
    """Processes with that in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if marker in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(int(pid))
        except OSError:
            pass
    return found


def test_an_engine_that_hangs(home):
    """Reported within check_timeout, and nothing that the engine started stays."""
    hangs = home / "hangs"
    hangs.write_text('#!/bin/sh\nsleep 1000 &\nexec sleep 1000\n')
    hangs.chmod(0o700)
    found = checks(home, "--engine", hangs, "--check-timeout", "1", status=1, env={**os.environ, "MARK": str(home)})
    assert found["engine"][1] == "the engine does not check a spec: no answer within 1 s: it hangs, or check_timeout is too short"
    wait_for(lambda: not processes_of(f"MARK={home}".encode()), "the end of all that was started")


# ---- the same as the start ----

def started(home, *words):
    """The output of a start that fails: (status, words)."""
    done = subprocess.run([GPT2D, "-c", "/dev/null", "--engine", FAKE_ENGINE, "--socket", home / "s", "--state-dir",
        home / "state", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "" and done.stderr.startswith("gpt2d: ") and done.stderr.count("\n") == 1
    return done.returncode, done.stderr.removeprefix("gpt2d: ").rstrip()


def tree(folder):
    """All names in it, with the content of files."""
    return sorted((str(path), path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest(), path.lstat().st_mode)
        for path in folder.rglob("*"))


def wrong_places(home):
    """(what to change, options, the check, the status of the start)."""
    (home / "file").touch()
    (home / "folder").mkdir()
    (home / "dir.db/gpt2d.db").mkdir(parents=True)
    (home / "runs.file").mkdir()
    (home / "runs.file/runs").touch()
    return (
        (("--socket", home / "file"), "socket", 1),
        (("--socket", home / "file/s"), "socket", 1),
        (("--socket", home / "folder"), "socket", 1),
        (("--state-dir", home / "file"), "state", 1),
        (("--state-dir", home / "file/state"), "state", 1),
        (("--state-dir", home / "runs.file"), "state", 1),
        (("--state-dir", home / "dir.db"), "state", 1),
        (("--log-file", home / "none/log"), "log", 2),
        (("--log-file", home / "folder"), "log", 2),
        (("--metrics-file", home / "folder"), "metrics", 2),
        (("--metrics-file", f"{home}/folder/"), "metrics", 2),
    )


def test_places_where_the_start_fails(home):
    """--check, -n and the start report the same, word by word, and --check and -n change nothing."""
    for words, name, status in wrong_places(home):
        before = tree(home)
        reported, text = started(home, *words)
        assert reported == status, (words, text)
        verdict, found, advice = checks(home, "--engine", FAKE_ENGINE, *words, status=1)[name]
        assert (verdict, found) == ("fail", text) and advice, words
        assert 1 <= text.count(str(home)) <= 2, text  # the requested path, and the obstacle
        tested = subprocess.run([GPT2D, "-c", "/dev/null", "-n", *words], capture_output=True, text=True, timeout=60,
            check=False)
        assert (tested.returncode, tested.stdout, tested.stderr) == (2, "", f"gpt2d: {text}\n")
        assert tree(home) == before, words


def test_what_the_start_only_warns_of(home):
    words = ("--data-roots", home / "none", "--metrics-file", home / "none/m", "--checkpoint-roots", home / "none")
    found = checks(home, *words)
    assert found["data"][:2] == ("warn", f"data_roots: {home}/none: No such file or directory: runs cannot read files below it")
    assert found["metrics"][0] == "warn" and f"{home}/none/m: No such file or directory" in found["metrics"][1]
    tested = subprocess.run([GPT2D, "-c", "/dev/null", "-n", *words], capture_output=True, text=True, timeout=60,
        check=False)
    assert found["checkpoints"][:2] == ("warn", f"checkpoint_roots: {home}/none: No such file or directory: runs write no checkpoints there")
    assert tested.returncode == 0 and f"warning: {found['data'][1]}\n" in tested.stderr
    assert f"warning: {found['checkpoints'][1]}\n" in tested.stderr
    with Daemon(home=home, options=words) as d:
        wait_for(lambda: found["data"][1] in d.said() and found["metrics"][1] in d.said(), "the warnings")
    assert checks(home, "--socket-mode", "0660")["data"][0] == "warn"
    assert checks(home, "--socket-mode", "0660", "--data-roots", home)["data"][0] == "ok"
    assert checks(home, "--checkpoint-roots", home)["checkpoints"][:2] == ("ok", f"checkpoint_roots: {home}")


def test_no_place_of_ones_own(home):
    """Reported once, by the check that fails because of it."""
    user = 65534 if os.geteuid() == 0 else None
    try:
        done = subprocess.run([GPT2D, "-c", "/dev/null", "--check", "--json"], capture_output=True, text=True, timeout=180,
            user=user, env={"PATH": os.environ["PATH"]}, check=False)
    except PermissionError:
        pytest.skip("the build cannot be reached by another user")
    rows = json.loads(done.stdout)["checks"]
    assert done.returncode != 0 and {row["check"] for row in rows} <= {*NAMES, "state"}, rows
    for name, setting in (("socket", "socket"), ("state", "state_dir")):
        reported = [row for row in rows if f"{setting}: no default path" in row["found"]]
        assert [(row["check"], row["verdict"], row["advice"]) for row in reported] == [(name, "fail", f"set {setting} to another path")]


def database(home):
    """A gpt2d.db with two runs, the newest pages in its write-ahead log."""
    with Daemon(home=home) as d:
        with d.client() as c:
            for name in ("one", "two"):
                c.wait(c.submit(spec(name)))
        d.kill(signal.SIGKILL)
        assert (d.state / "gpt2d.db-wal").stat().st_size > 0
        return d


def test_the_database_that_is_there(home):
    """It is read including its write-ahead log, and not changed."""
    d = database(home)
    before = tree(home)
    verdict, found, _ = checks(home)["queue"]
    assert verdict == "ok" and found.endswith("/gpt2d.db: 2 runs, schema 4, no damage found"), found
    assert tree(home) == before
    d.start()
    assert d.stop() == 0


def test_a_damaged_database(home):
    d = database(home)
    d.start()
    assert d.stop() == 0  # all of it is in one file
    path = d.state / "gpt2d.db"
    good = path.read_bytes()
    for damage in (os.urandom(20000), good[:4096] + os.urandom(len(good) - 4096)):
        path.write_bytes(damage)
        before = tree(home)
        verdict, found, advice = checks(home, "--engine", FAKE_ENGINE, status=1)["queue"]
        assert verdict == "fail" and advice == "A DAMAGED DATABASE in gpt2d(8) says what to do", found
        assert tree(home) == before
    path.write_bytes(os.urandom(20000))
    assert started(home) == (1, f"{path}: file is not a database; see A DAMAGED DATABASE in gpt2d(8)")


@pytest.mark.parametrize("sql, says", [("update schema set version = 99", "schema 99, this gpt2d supports up to 4"),
    ("drop table schema", "a database of another program: no table schema")])
def test_a_database_of_others(home, sql, says):
    d = database(home)
    path = d.state / "gpt2d.db"
    with sqlite3.connect(path) as db:
        db.execute(sql)
    db.close()
    assert checks(home, status=1)["queue"][:2] == ("fail", f"{path}: {says}")
    assert started(home) == (1, f"{path}: {says}")


def test_libraries_that_are_missing(home):
    """A missing shared library is reported with its package."""
    (home / "lib.c").write_text("int f(void) { return 0; }\n")
    (home / "main.c").write_text("int f(void);\nint main(void) { return f(); }\n")
    lines = (["-shared", "-o", "libcublasLt.so.99", "-Wl,-soname,libcublasLt.so.99", "lib.c"],
        ["-o", "engine", "main.c", "./libcublasLt.so.99"])
    for words in lines:
        subprocess.run(["cc", *words], cwd=home, check=True, timeout=60)
    (home / "libcublasLt.so.99").unlink()
    found = checks(home, "--engine", home / "engine", status=1)
    verdict, text, advice = found["libraries"]
    assert verdict == "fail" and text == f"{home}/engine lacks libcublasLt.so.99 (package libcublas-99-0 or later)"
    assert "NVIDIA's repository" in advice
    assert "status 127 (it or one of its shared libraries cannot be loaded: gpt2d --check names the packages)" in found["engine"][1]


def test_places(home):
    long = home / ("x" * 100)
    verdict, found, advice = checks(home, "--socket", long, status=1)["socket"]
    assert verdict == "fail" and "longer than 107 bytes" in found and "at most 107 bytes" in advice
    (home / "open").mkdir()
    (home / "open").chmod(0o777)
    verdict, found, advice = checks(home, "--socket", home / "open/s", status=1)["socket"]
    assert verdict == "fail" and "everybody can write to its folder" in found and "chmod o-w" in advice


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_no_rights(home):
    home.chmod(0o755)
    (home / "state").mkdir(mode=0o755)
    probe = subprocess.run([GPT2D, "--version"], user=65534, capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("the build cannot be reached by another user")
    found = checks(home, status=1, user=65534)
    for name in ("socket", "state"):
        assert found[name][0] == "fail" and "run gpt2d as the owner" in found[name][2]


def test_beside_a_daemon(home):
    with Daemon(home=home) as d:
        found = run(home, "--socket", d.socket, "--state-dir", d.state).stdout
        assert f"gpt2d.db is open in gpt2d, process {d.process.pid}: gpt2ctl status\n" in found
        assert d.accepts()


def test_more_than_there_is(home):
    found = checks(home, "--ranks", "1000")
    assert found["processors"][0] == "warn" and "1000 ranks" in found["processors"][1]


def test_soft_limits_are_raised(home):
    """Up to the hard limits, for gpt2d and its engines."""
    soft = ["/bin/sh", "-c", 'ulimit -S -f 0; ulimit -S -t 3; ulimit -S -n 100; exec "$0" "$@"']
    done = subprocess.run([*soft, GPT2D, "-c", "/dev/null", "--check", "--json", "--socket", home / "s", "--state-dir",
        home / "state"], capture_output=True, text=True, timeout=180, check=False)
    found = {c["check"]: c["verdict"] for c in json.loads(done.stdout)["checks"]}
    assert found["nofile"] == "ok"
    with Daemon(home=home, prefix=soft) as d, d.client() as c:
        assert c.wait(c.submit(spec("run")))["state"] == "done"
        for pid in (d.process.pid, *d.engines()):
            for name in ("Max file size", "Max cpu time", "Max open files"):
                line = next(x for x in Path(f"/proc/{pid}/limits").read_text().splitlines() if x.startswith(name))
                soft_limit, hard_limit = line.removeprefix(name).split()[:2]
                assert soft_limit == hard_limit, line
        assert "could not be raised" not in d.said()


def test_too_few_descriptors(home):
    """gpt2d does not start, and reports why."""
    few = ["/bin/sh", "-c", 'ulimit -n 40; exec "$0" "$@"', GPT2D, "-c", "/dev/null", "--socket", home / "s",
        "--state-dir", home / "state"]
    started = subprocess.run(few, capture_output=True, text=True, timeout=60, check=False)
    assert started.returncode == 1 and "40 descriptors, 576 needed (512 clients, 1 rank, files)" in started.stderr
    done = subprocess.run([*few, "--check", "--json"], capture_output=True, text=True, timeout=180, check=False)
    nofile = next(c for c in json.loads(done.stdout)["checks"] if c["check"] == "nofile")
    assert done.returncode == 1 and nofile["verdict"] == "fail"
