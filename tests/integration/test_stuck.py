"""A disk that neither answers nor fails, and a log that nobody reads: gpt2d continues, and reports it."""

import contextlib
import os
import re
import select
import subprocess

import pytest

from faults import STALL, Faults
from helpers import BUILD, PATIENCE_S, Daemon, figure, refusal, spec, wait_for
from test_ctl_daemon import ctl
from test_metrics import figures
from test_service import Systemd


BUSY, FREE = "gpt2d_store_busy_seconds", "gpt2d_state_dir_free_bytes"
STUCK_S = 7  # gpt2d(8)


@pytest.fixture
def systemd(tmp_path):
    s = Systemd(tmp_path)
    yield s
    s.close()


@pytest.fixture
def on_stuck_disk(tmp_path, systemd):
    """gpt2d, and a way to block the disk of its state directory."""
    faults = Faults(tmp_path)
    daemon = Daemon(home=tmp_path, options=("--metrics-file", tmp_path / "figures", "--metrics-period", "1s"),
        environment={**faults.environment, "NOTIFY_SOCKET": str(systemd.path), "WATCHDOG_USEC": "400000"})
    with daemon:
        try:
            daemon.engines()
            yield daemon, faults.daemon
        finally:
            faults.daemon.disarm()


def write_is_under_way(d):
    with d.client() as c:
        wait_for(lambda: figures(c.call("metrics")["text"], d.socket).get((BUSY, ()), 0) > 1, "the write")


def test_it_is_reported(on_stuck_disk, systemd):
    d, fault = on_stuck_disk
    with d.client() as c, d.client() as other:
        assert other.wait(other.submit(spec("first")))["state"] == "done"
        assert c.call("status")["store"] is None
        assert 0 <= figures(c.call("metrics")["text"], d.socket)[BUSY, ()] < STUCK_S
        other.submit(spec("long-ms20", 100000))
        waits = other.submit(spec("second"))
        wait_for(lambda: c.call("status")["running"], "the first of them")
        fault.arm(STALL)
        asked = other.ask("submit", spec=spec("third"))
        store = wait_for(lambda: c.call("status")["store"], "that the disk does not answer")
        assert (store["path"], store["errno"]) == (str(d.state / "gpt2d.db"), "ETIMEDOUT")
        assert store["error"] == "the disk does not answer" and "kernel's log" in store["advice"]
        said = " error " + store["path"] + ": cannot be written: the disk does not answer: "
        wait_for(lambda: said in d.said(), "the log")
        systemd.until("STATUS", lambda status: "the disk does not answer since " in status)
        for verb in (("status",), ("top", "-n", "1")):
            assert store["advice"] in ctl(d, *verb).stdout
        assert c.call("status")["waiting"].startswith(f"store: {store['path']} ")
        fault.disarm()
        assert other.reply(asked)["id"] == waits + 1
        wait_for(lambda: c.call("status")["store"] is None, "that it answers again")
        wait_for(lambda: "gpt2d.db: can be written again" in d.said(), "the log")
        assert d.said().count(said) == 1
        other.call("cancel", id=waits - 1)
        assert other.wait(waits + 1)["state"] == "done"


def test_the_watchdog_gets_no_heartbeat(on_stuck_disk, systemd):
    """While the store's thread is blocked the loop answers, and systemd may restart gpt2d."""
    d, fault = on_stuck_disk
    with d.client() as c, d.client() as other:
        systemd.until("WATCHDOG")
        fault.arm(STALL)
        other.ask("submit", spec=spec("waits"))
        write_is_under_way(d)
        systemd.drain()
        now_s = c.call("status")["daemon"]["uptime_s"]
        wait_for(lambda: c.call("status")["daemon"]["uptime_s"] > now_s + 2, "ten periods of the watchdog")
        seen = []
        with contextlib.suppress(BlockingIOError):
            while True:
                seen.append(systemd.socket.recv(4096))
        assert b"WATCHDOG=1" not in seen
        systemd.socket.settimeout(PATIENCE_S)
        fault.disarm()
        systemd.until("WATCHDOG")


def test_it_ends_when_the_disk_answers(on_stuck_disk):
    d, fault = on_stuck_disk
    with d.client() as c:
        fault.arm(STALL)
        c.ask("submit", spec=spec("waits"))
        write_is_under_way(d)
        d.process.terminate()
        wait_for(lambda: "stopping" in d.said(), "the signal")
        assert d.process.poll() is None
        fault.disarm()
        assert d.process.wait(PATIENCE_S) == 0


TO_STDERR = ("--log-file", "stderr")
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (debug|info|warning|error) \S.*")


def lost(c):
    return figure(c, "gpt2d_log_lines_lost_total")


def talk(c, ids):
    """Each is a line of the log, which names the id."""
    for number in ids:
        refusal(c.call, "cancel", id=number)


