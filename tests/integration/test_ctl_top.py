"""gpt2ctl top: printed once, as JSON, on a terminal, in tmux."""

import itertools
import json
import os
import re
import signal
import termios

import pytest

from client import CTL, ctl, environment
from fake_daemon import FakeDaemon, run_object
from helpers import wait_for
from terminal import Terminal

DEVICE = {"backend": "cpu", "name": "made-up device", "library": "none", "memory_total_bytes": 1, "memory_free_bytes": 1}
PROGRESS = {"segment": 1, "segments": 4, "block": 1, "arm": "a", "step": 50, "steps": 100, "loss": 2.5,
    "tokens_per_sec": 12345.0, "step_time_ns": 1000000, "eta_s": 62.0}
RUN = run_object(7, "demo", "running", segments=4)
LOOK = itertools.count(1)


def status(params, connection):
    """Rank 0 uses a processor and rank 1 half of one, if a look comes every second."""
    look = next(LOOK)
    return {"daemon": {"pid": 1, "uid": 0, "version": "0.1.0", "build": "fake", "state": "running", "uptime_s": 61.0,
            "cpu_s": 0.5, "rss_bytes": 9000000, "socket": "s", "state_dir": "d", "clients": 1},
        "host": {"processors": 8, "load_1m": 1.25, "memory_bytes": 2000000000, "memory_available_bytes": 1000000000,
            "memory_limit_bytes": 500000000},
        "store": None,
        "engine": {"state": "ready", "reason": None, "program": "p", "device": "cpu", "device_why": None, "threads": 1,
            "restarts": 0, "retry_in_s": None, "ranks": [
                {"rank": rank, "pid": 100 + rank, "state": "ready", "device": DEVICE, "cpu_s": look / (1 + rank),
                    "rss_bytes": 20000000} for rank in range(2)]},
        "running": {"run": RUN, "progress": PROGRESS}, "waiting": "run 7 is running", "queued": 1,
        "queue": [{"id": 8, "name": "behind", "uid": 0, "priority": 5, "position": 0, "waiting": "behind: run 7",
            "starts_in_s": 62.0}], "drained": None, "released": None,
        "counts": {"queued": 1, "running": 1}}


def follow(params, connection):
    def after():
        for step in range(1, 51):
            connection.notify("run.step", id=7, seq=step, at="2026-01-08T19:51:00.000Z",
                **{**PROGRESS, "step": step, "loss": 5.0 - step / 20})
    connection.after = after
    return {"run": RUN, "progress": PROGRESS, "seq": 50, "first": 1}


def fake(path):
    return FakeDaemon(path, status=status, follow=follow)


@pytest.fixture
def daemon(tmp_path):
    with fake(tmp_path / "s") as d:
        yield d


def top(d, *args, rows=24, columns=80, **more):
    return Terminal([str(CTL), "top", "-i", "0.1", *args], environment(d.path, **more), rows, columns)


def test_once_where_there_is_no_terminal(daemon):
    result = ctl("top", path=daemon.path, env={"LC_ALL": "C.UTF-8"})
    assert result.returncode == 0 and result.stderr == "" and "\033" not in result.stdout
    lines = result.stdout.splitlines()
    assert sum(line.startswith("gpt2d 0.1.0 running") for line in lines) == 1
    for expected in (r"host +8 processors, load 1\.25, 1\.00 GB of 2\.00 GB free, limit 500 MB", r"running 7 demo: running",
            r"segment 1/4 a", r"step 50/100  loss 2\.5000  12\.3 k tok/s  1m02s left", r"loss +█.*▁ 4\.9500 at step 1 to 2\.5000",
            r"0  ready  100  [█-▏]+ +\d+%  20\.0 MB  made-up device", r"queued  1: run 7 is running", r"8  behind  priority 5  in about 1m02s, run 7"):
        assert re.search(expected, result.stdout), f"{expected} is not in\n{result.stdout}"
    assert daemon.asked("follow") == [{"id": 7, "after": 0}]


GPU = {"memory_total_bytes": 80000000000, "memory_used_bytes": 20000000000, "utilization": 0.75, "temperature_c": 61.0,
    "power_w": 512.4, "other_processes": 0}


