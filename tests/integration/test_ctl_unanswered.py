"""gpt2ctl where gpt2d does not answer: stopped, hung, silent, or without its socket."""

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
from pathlib import Path

from client import CTL, done, environment, step
from clocks import Clocks
from fake_daemon import FakeDaemon, follow_script, run_object
from helpers import PATIENCE_S, wait_for
from helpers import spec as spec_of
from terminal import Terminal
from test_ctl_daemon import ctl


def test_a_stopped_daemon_is_named(daemon):
    with daemon() as d:
        d.process.send_signal(signal.SIGSTOP)
        try:
            result = ctl(d, "status")
        finally:
            d.process.send_signal(signal.SIGCONT)
        assert result.returncode == 124 and result.stdout == ""
        notice, error, advice = result.stderr.splitlines()
        who = f"gpt2d (process {d.process.pid}) has not answered on {d.socket}"
        assert notice.startswith(f"gpt2ctl: still waiting: {who} for 2 s")
        assert notice.endswith(f"; gpt2d is stopped, continue it with: kill -CONT {d.process.pid}")
        # the real duration, not the intended one
        assert re.fullmatch(re.escape(f"gpt2ctl: {who} for ") + r"\d+(\.\d)? s", error)
        assert advice == f"gpt2d is stopped; continue it with: kill -CONT {d.process.pid}"
        assert ctl(d, "status").stderr == ""


def ask_a_mute(tmp_path):
    end = threading.Event()
    with FakeDaemon(tmp_path / "s", hello=lambda params, connection: end.wait(PATIENCE_S) and {}) as daemon:
        result = subprocess.run([CTL, "status"], capture_output=True, text=True, timeout=PATIENCE_S,
            env=environment(daemon.path))
        end.set()
    return daemon, result


def test_a_hung_daemon_is_named(tmp_path):
    daemon, result = ask_a_mute(tmp_path)
    assert result.returncode == 124
    who = f"gpt2d (process {os.getpid()}) has not answered on {daemon.path}"
    assert re.search(re.escape(f"{who} for ") + r"\d+(\.\d)? s\n", result.stderr)
    assert f"see gpt2d's log, and: ps -o pid,stat,wchan:32,args -p {os.getpid()}\n" in result.stderr


def test_silence_while_events_are_awaited(path):
    """The message is on its own line on a terminal. An event is a sign of life as well."""
    connections, end, who = [], threading.Event(), f"gpt2d (process {os.getpid()})"
    mute = lambda params, connection: end.wait(PATIENCE_S) and {}
    follow = follow_script(run_object(state="running"), [], connections.append)

    def tell(event):
        for connection in connections:
            connection.notify(event[0], id=1, **event[1])

    with FakeDaemon(path, version=mute, follow=follow), \
            subprocess.Popen([CTL, "follow", "1"], env=environment(path), text=True, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE) as plain, \
            Terminal([str(CTL), "follow", "1"], environment(path, LC_ALL="C.UTF-8"), columns=200) as t:
        wait_for(lambda: len(connections) == 2, "both")
        tell(step(2, 1))
        t.wait("10%")
        t.wait("has not answered")
        notice = plain.stderr.readline()
        tell(step(20, 2))
        t.wait("100%")
        tell(done(3))
        end.set()
        assert (plain.wait(PATIENCE_S), t.end()) == (0, 0)
        rest = plain.stderr.read()
    assert notice == f"gpt2ctl: still waiting: {who} has not answered on {path} for 12 s\n"
    assert rest == "gpt2ctl: gpt2d answers again\n"
    # the bar was there, and was taken away before
    assert re.search(r"10%.*\r\x1b\[Kgpt2ctl: [^\r\n]* has not answered", t.seen, re.DOTALL), t.seen
    assert re.search(r"\ngpt2ctl: gpt2d answers again\r\n", t.seen), t.seen


CHANGE = {"cancel 5": "gpt2ctl show 5", "keep 5": "gpt2ctl show 5", "priority 5 7": "gpt2ctl show 5",
    "prune --keep 3 --yes": "gpt2ctl list", "drain": "gpt2ctl status", "resume": "gpt2ctl status", "release": "gpt2ctl status",
    "warm": "gpt2ctl status", "shutdown": "gpt2ctl status"}
LOOK = ["status", "list", "show 5", "logs", "artifacts 5", "metrics", "version", "compare 5", "rerun 5",
    "prune --keep 3 --dry-run"]