def reported(text):
    """The IDs in the log, in its order."""
    return [int(number) for number in re.findall(r"refused: run (\d+): no such run", text)]


def fill(c):
    """Until lines are lost; how many ids were said. Most lines are longer ones."""
    n, full = 0, False
    while not full:
        assert n < 100000, "nothing is lost"
        full = lost(c) > 0
        talk(c, range(1000 + n, 1100 + n))
        n += 100
        for asked in [c.ask("submit", spec={"k" * 250: 1}) for _ in range(0 if full else 1000)]:
            refusal(c.reply, asked)
    return n


class Reader:
    """Reads lines from a descriptor until something is seen."""

    def __init__(self, fd):
        self.fd, self.text = fd, ""

    def until(self, pattern):
        while not re.search(pattern, self.text):
            assert select.select([self.fd], [], [], PATIENCE_S)[0], f"{pattern}: nothing more after {self.text[-2000:]!r}"
            data = os.read(self.fd, 65536)
            assert data, f"{pattern}: not in {self.text[-2000:]!r}"
            self.text += data.decode()
        return self.text


def test_a_pipe_that_nobody_reads(daemon):
    with daemon(options=TO_STDERR) as d, d.client() as c:
        n = fill(c)
        assert c.call("status")["engine"]["state"] == "ready"
        assert c.wait(c.submit(spec("a")))["state"] == "done"
        reader = Reader(d.process.stderr.fileno())
        reader.until(r"warning log: \d+ lines lost\n")
        c.submit(spec("named-afterwards"))
        text = reader.until("named-afterwards.*\n")
        lines = text[:text.rindex("\n")].split("\n")
        assert [line for line in lines if not LINE.fullmatch(line)] == []
        ids = reported(text)
        assert ids == list(range(1000, 1000 + len(ids))) and len(ids) < n
        assert lost(c) == sum(int(n) for n in re.findall(r"warning log: (\d+) lines lost\n", text))


def test_it_ends_while_nobody_reads(daemon):
    with daemon(options=TO_STDERR) as d:
        with d.client() as c:
            fill(c)
        d.process.terminate()
        assert d.process.wait(PATIENCE_S) == 0


def test_all_is_written_before_the_end(daemon):
    with daemon(options=TO_STDERR) as d:
        with d.client() as c:
            talk(c, range(101, 201))
        d.process.terminate()
        text = Reader(d.process.stderr.fileno()).until("info stopped\n")
        assert d.process.wait(PATIENCE_S) == 0
        assert reported(text) == list(range(101, 201))


@pytest.fixture
def on_stuck_log_disk(tmp_path):
    """gpt2d, and a way to block the disk of its log."""
    (tmp_path / "disk").mkdir()
    faults = Faults(tmp_path, under=tmp_path / "disk")
    log = tmp_path / "disk" / "log"
    daemon = Daemon(home=tmp_path, options=("--log-file", log), environment=faults.environment)
    daemon.log = log
    with daemon:
        try:
            yield daemon, faults.daemon
        finally:
            faults.daemon.disarm()


def test_a_disk_that_stands_still(on_stuck_log_disk):
    d, fault = on_stuck_log_disk
    with d.client() as c:
        talk(c, range(101, 201))
        assert reported(d.said()) == list(range(101, 201)), "a line is there before the answer"
        fault.arm(STALL)
        n = fill(c)
        assert c.wait(c.submit(spec("a")))["state"] == "done"
        assert reported(d.said()) == list(range(101, 201))
        fault.disarm()
        wait_for(lambda: re.search(r"warning log: \d+ lines lost\n", d.said()), "what was lost")
        talk(c, range(201, 301))
        text = d.said()
        ids = reported(text)
        held = len(ids) - 200
        assert 0 < held < n and ids == [*range(101, 201), *range(1000, 1000 + held), *range(201, 301)]
        assert [line for line in text.splitlines() if not LINE.fullmatch(line)] == []
        assert lost(c) == sum(int(n) for n in re.findall(r"warning log: (\d+) lines lost\n", text))


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def gpt2d(*options):
    return subprocess.run([BUILD / "daemon" / "gpt2d", "-c", "/dev/null", *map(str, options)], capture_output=True,
        text=True, timeout=PATIENCE_S)


def test_a_fifo_is_refused(tmp_path, fifo):
    places = ("--state-dir", tmp_path / "state", "--socket", tmp_path / "s", "--log-file", fifo)
    refused = f'log_file: {fifo}: a FIFO or a socket (expected a file, stderr or journal)'
    for how in (), ("-n",):
        result = gpt2d(*how, *places, "--engine", "/bin/true", "--ranks", "1")
        assert (result.returncode, result.stderr) == (2, f"gpt2d: {refused}\n"), how
    result = gpt2d("--check", *places)
    assert result.returncode == 1 and "fail  log" in result.stdout and refused in result.stdout, result.stdout