def on_gpus(params, connection):
    """Rank 0 has all figures and the GPU to itself; rank 1's driver reports less."""
    value = status(params, connection)
    value["engine"]["device"] = "cuda"
    first, second = value["engine"]["ranks"]
    first["gpu"] = GPU
    second["gpu"] = {**GPU, "utilization": None, "power_w": None, "other_processes": 2}
    return value


@pytest.mark.parametrize("verb", ["top", "status"])
def test_gpus(tmp_path, verb):
    """The load and memory of each rank, unknown figures as such, and other processes."""
    with FakeDaemon(tmp_path / "s", status=on_gpus, follow=follow) as d:
        text = ctl(verb, path=d.path, env={"LC_ALL": "C.UTF-8"}).stdout
        if verb == "top":
            first, second = (line.split() for line in text.splitlines() if re.match(r" +[01]  ready", line))
            assert first[:6] + first[8:10] == ["0", "ready", "100", "██████", "75%", "██", "61", "C"] and first[10:12] == ["512", "W"]
            assert "20.0" in first and "GB" in first
            assert second[3] == "-" and second[7:10] == ["61", "C", "-"]
            value = json.loads(ctl("top", "--json", "-n", 1, path=d.path).stdout)
            assert value["engine"]["ranks"][0]["gpu"] == GPU
        assert "rank 1: 2 other processes on its GPU disturb the measurement" in text
        assert "rank 0: " not in text


def late(params, connection):
    """Not all steps are reported: neither the segment's first ones nor those before the first update."""
    def after():
        for step in range(4, 46):
            connection.notify("run.step", id=7, seq=step, at="2026-01-08T19:51:00.000Z",
                **{**PROGRESS, "step": step, "loss": 5.0 - step / 20})
    connection.after = after
    return {"run": RUN, "progress": PROGRESS, "seq": 45, "first": 4}


@pytest.mark.parametrize("segment", [1, 2])
def test_losses_end_with_that_of_the_line_above(tmp_path, segment):
    """The first loss has its step; losses of another segment are not shown."""
    def at(params, connection):
        return {**status(params, connection), "running": {"run": RUN, "progress": {**PROGRESS, "segment": segment}}}
    with FakeDaemon(tmp_path / "s", status=at, follow=late) as d:
        text = ctl("top", path=d.path, env={"LC_ALL": "C"}).stdout
    assert "step 50/100  loss 2.5000" in text and f"segment {segment}/4 a" in text
    assert len(re.findall(r"(?m)^loss    #\S+ 4\.8000 at step 4 to 2\.5000$", text)) == (segment == 1), text
    assert segment == 1 or "\nloss" not in text


@pytest.mark.parametrize("name", ["dumb", ""])
def test_a_dumb_terminal_is_none(daemon, name):
    with top(daemon, TERM=name) as terminal:
        assert terminal.end() == 0
        assert terminal.seen.count("gpt2d 0.1.0") == 1 and "\033" not in terminal.seen


@pytest.mark.parametrize("words", [["top"], ["status"], ["show", 7]])
def test_no_bars_where_the_terminal_is_dumb(tmp_path, words):
    """Nor if its output goes elsewhere: the messages cannot show them."""
    def show(params, connection):
        return {"run": RUN, "spec": {}, "checks": [], "transitions": [], "segments": [], "progress": PROGRESS,
            "outlook": None, "next": None}
    with FakeDaemon(tmp_path / "s", status=status, follow=follow, show=show) as d:
        for locale in ("C", "C.UTF-8"):
            bars = ctl(*words, path=d.path, env={"LC_ALL": locale}).stdout
            none = ctl(*words, path=d.path, env={"LC_ALL": locale, "TERM": "dumb"}).stdout
            assert re.search("[\u2580-\u258f]|##", bars)
            assert not re.search("[\u2580-\u258f]|##|--", none) and "\n        12%  segment 1/4 a\n" in none
        if words == ["top"]:
            assert "loss    4.9500 at step 1 to 2.5000\n" in none and re.search(r"0  ready  100 +\d+%  20\.0 MB", none)


