"""gpt2ctl while it waits for events and gpt2d is silent: stopped, hung, or without an event."""

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import threading

import pytest

from client import CTL, done, environment, step
from fake_daemon import FakeDaemon, follow_script, run_object
from helpers import PATIENCE_S, wait_for
from terminal import Terminal



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


@pytest.fixture
def hung(path):
    """A gpt2d that has a follower and sends nothing until the event is set, without being stopped."""
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
    """The message has what is known, on its own line on a terminal. An event is a sign of life as well."""
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
