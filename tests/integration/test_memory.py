"""Allocations refused: gpt2d or the engine ends in good order, and nothing that was accepted is lost."""

import json
import signal
import subprocess

import pytest

from engines import Rank
from faults import sample
from helpers import Daemon, spec, wait_for
from memory import Memory, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=str(why_not()))


@pytest.fixture
def memory(tmp_path):
    return Memory(tmp_path)


def start(tmp_path, memory):
    return Daemon(home=tmp_path, environment=memory.environment, options=("--check-timeout", "20"))


def states(d):
    with d.client() as c:
        return {run["id"]: run["state"] for run in c.call("list", limit=10000)["runs"]}


def test_the_checker_lets_nothing_wrong_pass(tmp_path):
    """Without memory for what is wrong either: it says that it is refused, or ends."""
    memory = Memory(tmp_path, "gpt2-engine-cpu")
    checker = None

    def ask(token, n=0):
        """Its answer; None where it ended."""
        nonlocal checker
        if checker is None:
            checker = Rank("--role", "check", env=memory.environment)
            checker.wait("engine.ready")
        if n > 0:
            memory.refuse(n)
        try:
            checker.send("check", token=token, world=1, spec=json.dumps(spec("wrong", gpus=2)), arm="run")
            return checker.wait("check.reply", token=token)[1]
        except (AssertionError, OSError):
            checker.kill()
            checker = None
        finally:
            memory.give()

    try:
        usual = ask(1)
        assert usual["errors"][0]["key"] == "gpus"
        before = memory.count
        assert ask(2)["errors"] == usual["errors"]
        total = memory.count - before
        for n in range(1, total + 1):
            told = ask(n + 2, n)
            assert told is None or not told["ok"], n
    finally:
        if checker is not None:
            checker.kill()


def test_start(tmp_path, memory):
    """It starts, or says that there is no memory; what was queued or was running is there afterwards."""
    d = start(tmp_path, memory)
    with d.client() as c:
        assert c.wait(c.submit(spec("done")))["state"] == "done"
        c.submit(spec("long-ms20", 100000, restart=True))
        c.submit(spec("queued"))
        wait_for(lambda: c.state(2) == "running", "running")
    d.kill(signal.SIGKILL)

    def attempt():
        """Whether it accepts clients; else its exit status and what it said."""
        d.process = subprocess.Popen(d.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=d.environment)
        wait_for(lambda: d.process.poll() is not None or d.accepts(), "gpt2d's socket or its end")
        memory.give()
        if d.process.poll() is None:
            d.kill(signal.SIGKILL)
            return None
        with d.process.stdout, d.process.stderr as errors:
            return d.process.returncode, errors.read()

    memory.refuse(1 << 40)
    before = memory.count
    assert attempt() is None
    total = memory.count - before
    for n in sample(total, 16):
        memory.refuse(n)
        failed = attempt()
        if failed is not None:
            assert failed[0] in (1, 2, -signal.SIGABRT) and "memory" in failed[1], (n, failed)
    d.start()
    with d:
        there = states(d)
        assert there.keys() == {1, 2, 3} and there[1] == "done" and there[3] == "queued"
        assert there[2] in ("queued", "starting", "running")
        with d.client() as c:
            c.call("cancel", id=2)
            assert c.wait(3)["state"] == "done"
