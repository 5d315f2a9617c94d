"""gpt2ctl while it waits for events and gpt2d is silent: stopped, hung, or without an event."""

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest

from client import CTL, done, environment, step
from fake_daemon import FakeDaemon, follow_script, run_object
from helpers import PATIENCE_S, wait_for
from helpers import spec as spec_of
from terminal import Terminal

QUIET_S = 4    # then gpt2ctl asks gpt2d for its version
SILENT_S = 12  # and then prints that gpt2d is silent


class Waiting:
    """A gpt2ctl whose standard error is read as it comes."""

    def __init__(self, path, *words):
        self.words = words
        self.lines = []
        self.process = subprocess.Popen([CTL, *map(str, words)], env=environment(path), text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.out = ""
        self.readers = [threading.Thread(target=self.read_out), threading.Thread(target=self.read_errors)]
        for reader in self.readers:
            reader.start()

    def read_out(self):
        self.out = self.process.stdout.read()

    def read_errors(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    def end(self):
        code = self.process.wait(PATIENCE_S)
        for reader in self.readers:
            reader.join(PATIENCE_S)
        return code


@contextlib.contextmanager
def waiting(path, *commands):
    all = [Waiting(path, *words) for words in commands]
    try:
        yield all
    finally:
        for one in all:
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGCONT)
                one.process.kill()
            one.end()
            one.process.stdout.close()
            one.process.stderr.close()


def without(all, words):
    return [(one.words, one.lines) for one in all if not any(words in line for line in one.lines)]


def wait_until_printed(all, words):
    with contextlib.suppress(AssertionError):
        wait_for(lambda: not without(all, words), words)
    assert without(all, words) == []


def see_all(c, all):
    """All of them are connected, for so long that they have asked."""
    drains = any(one.words[0] == "drain" for one in all)
    since = time.monotonic()

    def steady():
        nonlocal since
        status = c.call("status")
        if status["daemon"]["clients"] <= len(all) or (drains and not status["drained"]):
            since = time.monotonic()
        return time.monotonic() > since + 1.5
    wait_for(steady, "all of them")


def test_a_gpt2d_that_is_stopped_while_it_is_waited_for(daemon):
    """Reported once, with the process and the next step, and once when it answers again."""
    with daemon() as d, d.client() as c:
        run = c.submit(spec_of("untold", 5))
        wait_for(lambda: c.state(run) == "running", "the run")
        behind = c.submit(spec_of("waits"))
        stay = [("follow", run), ("follow", run, "--json"), ("wait", run), ("wait", run, behind), ("wait", run, "--json"),
            ("logs", "-f", run), ("wait", "--timeout", 600, run)]
        leave = [("follow", run), ("logs", "-f", run), ("wait", "--timeout", QUIET_S + SILENT_S + 4, run, behind)]
        drain = [("drain", "--wait"), ("drain", "--wait", "--timeout", 600, "--json")]
        with waiting(d.socket, *stay, *leave, *drain) as all:
            see_all(c, all)
            staying, leaving, drains = all[:len(stay)], all[len(stay):-2], all[-2:]
            d.process.send_signal(signal.SIGSTOP)
            try:
                wait_until_printed(staying + leaving, "has not answered")
                for one in leaving[:2]:
                    one.process.send_signal(signal.SIGINT)
                assert [one.end() for one in leaving] == [6, -signal.SIGINT, 124]
            finally:
                d.process.send_signal(signal.SIGCONT)
            wait_until_printed(staying, "answers again")
            (d.state.parent / "told").touch()
            assert [one.end() for one in drains] == [0, 0]
            c.call("resume")  # for the run that waits behind it
            assert [(one.words, one.end()) for one in staying if one.end() != 0] == []
    silent = (f"gpt2ctl: still waiting: gpt2d (process {d.process.pid}) has not answered on {d.socket} for 12 s; gpt2d is stopped, "
        f"continue it with: kill -CONT {d.process.pid}")
    for one in staying + leaving:
        printed = [line for line in one.lines if line.startswith("gpt2ctl: ")]
        assert printed[0].replace("answered logs on", "answered on") == silent, (one.words, one.lines)
        assert one in leaving or printed[1:] == ["gpt2ctl: gpt2d answers again"], (one.words, one.lines)
    assert leaving[0].lines[1].startswith(f"gpt2ctl: interrupted; run {run} continues")
    assert leaving[1].lines[1:] == []
    assert [line for line in leaving[2].lines if "has not ended" in line] == [
        f"gpt2ctl: run {run} has not ended in time (state: running)", f"gpt2ctl: run {behind} has not ended in time (state: queued)"]
    assert staying[0].out.splitlines()[-2].endswith(": done")
    assert [json.loads(line)["kind"] for line in staying[1].out.splitlines()][-1] == "run.done"
    assert [json.loads(line)["exit"] for line in staying[4].out.splitlines()] == [0]
    assert len(drains[1].out.splitlines()) == 1


def test_where_nothing_is_due_nothing_is_said(daemon):
    """Of a run whose step takes long, one that is queued, a drain; and a gpt2ctl that was itself stopped knows of nothing."""
    with daemon() as d, d.client() as c:
        run = c.submit(spec_of("untold", 1))
        wait_for(lambda: c.state(run) == "running", "the run")
        queued = c.submit(spec_of("waits"))
        commands = [("follow", run), ("wait", queued), ("follow", queued, "--json"), ("logs", "-f", run), ("drain", "--wait")]
        with waiting(d.socket, *commands, *commands) as all:
            see_all(c, all)
            sleepers = all[:len(commands)]
            for one in sleepers:
                one.process.send_signal(signal.SIGSTOP)
            time.sleep(QUIET_S + SILENT_S + 3)
            for one in sleepers:
                one.process.send_signal(signal.SIGCONT)
            time.sleep(1)
            assert [one.lines for one in all if any("answer" in line for line in one.lines)] == []
            assert [one.words for one in all if one.process.poll() is not None] == []
            (d.state.parent / "told").touch()
            assert [one.end() for one in all if one.words[0] == "drain"] == [0, 0]
            c.call("resume")
            assert [(one.words, one.end()) for one in all if one.end() != 0] == []
        assert [one.lines for one in all if any("answer" in line for line in one.lines)] == []


@pytest.fixture
def hung(path):
    """A gpt2d that has a follower and answers nothing more until the event is set, without being stopped."""
    answers, connections = threading.Event(), []
    mute = lambda params, connection: answers.wait(PATIENCE_S) and {}
    with open(f"{path}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        with FakeDaemon(path, version=mute, follow=follow_script(run_object(state="running"), [], connections.append)) as fake:
            yield fake, answers, connections
            answers.set()


def test_a_gpt2d_that_hangs(path, hung):
    """What is known of it is said, on a terminal on a line of its own. An event is a sign of life as well."""
    _, _, connections = hung
    who = f"gpt2d (process {os.getpid()})"
    with waiting(path, ("follow", 1)) as [one], \
            Terminal([str(CTL), "follow", "1"], environment(path, LC_ALL="C.UTF-8"), columns=200) as t:
        wait_for(lambda: len(connections) == 2, "both")
        for connection in connections:
            connection.notify("run.step", id=1, **step(2, 1)[1])
        t.wait("10%")
        t.wait("has not answered")
        wait_for(lambda: one.lines, "the notice")
        for connection in connections:
            connection.notify("run.step", id=1, **step(20, 2)[1])
        t.wait("100%")
        for connection in connections:
            connection.notify("run.done", id=1, **done(3)[1])
        assert (one.end(), t.end()) == (0, 0)
    assert one.lines == [f"gpt2ctl: still waiting: {who} has not answered on {path} for 12 s", "gpt2ctl: gpt2d answers again"]
    # the bar was there, and was taken away before
    assert re.search(r"10%.*\r\x1b\[Kgpt2ctl: [^\r\n]* has not answered", t.seen, re.DOTALL), t.seen
    assert re.search(r"\ngpt2ctl: gpt2d answers again\r\n", t.seen), t.seen
