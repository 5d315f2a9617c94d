"""Every allocation of gpt2d refused: an error or an end in good order, and nothing that was accepted is lost."""

import json
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from engines import Rank
from faults import LONG, check_next_run, sample
from helpers import Daemon, RpcError, experiment, spec, wait_for
from memory import FOREVER, Memory, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=str(why_not()))
PATIENCE_S = 120  # for an answer; the checker's time-out is shorter


@pytest.fixture
def memory(tmp_path):
    return Memory(tmp_path)


def start(tmp_path, memory):
    return Daemon(home=tmp_path, environment=memory.environment, options=("--check-timeout", "20"))


REQUESTS = {
    "hello": lambda c, run, ended: c.call("hello", protocol=1, client="test"),
    "list": lambda c, run, ended: c.call("list"),
    "show": lambda c, run, ended: c.call("show", id=ended),
    "status": lambda c, run, ended: c.call("status"),
    "logs": lambda c, run, ended: c.call("logs", id=ended),
    "metrics": lambda c, run, ended: c.call("metrics"),
    "artifacts": lambda c, run, ended: c.call("artifacts", id=ended),
    "follow": lambda c, run, ended: c.call("follow", id=run),
    "follow one that has ended": lambda c, run, ended: c.call("follow", id=ended),
    "priority": lambda c, run, ended: c.call("priority", id=run, priority=3),
    "keep": lambda c, run, ended: c.call("keep", id=ended, kept=True),
    "prune": lambda c, run, ended: c.call("prune", keep=1000),
    "drain": lambda c, run, ended: c.call("drain", reason="again"),
    "dry submit": lambda c, run, ended: c.call("dry-run", spec=experiment("dry", repetitions=1)),
    "submit": lambda c, run, ended: c.submit(spec("more")),
    "cancel": lambda c, run, ended: c.call("cancel", id=run),
}


def answer(ask, c, *args):
    """A result, what an error says, or None where the connection was ended."""
    try:
        return ask(c, *args)
    except RpcError as error:
        return str(error)
    except (EOFError, OSError) as gone:
        assert not isinstance(gone, socket.timeout), "no answer"
        return None


def about_memory(told):
    """Of an error: it says what it was, not that something is wrong with the question."""
    return not isinstance(told, str) or "memory" in told or "closed its link" in told


def states(d):
    with d.client() as c:
        return {run["id"]: run["state"] for run in c.call("list", limit=10000)["runs"]}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(tmp_path, memory, name):
    """Each is answered, by an error that says so or by a whole result, or the connection ends; gpt2d lives on."""
    ask = REQUESTS[name]
    with start(tmp_path, memory) as d:
        with d.client() as c:
            ended = c.submit(spec("ended"))
            assert c.wait(ended)["state"] == "done"
            c.call("drain")
            run = c.submit(spec("waits"))
            usual = answer(ask, c, run, ended)
            before = memory.count
            usual = answer(ask, c, run, ended)
            total = memory.count - before
        known = states(d)
        for n in sample(total, 12):
            with d.client() as c:
                c.socket.settimeout(PATIENCE_S)
                memory.refuse(n)
                told = answer(ask, c, run, ended)
                memory.give()
            assert about_memory(told), (n, told)
            if isinstance(told, dict) and isinstance(usual, dict):
                assert told.keys() == usual.keys(), n
            if isinstance(told, int):
                known[told] = "queued"
            assert d.process.poll() is None, d.said()
        there = states(d)
        for number, state in known.items():
            assert there[number] == state, (number, there)
        with d.client() as c:
            c.call("resume")
            for number in there:
                assert c.wait(number)["state"] in ("done", "cancelled")


def test_what_is_refused_is_never_queued(tmp_path, memory):
    """Also where there is no memory for the reason; every allocation, as it is one of them that matters."""
    ask = lambda c: c.submit(spec("refused", seed=666))
    with start(tmp_path, memory) as d:
        with d.client() as c:
            assert answer(ask, c).startswith("spec refused: data.train: train.bin: ")
            before = memory.count
            usual = answer(ask, c)
            total = memory.count - before
        for n in range(1, total + 1):
            with d.client() as c:
                c.socket.settimeout(PATIENCE_S)
                memory.refuse(n)
                told = answer(ask, c)
                memory.give()
            assert told is None or told == usual or about_memory(told), (n, told)
            assert not isinstance(told, int), n
        assert states(d) == {}


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
            checker.send("check", token=token, world=1, spec=spec("wrong", gpus=2))
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


