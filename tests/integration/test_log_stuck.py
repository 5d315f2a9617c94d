"""Where gpt2d's log goes, nobody reads, or the disk does not answer: gpt2d goes on, and says what was lost."""

import os
import pty
import re
import select
import signal
import subprocess
import termios

import pytest

from faults import STALL, Faults
from helpers import BUILD, PATIENCE_S, Daemon, RpcError, figure, spec, wait_for

TO_STDERR = ("--log-file", "stderr")
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (debug|info|warning|error) \S.*")


def lost(c):
    return figure(c, "gpt2d_log_lines_lost_total")


def talk(c, ids):
    """Each is a line of the log, which names the id."""
    for number in ids:
        with pytest.raises(RpcError):
            c.call("cancel", id=number)


def told(text):
    """The ids that the log names, in its order."""
    return [int(number) for number in re.findall(r"refused: run (\d+): no such run", text)]


def fill(c):
    """Until lines are lost; how many were said."""
    n = 0
    while not lost(c):
        assert n < 100000, "nothing is lost"
        talk(c, range(1000 + n, 1100 + n))
        n += 100
    return n


class Reader:
    """Takes what comes by a descriptor, line by line, until something is seen."""

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
        ids = told(text)
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
        assert told(text) == list(range(101, 201))


class OnTerminal(Daemon):
    """Its standard output and error are a terminal that has been stopped, as with Ctrl-S."""

    def start(self, ready=True):
        self.master, self.slave = pty.openpty()
        termios.tcflow(self.slave, termios.TCOOFF)
        self.process = subprocess.Popen(self.command, stdout=self.slave, stderr=self.slave, env=self.environment)
        wait_for(lambda: self.process.poll() is not None or self.accepts(), "gpt2d's socket")

    def __exit__(self, *error):
        try:
            if self.process.poll() is None:
                self.process.terminate()
                assert self.process.wait(PATIENCE_S) == 0
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self.master)
            os.close(self.slave)


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_terminal_that_is_stopped(tmp_path, goes_on):
    with OnTerminal(home=tmp_path, options=TO_STDERR) as d, d.client() as c:
        assert c.wait(c.submit(spec("a")))["state"] == "done"
        talk(c, range(1001, 2001))
        assert c.call("status")["engine"]["state"] == "ready"
        if goes_on:
            termios.tcflow(d.slave, termios.TCOON)
            text = Reader(d.master).until("run 2000: no such run")
            assert "gpt2d: ready, socket " in text and told(text) == list(range(1001, 2001))


def test_a_file_waits_for_no_terminal(tmp_path):
    """That gpt2d is ready cannot be printed: what it says is in its file at once all the same."""
    with OnTerminal(home=tmp_path) as d, d.client() as c:
        d.engines()
        talk(c, range(1001, 1011))
        assert told(d.said()) == list(range(1001, 1011))


@pytest.fixture
def on_stuck_disk(tmp_path):
    """gpt2d, and what makes the disk of its log stand still."""
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


def test_a_disk_that_stands_still(on_stuck_disk):
    d, fault = on_stuck_disk
    with d.client() as c:
        talk(c, range(101, 201))
        assert told(d.said()) == list(range(101, 201)), "a line is there before the answer"
        fault.arm(STALL)
        n = fill(c)
        assert c.wait(c.submit(spec("a")))["state"] == "done"
        assert told(d.said()) == list(range(101, 201))
        fault.disarm()
        wait_for(lambda: re.search(r"warning log: \d+ lines lost\n", d.said()), "what was lost")
        talk(c, range(201, 301))
        text = d.said()
        ids = told(text)
        held = len(ids) - 200
        assert 0 < held < n and ids == [*range(101, 201), *range(1000, 1000 + held), *range(201, 301)]
        assert [line for line in text.splitlines() if not LINE.fullmatch(line)] == []
        assert lost(c) == sum(int(n) for n in re.findall(r"warning log: (\d+) lines lost\n", text))


def test_a_log_is_moved_while_its_disk_stands_still(on_stuck_disk):
    d, fault = on_stuck_disk
    moved = d.log.with_name("moved")
    with d.client() as c:
        fault.arm(STALL)
        d.log.rename(moved)
        talk(c, [1])
        d.process.send_signal(signal.SIGHUP)
        talk(c, [2])
        fault.disarm()
        wait_for(lambda: d.log.exists() and "SIGHUP: the log is open" in d.said(), "the log, opened again")
        assert 1 in told(moved.read_text()), "what was held before"
        talk(c, [3])
        assert 3 in told(d.said()) and told(moved.read_text()) + told(d.said()) == [1, 2, 3]


def test_it_ends_while_the_disk_of_its_log_stands_still(on_stuck_disk):
    d, fault = on_stuck_disk
    fault.arm(STALL)
    d.process.terminate()
    assert d.process.wait(PATIENCE_S) == 0


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
    refused = f'log_file: {fifo}: a FIFO or a socket, a file or "stderr" is expected'
    for how in (), ("-n",):
        result = gpt2d(*how, *places, "--engine", "/bin/true", "--ranks", "1")
        assert (result.returncode, result.stderr) == (2, f"gpt2d: {refused}\n"), how
    result = gpt2d("--check", *places)
    assert result.returncode == 1 and f"fail  log" in result.stdout and refused in result.stdout, result.stdout


def test_a_fifo_instead_of_the_log(daemon):
    with daemon() as d, d.client() as c:
        moved = d.home / "moved"
        d.log.rename(moved)
        os.mkfifo(d.log)
        d.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "a FIFO or a socket, a file or \"stderr\" is expected: the log stays in the file that is open" in moved.read_text(),
            "what is wrong with it")
        assert c.wait(c.submit(spec("a")))["state"] == "done"
        d.log.unlink()
        d.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "SIGHUP: the log is open" in d.said(), "the log anew")


def test_a_pipe_as_a_file(daemon):
    """Its own standard error by its name is no FIFO of somebody else's."""
    with daemon(options=("--log-file", "/dev/stderr")) as d, d.client() as c:
        c.submit(spec("named"))
        Reader(d.process.stderr.fileno()).until("named")
