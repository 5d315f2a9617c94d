"""Output of engines: in gpt2d's log, line by line, limited, complete at their end; and no engine waits for it."""

import re
import signal
import time

import pytest

from helpers import FAKE_ENGINE, PATIENCE_S, figure, spec, wait_for

BURST, PER_S = 256 * 1024, 16 * 1024  # bytes, as gpt2d(8) has them
LEFT_OUT = re.compile(r"^\S+ warning rank 0 \(pid \d+\): (\d+) lines \(([\d.]+ \w+)\) of what it prints left out$", re.M)
PRINTED = re.compile(r"^\S+ warning rank 0 printed: (.*)$", re.M)

# What an engine's words may be: whole, however slowly they are taken.
WHOLE = """
import os, select, sys, time
def out(data):
    while data:
        try:
            data = data[os.write(2, data):]
        except BlockingIOError:
            select.select([], [2], [])
"""


@pytest.fixture
def engine(tmp_path):
    """Makes an engine that does beforehand, or (beside) meanwhile, what some Python says: role rank only."""
    def make(code, beside=False, then=f'exec {FAKE_ENGINE} "$@"', role="rank"):
        does, path = tmp_path / "does.py", tmp_path / "engine"
        does.write_text(WHOLE + code)
        path.write_text(f'#!/bin/sh\n[ "$2" = {role} ] || exec {FAKE_ENGINE} "$@"\n'
            f'/usr/bin/python3 {does} {"&" if beside else ""}\n{then}\n')
        path.chmod(0o755)
        return path
    return make


def accounted(d):
    """Lines that are in the log, or counted as lost."""
    said = d.said()
    return len(PRINTED.findall(said)) + sum(int(n) for n, _ in LEFT_OUT.findall(said))


def test_a_flood(daemon, engine):
    lines, began = 3000000, time.monotonic()
    path = engine(f"""
for i in range({lines} // 10000):
    out(b"%07d of a flood\\n" % i * 10000)
time.sleep(3600)
""", beside=True)
    with daemon(engine=path) as d, d.client() as c:
        assert c.wait(c.submit(spec("a")))["state"] == "done"
        wait_for(lambda: accounted(d) == lines, "all lines, or their number", patience=5 * PATIENCE_S)
        assert c.wait(c.submit(spec("b")))["state"] == "done"
        size = d.log.stat().st_size
        assert BURST // 4 < size < 2 * BURST + 2 * PER_S * (time.monotonic() - began)
        assert {size.split()[1] for _, size in LEFT_OUT.findall(d.said())} & {"kB", "MB"}


def test_many_at_once(daemon, engine):
    """Each process prints nearly as much as it may at once: gpt2d logs every line."""
    ranks, lines = 8, 1500
    path = engine(f"""
for i in range({lines}):
    out(b"%04d" % i + b"x" * 80 + b"\\n")
""")
    with daemon(ranks=ranks, engine=path) as d, d.client() as c:
        wait_for(lambda: c.call("status")["engine"]["state"] == "ready", "the engines")
        wait_for(lambda: len(re.findall(r"warning rank \d printed: \d{4}x{80}$", d.said(), re.M)) == ranks * lines, "all lines")
        assert figure(c, "gpt2d_log_lines_lost_total") == 0


def test_it_follows_the_log(daemon, engine, tmp_path):
    path = engine(f"""
out(b"before\\n")
while not os.path.exists("{tmp_path}/go"):
    time.sleep(0.01)
out(b"after\\n")
time.sleep(3600)
""", beside=True)
    with daemon(engine=path) as d:
        wait_for(lambda: "printed: before" in d.said(), "the first line")
        moved = d.home / "moved"
        d.log.rename(moved)
        d.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "SIGHUP: the log is open" in d.said(), "the reopened log")
        (tmp_path / "go").touch()
        wait_for(lambda: "printed: after" in d.said(), "the second line")
        assert PRINTED.findall(moved.read_text()) == ["before"] and PRINTED.findall(d.said()) == ["after"]


def test_no_engine_waits_for_gpt2d(daemon, engine, tmp_path):
    path = engine(f"""
while not os.path.exists("{tmp_path}/go"):
    time.sleep(0.01)
for i in range(10000):
    try:
        os.write(2, b"z" * 200 + b"\\n")
    except BlockingIOError:
        open("{tmp_path}/full", "w").close()
open("{tmp_path}/done", "w").close()
time.sleep(3600)
""", beside=True)
    with daemon(engine=path) as d, d.client() as c:
        d.process.send_signal(signal.SIGSTOP)
        try:
            (tmp_path / "go").touch()
            wait_for((tmp_path / "done").exists, "the engine, which has printed all")
        finally:
            d.process.send_signal(signal.SIGCONT)
        assert (tmp_path / "full").exists()
        assert c.wait(c.submit(spec("a")))["state"] == "done"
        wait_for(lambda: accounted(d) > 200, "what waited for gpt2d")


def test_on_standard_error(daemon, engine):
    path = engine('out(b"here\\n")')
    with daemon(engine=path, options=("--log-file", "stderr")) as d:
        while "rank 0 printed: here\n" not in (line := d.process.stderr.readline()):
            assert line, "gpt2d has ended"