def run_ctl(path, words):
    return subprocess.run([CTL, *words.split()], capture_output=True, text=True, timeout=PATIENCE_S, env=environment(path),
        stdin=subprocess.DEVNULL)


def test_what_was_asked_of_a_daemon_that_is_gone(path):
    """The request may have taken effect: the message says where to check."""
    methods = {name: lambda params, connection: connection.close() for name in [*"cancel keep priority prune drain resume release "
        "warm shutdown status list show logs artifacts metrics version dry-run".split()]}
    with FakeDaemon(path, **methods):
        for words in [*CHANGE, *LOOK]:
            result = run_ctl(path, words)
            says = f"check with: {CHANGE.get(words, 'gpt2ctl status')}"
            assert result.returncode == 1, (words, result)
            assert re.fullmatch(f"gpt2ctl: {words.split()[0]}: gpt2d closed the connection before it replied\n{says}\n", result.stderr), (words, result)


def test_what_was_asked_and_not_answered_in_time(path, spec, tmp_path):
    """The request may still take effect, and the message says where to check; requests that change nothing have no such line."""
    end, clocks = threading.Event(), Clocks(tmp_path, "gpt2ctl")
    asked = f"submit {spec}", f"submit --dry-run {spec}"
    names = "cancel keep priority prune drain resume release warm shutdown status list logs metrics version dry-run submit".split()
    late = lambda params, connection: end.wait(PATIENCE_S) and {}
    spec_text = json.loads(Path(spec).read_text())
    whole = lambda params, connection: {"run": run_object(id=5), "spec": spec_text, "checks": [], "transitions": [], "segments": [],
        "next": None}
    with FakeDaemon(path, **{name: late for name in names}, show=whole) as daemon, contextlib.ExitStack() as stack:
        stack.callback(end.set)
        started = {words: stack.enter_context(subprocess.Popen([CTL, *words.split()], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, text=True, env=environment(path, **clocks.environment)))
            for words in [*CHANGE, *LOOK, *asked] if words not in ("show 5", "artifacts 5", "compare 5")}
        wait_for(lambda: sum(len(daemon.asked(name)) for name in names) == len(started), "what is asked")
        clocks.set(mono_s=1000)
        for words, process in started.items():
            said = process.communicate(timeout=PATIENCE_S)[1].split("\n")[:-1]
            said = [line for line in said if "still waiting: " not in line and "is being cancelled" not in line]
            assert process.returncode == 124 and " has not answered on " in said[0], (words, said)
            assert said[1].startswith("see gpt2d's log, and: ps ")
            if words in CHANGE:
                expected = ["gpt2d may still do it; check with: " + CHANGE[words]]
            elif words in ("rerun 5", f"submit {spec}"):
                expected = ["gpt2d may still do it; check with: gpt2ctl list"]
            else:
                expected = []
            assert said[2:] == expected, (words, said)


@contextlib.contextmanager
def cancelling(path):
    """A cancel that is answered when the event is set, of a daemon with a cancel_timeout of 600 s."""
    end = threading.Event()
    late = lambda params, connection: end.wait(PATIENCE_S) and {"id": 1, "state": "cancelled", "already": False}
    with FakeDaemon(path, cancel=late) as daemon:
        hello = daemon.hello
        daemon.methods["hello"] = lambda params, connection: {**hello(params, connection), "cancel_timeout_s": 600}
        with subprocess.Popen([CTL, "cancel", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=environment(daemon.path)) as process:
            yield process, end


def test_a_cancel_that_waits_for_a_step(path):
    """The message says what it waits for, and how long that may take."""
    with cancelling(path) as (process, end):
        line = process.stderr.readline()
        end.set()
        _, rest = process.communicate(timeout=PATIENCE_S)
    assert line == ("gpt2ctl: run 1 is being cancelled: it ends after the step in progress; after 600 s gpt2d kills its engines "
        "(cancel_timeout)\n")
    assert (process.returncode, rest) == (0, "")


def test_status_tells_that_a_run_is_being_ended(daemon):
    with daemon() as d, d.client() as c, d.client() as other:
        run = c.submit(spec_of("deaf-ms20", 100000))
        wait_for(lambda: other.call("status")["running"] and other.state(run) == "running", "the run")
        assert other.call("status")["running"]["stopping"] is None
        c.ask("cancel", id=run)
        wait_for(lambda: other.call("status")["running"]["stopping"], "the cancellation is known")
        assert other.call("status")["running"]["stopping"] == "cancelled: asked for"
        assert "the run ends after the step in progress: cancelled: asked for" in ctl(d, "status").stdout
        d.kill()
