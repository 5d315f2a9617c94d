"""gpt2ctl follow and wait against a scripted daemon: lines, terminals, exit codes, a daemon that goes and comes back."""

import itertools
import json
import queue
import select
import signal
import subprocess

import pytest

from client import CTL, ctl, done, environment, one_object, step
from fake_daemon import FakeDaemon, Refused, follow_script, run_object
from helpers import PATIENCE_S, wait_for
from terminal import Terminal


def test_follow_plain_lines(path):
    events = [("run.state", {"seq": 1, "state": "running", "reason": None})]
    events += [step(n, n + 1) for n in range(1, 21)] + [done(22)]
    with FakeDaemon(path, follow=follow_script(run_object(), events)):
        result = ctl("follow", 1, path=path)
    assert result.returncode == 0
    assert "\x1b" not in result.stdout and "\r" not in result.stdout
    lines = result.stdout.splitlines()
    assert lines[0] == "run 1 demo: running"
    assert 10 <= sum("tok/s" in line for line in lines) <= 12
    assert "step 20/20  loss 3.5000  12.3 k tok/s" in lines[-3]
    assert lines[-2:] == ["run 1 demo: done", "artifacts: /state/runs/1-demo"]


def test_follow_says_what_is_left_as_gpt2d_does(path):
    """The time since the first step that was seen may have had a pause in it, or another attempt."""
    events = [step(8, 1, eta_s=None), step(2, 2, eta_s=62.0), step(20, 3, eta_s=0.0), done(4)]
    with FakeDaemon(path, follow=follow_script(run_object(state="running"), events)):
        lines = [line for line in ctl("follow", 1, path=path).stdout.splitlines() if "tok/s" in line]
    assert [line.partition("tok/s")[2] for line in lines] == ["", "  1m02s left", ""], lines


def test_follow_json_lines(path):
    with FakeDaemon(path, follow=follow_script(run_object(), [step(1, 1), done(2, dropped=3)])):
        result = ctl("follow", 1, "--json", path=path)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["run.step", "run.done"]
    assert all(line["schema"] == 1 and line["id"] == 1 for line in lines)


def followed(path, columns=100, **env):
    """The whole output of follow on a terminal on which it has shown steps 2, 10 and 20, and its exit code."""
    connections, seq = queue.Queue(), itertools.count(1)
    with FakeDaemon(path, follow=follow_script(run_object(), [], connections.put)), \
            Terminal([str(CTL), "follow", "1"], environment(path, LC_ALL="C.UTF-8", **env), columns=columns) as terminal:
        connection = connections.get(timeout=PATIENCE_S)

        def shown(n):
            # a step that comes too soon after the one before is not drawn
            connection.notify("run.step", id=1, **step(n, next(seq))[1])
            if select.select([terminal.fd], [], [], 0.05)[0]:
                terminal.read()
            return f" {5 * n}%" in terminal.seen or f"step {n}/20" in terminal.seen
        for n in (2, 10, 20):
            wait_for(lambda: shown(n), f"step {n} of {terminal.seen!r}")
        connection.notify("run.done", id=1, **done(next(seq))[1])
        code = terminal.end()
        return terminal.seen, code


def test_follow_on_a_terminal(path):
    text, code = followed(path)
    assert code == 0
    assert "\r\x1b[K" in text and "\u2588" in text and "\x1b[36m" in text and "100%" in text
    assert " left" in text
    assert "\r\x1b[Krun 1 demo  [" in text
    assert text.replace("\r\n", "\n").endswith("done\x1b[0m\nartifacts: /state/runs/1-demo\n")