def test_a_run(tmp_path, memory):
    """Whatever it is that gets no memory, the run ends, and its followers learn of it or lose their connection."""
    with start(tmp_path, memory) as d:
        with d.client() as c:
            before = memory.count
            assert c.wait(c.submit(experiment("usual", repetitions=1)))["state"] == "done"
            total = memory.count - before
        for n in sample(total, 12):
            with d.client() as c:
                wait_for(lambda: c.call("status")["engine"]["state"] == "ready", "engines")
                c.call("drain")
                run = c.submit(experiment("run", repetitions=1))
            with d.client() as c:
                c.socket.settimeout(PATIENCE_S)
                memory.refuse(n)
                told = answer(lambda c: c.call("resume"), c)
                if isinstance(told, dict):
                    try:
                        c.wait(run)
                    except (RpcError, EOFError, OSError, AssertionError) as gone:
                        assert not isinstance(gone, socket.timeout), f"no end is told at {n}"
                memory.give()
            assert d.process.poll() is None, d.said()
            with d.client() as c:
                c.call("resume")
                end = c.wait(run)
            assert end["state"] == "done" or end["state"] == "failed" and end["reason"], (n, end)
        check_next_run(d)


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
            assert failed[0] in (1, 2) and "memory" in failed[1] and "gpt2d: " in failed[1], (n, failed)
    d.start()
    with d:
        there = states(d)
        assert there.keys() == {1, 2, 3} and there[1] == "done" and there[3] == "queued"
        assert there[2] in ("queued", "starting", "running")
        with d.client() as c:
            c.call("cancel", id=2)
            assert c.wait(3)["state"] == "done"


@pytest.mark.skipif(not LONG, reason="what gets no memory is left to chance: part memory of tests/run")
def test_a_long_shortage(tmp_path, memory):
    """Nothing for a while, not once only: errors or closed connections, then all goes on."""
    with start(tmp_path, memory) as d:
        with d.client() as c:
            assert c.wait(c.submit(spec("before")))["state"] == "done"
            c.call("drain")
            run = c.submit(spec("waits"))
        until = time.monotonic() + 1
        while time.monotonic() < until:
            for ask in REQUESTS.values():
                with d.client() as c:
                    c.socket.settimeout(PATIENCE_S)
                    memory.refuse(30, 300)
                    if ask is not REQUESTS["cancel"]:
                        answer(ask, c, run, 1)
                    memory.give()
        assert d.process.poll() is None, d.said()
        there = states(d)
        assert there[1] == "done" and there[run] in ("queued", "failed", "done")
        with d.client() as c:
            c.call("resume")
            end = c.wait(run)
        assert end["state"] == "done" or "memory" in end["reason"], end
        check_next_run(d)


@pytest.mark.parametrize("make", [spec, lambda name: experiment(name, repetitions=1)])
def test_a_segment_whose_end_cannot_be_written(tmp_path, memory, make):
    """There is no memory for what is to be stored of it: its run is not done, and no marker says so."""
    with start(tmp_path, memory) as d, d.client() as c:
        run = c.submit(make("wide"))
        arm = c.wait(run) and c.call("show", id=run)["segments"][0]["arm"]
        stored = json.dumps({"loss_last": 1.5, "arm": arm, "wide": [1] * 5000}, separators=(",", ":"))
        c.call("drain")
        run = c.submit(make("wide"))
        memory.refuse(1, n=FOREVER, size=len(stored) + 1)
        c.call("resume")
        end = c.wait(run)
        memory.give()
        assert memory.refused > 0
        assert (end["state"], end["reason"]) == ("failed", "no_memory: what became of its segments could not be written")
        assert not Path(end["dir"], "RUN_COMPLETE.txt").exists()
        assert c.wait(c.submit(make("wide")))["state"] == "done"
