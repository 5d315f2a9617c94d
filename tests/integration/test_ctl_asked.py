"""What gpt2ctl asks on a terminal before it does what cannot be undone, and what no stands for."""

import os
import re
import signal

import pytest

from client import CTL, environment
from fake_daemon import FakeDaemon, run_object
from terminal import Terminal


def scripted(path):
    def prune(params, connection):
        return {"runs": [{"id": 1, "name": "demo", "state": "failed", "ended_at": None, "bytes": 10}], "bytes": 10,
            "dry_run": params.get("dry_run", False), "left": [], "next": None}
    return FakeDaemon(path, prune=prune, 
        list=lambda params, connection: {"runs": [run_object()] * (params["state"] == "queued"), "next": None},
        cancel=lambda params, connection: {"id": params["id"], "state": "cancelled", "already": False})


@pytest.mark.parametrize("answer, exit", [("n\n", 13), ("\n", 13), ("\x04", 13), ("y\n", 0)])
@pytest.mark.parametrize("words, question, no", [
    (["cancel", "--all"], r"cancel 1 queued run\? \[y/N\] ", "nothing was cancelled"),
    (["prune", "--keep", "0"], r"remove 1 run, 10 B, permanently\? \[y/N\] ", "nothing was removed")])
def test_no_is_told_from_what_failed(path, words, question, no, answer, exit):
    with scripted(path) as daemon, Terminal([str(CTL), *words], environment(path)) as terminal:
        terminal.wait(question)
        terminal.type(answer)
        assert terminal.end() == exit
        assert bool(re.search(no, terminal.seen)) == (exit != 0)
        done = [params for params in daemon.asked(words[0]) if not params.get("dry_run")]
        assert len(done) == (exit == 0)


@pytest.mark.parametrize("words, no", [(["cancel", "--all"], "nothing was cancelled"), (["prune", "--keep", "0"], "nothing was removed")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_the_question_is_no(path, words, no, number):
    with scripted(path) as daemon, Terminal([str(CTL), *words], environment(path)) as terminal:
        terminal.wait(r"\? \[y/N\] ")
        os.kill(terminal.pid, number)
        assert terminal.end() == 13
        assert re.search(rf"\[y/N\] \r\n.*{no}", terminal.seen)
        assert not [params for params in daemon.asked(words[0]) if not params.get("dry_run")]