@pytest.mark.parametrize("state", ["running", "queued"])
@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("verb", ["follow", "wait"])
def test_an_interrupted_wait_prints_the_state(path, verb, later, state):
    """The state when gpt2ctl asked, or of an event since."""
    run = run_object(state="starting" if later else state)
    events = [("run.state", {"seq": 1, "state": state, "reason": None})] if later else []
    events += [("run.store", {"seq": 2, "store": {"path": "/x", "error": "full", "advice": "make room"}})]
    with FakeDaemon(path, follow=follow_script(run, events)):
        process = subprocess.Popen([CTL, verb, "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(path))
        stream = process.stdout if verb == "follow" else process.stderr
        for line in stream:
            if "once it can write again" in line:
                break
        process.send_signal(signal.SIGTERM)
        err = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 6
    assert err == (f"gpt2ctl: interrupted; run 1 continues (state: {state})\n"
        "follow the run with: gpt2ctl follow 1; end it with: gpt2ctl cancel 1\n")


def test_follow_says_that_a_step_takes_long(path):
    """The first step of a large model on CPU ranks takes minutes."""
    with FakeDaemon(path, follow=follow_script(run_object(state="running"), [])), \
            Terminal([str(CTL), "follow", "1"], environment(path)) as terminal:
        terminal.wait(r"run 1 demo: running\r\nrun 1 demo: running, nothing new for 5\.00 s \(progress comes with each step\)")


def test_follow_says_what_a_queued_run_waits_for(path):
    """At once, but not for a wait of a moment."""
    outlook = {"position": 2, "waiting": "drained: since 2026-01-08 by ann: maint", "starts_in_s": None}
    script = follow_script(run_object(), [("run.state", {"seq": 1, "state": "running", "reason": None}), done(2)])
    with FakeDaemon(path, follow=lambda *args: {**script(*args), "outlook": outlook}):
        lines = ctl("follow", 1, path=path).stdout.splitlines()
        as_json = ctl("follow", 1, "--json", path=path).stdout
    assert lines[:3] == ["run 1 demo: queued", f"waits     2 ahead; {outlook['waiting']}", "run 1 demo: running"]
    assert [json.loads(line)["kind"] for line in as_json.splitlines()] == ["run.state", "run.done"]
    outlook["waiting"] = "preparing: it is being prepared"
    with FakeDaemon(path, follow=lambda *args: {**script(*args), "outlook": outlook}):
        assert ctl("follow", 1, path=path).stdout.splitlines()[0] == "run 1 demo: running"


def queued(reasons, events=()):
    """The methods for a run that is queued, for one reason after the other; the last one stays."""
    reasons = itertools.chain(reasons, itertools.repeat(reasons[-1]))

    def outlook():
        return {"position": 2, "waiting": next(reasons), "starts_in_s": None}
    follow = follow_script(run_object(), list(events))
    return {"follow": lambda params, connection: {**follow(params, connection), "outlook": outlook()},
        "show": lambda params, connection: {"run": run_object(), "outlook": outlook()}}


def test_wait_of_several(path):
    states = {1: "done", 2: "failed", 3: "cancelled", 4: "done"}

    def follow(params, connection):
        state = states.get(params["id"])
        if not state:
            raise Refused(-32003, "no such run")
        return follow_script(run_object(params["id"]), [done(1, state)])(params, connection)
    with FakeDaemon(path, follow=follow):
        assert ctl("wait", 1, 4, path=path).returncode == 0
        assert ctl("wait", 1, 3, 4, path=path).returncode == 6
        assert ctl("wait", 3, 2, 1, path=path).returncode == 4
        result = ctl("wait", 9, 2, 1, path=path)
        value = one_object(ctl("wait", 1, 2, 3, "--json", path=path).stdout)
    assert result.returncode == 7
    assert "run 2 demo: failed" in result.stdout and "run 1 demo: done" in result.stdout
    assert [run["exit"] for run in value["runs"]] == [0, 4, 6] and value["exit"] == 4


def test_daemon_comes_back(path):
    """Killed in mid-run: the follower reconnects and continues after the last event it saw."""
    scripts = iter([follow_script(run_object(state="running"), [step(5, 4)], lambda connection: connection.close()),
        follow_script(run_object(state="running"), [step(5, 4), step(20, 5), done(6)])])
    with FakeDaemon(path, follow=lambda params, connection: next(scripts)(params, connection)) as first:
        process = subprocess.Popen([CTL, "follow", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(path))
        assert process.stdout.readline() == "run 1 demo: running\n"
        assert "step 5/20" in process.stdout.readline()
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "connection to gpt2d lost, reconnecting" in err
    assert out.count("step 5/20") == 0 and out.count("step 20/20") == 1
    assert first.asked("follow") == [{"id": 1}, {"id": 1, "after": 4}]


def test_daemon_does_not_come_back(path):
    daemon = FakeDaemon(path, follow=follow_script(run_object(state="running"), [step(5, 1)])).start()
    process = subprocess.Popen([CTL, "follow", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(path))
    assert process.stdout.readline() == "run 1 demo: running\n"
    assert "step 5/20" in process.stdout.readline()
    daemon.stop()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the result of run 1 is unknown" in err and "gpt2ctl show 1" in err


def test_closed_pipe(path):
    """A reader that closes the pipe ends follow; the run continues."""
    events = [step(n % 20 + 1, n + 1) for n in range(2000)]
    with FakeDaemon(path, follow=follow_script(run_object(state="running"), events)) as daemon:
        process = subprocess.Popen([CTL, "follow", "1", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment(path))
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 141
        assert process.stderr.read() == b""
        process.stderr.close()
    assert daemon.asked("cancel") == []


def test_blocks_of_an_experiment(path):
    """A line for each block, with the estimates so far; no line is longer than 80 columns."""
    def row(arm, **more):
        return {"arm": arm, "throughput_percent": 4.5, "low": None, "high": None, "half_width": None, **more}
    def block(n, comparisons, **more):
        return ("run.block", {"seq": n, "block": n, "blocks": 12, "kept": n, "void": None, "comparisons": comparisons, "eta_s": 61.0, **more})
    events = [block(1, [row("b")]), block(2, [], void="thermal_slowdown", eta_s=None),
        block(3, [row("b", low=4.3, high=4.7, verdict="FASTER"), row("arm-with-a-long-name-of-some-kind", low=-1.0, high=-0.5)]),
        step(3, 4, segments=72, arm="x" * 60), done(5)]
    with FakeDaemon(path, follow=follow_script(run_object(1, state="running", segments=72), events)):
        result = ctl("follow", 1, path=path)
    assert result.returncode == 0
    assert "\nblock 1/12   b +4.50%   1m01s left\nblock 2/12   void: thermal_slowdown\nblock 3/12   b +4.50% [+4.30, +4.70] FASTER\n" in result.stdout
    assert "\n  arm-with-a-long-name-of-some-kind +4.50% [-1.00, -0.50]   1m01s left\n" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_who_warns(path):
    """gpt2d itself is not a rank."""
    events = [("run.log", {"seq": n, "rank": rank, "level": "warning", "message": "slow"}) for n, rank in ((1, None), (2, 3))]
    with FakeDaemon(path, follow=follow_script(run_object(1, state="running"), [*events, done(3)])):
        result = ctl("follow", 1, path=path)
    assert result.returncode == 0 and "\nwarning: gpt2d: slow\nwarning: rank 3: slow\n" in result.stdout
