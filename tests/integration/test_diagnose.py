"""gpt2d --check: a line for each thing, what is wrong and what to do, and nothing changed."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from helpers import BUILD, FAKE_ENGINE, Daemon

GPT2D = BUILD / "daemon" / "gpt2d"
NAMES = ["gpt2d", "settings", "device", "engine", "checker", "socket", "lock", "state", "database", "lock",
    "processors", "memory", "/dev/shm", "nofile", "memlock", "GPUs", "clock", "systemd"]


@pytest.fixture
def home():
    path = Path(tempfile.mkdtemp(prefix="gpt2d-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def run(home, *words, conf="/dev/null", **more):
    return subprocess.run([GPT2D, "-c", conf, "--check", "--socket", home / "s", "--state-dir", home / "state", *words],
        capture_output=True, text=True, timeout=180, check=False, **more)


def checks(home, *words, status=0, **more):
    """Of the JSON: {name: (verdict, found, advice)}; a name that comes twice keeps its first."""
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
    assert "OpenBLAS" in found["checker"][1] and "UCX " in found["engine"][1]
    assert found["state"][1].startswith(f"{home}/state on ") and "to be made" in found["state"][1]


def test_wrong_settings(home):
    conf = home / "conf"
    conf.write_text("ranks = 0\nx = 1\n")
    conf.chmod(0o600)
    verdict, found, advice = checks(home, status=1, conf=conf)["settings"]
    assert verdict == "fail" and found.startswith(f"{conf}:1: ranks: ") and "gpt2d -n" in advice


def test_engines_that_are_not_right(home):
    found = checks(home, "--engine", "/nowhere/engine", status=1)
    assert found["device"][:2] == ("fail", "engine: /nowhere/engine: No such file or directory")
    assert "engine" not in found and "checker" not in found
    found = checks(home, "--engine", "/bin/false", status=1)
    assert found["engine"][:2] == ("fail", "/bin/false --version fails")
    assert found["checker"][:2] == ("fail", "the engine does not check a spec: it exited with status 1")
    other = home / "other"
    other.write_text("#!/bin/sh\necho 'gpt2-engine 0.0.9 (other-build)'\n")
    other.chmod(0o700)
    found = checks(home, "--engine", other, status=1)
    assert found["engine"][1].startswith("gpt2-engine 0.0.9 (other-build): gpt2d is build ")
    assert checks(home, "--engine", FAKE_ENGINE, status=1)["checker"][:2] == ("ok", "the engine answers: fake")


def test_an_engine_that_does_not_answer(home):
    silent = home / "silent"
    silent.write_text("#!/bin/sh\n[ \"$1\" = --version ] && exit 1\nexec sleep 1000\n")
    silent.chmod(0o700)
    found = checks(home, "--engine", silent, "--check-timeout", "1", status=1)
    assert found["checker"][1] == "the engine does not check a spec: no answer within 1 s"


def test_device(home):
    if os.path.exists("/dev/nvidia0"):
        pytest.skip("there is a GPU")
    verdict, found, _ = checks(home, "--device", "cuda", status=1)["device"]
    assert verdict == "fail" and found.startswith("device: cuda: no ")


def test_places(home):
    long = home / ("x" * 100)
    verdict, found, advice = checks(home, "--socket", long, status=1)["socket"]
    assert verdict == "fail" and "longer than 107 bytes" in found and "107" in advice
    (home / "open").mkdir()
    (home / "open").chmod(0o777)
    verdict, found, advice = checks(home, "--socket", home / "open/s", status=1)["socket"]
    assert verdict == "fail" and "everybody can write to" in found and "chmod o-w" in advice
    found = checks(home, "--state-dir", "/proc/gpt2d", status=1)
    assert found["database"][0] == "fail"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_no_rights(home):
    home.chmod(0o755)
    (home / "state").mkdir(mode=0o755)
    probe = subprocess.run([GPT2D, "--version"], user=65534, capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("the build cannot be reached by another user")
    found = checks(home, status=1, user=65534)
    for name in ("socket", "state", "database"):
        assert found[name][0] == "fail" and "run gpt2d as whom" in found[name][2]


def test_beside_a_daemon(home):
    with Daemon(home=home) as d:
        found = run(home, "--socket", d.socket, "--state-dir", d.state).stdout
        assert f"the socket is used by gpt2d, process {d.process.pid}\n" in found
        assert f"the state directory is used by gpt2d, process {d.process.pid}\n" in found
        assert d.accepts()


def test_more_than_there_is(home):
    found = checks(home, "--ranks", "1000")
    assert found["processors"][0] == "warn" and "1000 ranks" in found["processors"][1]
    done = subprocess.run(["/bin/sh", "-c", 'ulimit -n 100; exec "$0" "$@"', GPT2D, "-c", "/dev/null", "--check",
        "--json", "--socket", home / "s", "--state-dir", home / "state"], capture_output=True, text=True,
        timeout=180, check=True)
    nofile = next(c for c in json.loads(done.stdout)["checks"] if c["check"] == "nofile")
    assert nofile["verdict"] == "warn" and nofile["found"].startswith("100 descriptors")