def test_json_lines(daemon):
    result = ctl("top", "--json", "-n", 3, "-i", 0.2, path=daemon.path)
    objects = [json.loads(line) for line in result.stdout.splitlines()]
    assert [value["kind"] for value in objects] == ["top"] * 3
    for value in objects:
        loads = [rank["cpu_load"] for rank in value["engine"]["ranks"]]
        assert loads[0] > 0 and abs(loads[0] - 2 * loads[1]) < 1e-6 * loads[0]
        assert value["daemon"]["cpu_load"] == 0
        assert value["queue"][0]["name"] == "behind" and value["running"]["run"]["id"] == 7
    assert len(objects[-1]["losses"]) == 50
    assert len(daemon.asked("follow")) == 1


def test_no_daemon(tmp_path):
    assert ctl("top", path=tmp_path / "none").returncode == 3


# ---- on a terminal ----

def test_drawn_until_q(daemon):
    with top(daemon) as terminal:
        terminal.wait("q: quit")  # the first look is there to its end, and a second
        terminal.wait(r"\d%  20\.0 MB  made-up device")
        assert "\033[?1049h" in terminal.seen and "\033[36m" in terminal.seen
        assert not termios.tcgetattr(terminal.fd)[3] & termios.ICANON
        looks = len(daemon.asked("status"))
        wait_for(lambda: len(daemon.asked("status")) > looks + 5, "more looks")
        terminal.type("q")
        assert terminal.end() == 0
        # only what changed: the load of the ranks
        assert "\033[2J" not in terminal.seen and "gpt2d 0.1.0" not in terminal.seen and "q: quit" not in terminal.seen
        assert terminal.seen.endswith("\033[?25h\033[?1049l")


def test_the_terminal_is_left_as_it_was(daemon):
    """A shell's terminal after q, and after Ctrl-C."""
    for key in ("q", "\x03"):
        script = f"trap : INT; stty -g; {CTL} top -i 0.1; echo status $?; stty -g"
        with Terminal(["sh", "-c", script], environment(daemon.path)) as terminal:
            terminal.wait("q: quit")
            modes = r"[0-9a-f]+(?::[0-9a-f]+){10,}"
            before = re.search(modes, terminal.seen)[0]
            terminal.type(key)
            assert terminal.end() == 0
            assert "status 0" in terminal.seen
            assert re.search(modes, terminal.seen)[0] == before


def test_no_color(daemon):
    with top(daemon, NO_COLOR="1") as terminal:
        terminal.wait("q: quit")
        terminal.type("q")
        assert terminal.end() == 0
        assert not re.search(r"\033\[[1-9]\d*m", terminal.seen)


@pytest.mark.parametrize("rows, columns", [(8, 20), (5, 20), (2, 10), (1, 1), (60, 200)])
def test_any_size(daemon, rows, columns):
    with top(daemon, rows=rows, columns=columns) as terminal:
        looks = len(daemon.asked("status"))
        wait_for(lambda: len(daemon.asked("status")) > looks + 3, "looks")
        terminal.type("q")
        assert terminal.end() == 0
        for row, line in re.findall(r"\033\[(\d+);1H(.*?)\033\[K", terminal.seen):
            assert int(row) <= rows
            assert len(re.sub(r"\033\[\d*m", "", line)) <= columns, line


def test_a_daemon_that_comes_back(tmp_path):
    path = tmp_path / "s"
    with fake(path) as first, top(first) as terminal:
        terminal.wait("made-up device")
        first.stop()
        terminal.wait("gpt2d closed the connection|gpt2d is not running")
        terminal.wait("gpt2d is not running")
        terminal.seen = ""
        with fake(path) as second:
            wait_for(lambda: len(second.asked("status")) > 2, "looks at the new daemon")
            assert second.asked("follow") == [{"id": 7, "after": 0}]
            terminal.type("q")
            assert terminal.end() == 0


def test_a_hangup_ends_it(daemon):
    with top(daemon) as terminal:
        terminal.wait("q: quit")
        os.kill(terminal.pid, signal.SIGHUP)
        assert terminal.end() in (0, -signal.SIGHUP)
