"""gpt2d as a service: messages to systemd, SIGHUP, the log."""

import os
import signal
import socket
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from helpers import PATIENCE_S, Daemon, spec, wait_for


class Systemd:
    """NOTIFY_SOCKET and its messages: pairs of name and value."""

    def __init__(self, home):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(PATIENCE_S)
        self.path = home / "notify"
        self.socket.bind(str(self.path))
        self.seen = []

    def until(self, name, accept=lambda value: True):
        """The value of the next message of that name that is accepted."""
        while True:
            for line in self.socket.recv(4096).decode().split("\n"):
                key, value = line.split("=", 1)
                self.seen.append((key, value))
                if key == name and accept(value):
                    return value

    def drain(self):
        """Reads the received messages; from then on nobody waits for one."""
        self.socket.setblocking(False)
        try:
            while True:
                self.socket.recv(4096)
        except BlockingIOError:
            pass

    def close(self):
        self.socket.close()


@pytest.fixture
def systemd(home):
    s = Systemd(home)
    yield s
    s.close()


def test_ready_status_stopping(home, systemd):
    with Daemon(home=home, environment={"NOTIFY_SOCKET": str(systemd.path)}) as d:
        systemd.until("READY")
        assert systemd.seen == [("READY", "1")]
        systemd.until("STATUS", lambda status: status == "engines ready, no run running, 0 queued")
        assert "engines down" not in str(systemd.seen)
        with d.client() as c:
            c.call("drain")
            systemd.until("STATUS", lambda status: status == "engines ready, no run running, 0 queued, drained")
            c.call("resume")
        with d.client() as c:
            run = c.submit(spec("long-ms20", 100000))
            c.submit(spec("next"))
            systemd.until("STATUS", lambda status: status == f"engines ready, run {run} running, 1 queued")
        d.stop()
        systemd.until("STOPPING")
        assert "WATCHDOG" not in dict(systemd.seen)
        d.start()


def test_ready_before_the_engines(home, systemd):
    """gpt2d answers clients although its engines do not start, and reports that."""
    environment = {"NOTIFY_SOCKET": str(systemd.path)}
    with Daemon(home=home, engine="/bin/false", ready=False, environment=environment) as d:
        systemd.until("READY")
        with d.client() as c:
            wait_for(lambda: "exited with status 1" in (c.call("status")["engine"]["reason"] or ""), "the reason")


def test_watchdog(home, systemd):
    environment = {"NOTIFY_SOCKET": str(systemd.path), "WATCHDOG_USEC": "600000"}
    with Daemon(home=home, environment=environment) as d:
        for _ in range(5):
            systemd.until("WATCHDOG")
        os.kill(d.process.pid, signal.SIGSTOP)
        wait_for(lambda: Path(f"/proc/{d.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T",
            "a stopped gpt2d")
        systemd.drain()
        systemd.socket.settimeout(PATIENCE_S)
        os.kill(d.process.pid, signal.SIGCONT)
        systemd.until("WATCHDOG")


def test_log_rotation(home):
    with Daemon(home=home) as d, d.client() as c:
        c.wait(c.submit(spec("before")))
        old = d.log.rename(home / "log.1")
        c.wait(c.submit(spec("between")))
        assert "run 2: done" in old.read_text() and not d.log.exists()
        d.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "settings: read again from /dev/null, 0 changed" in d.said(), "a new log")
        c.wait(c.submit(spec("after")))
        assert "run 3: done" in d.said() and "run 3" not in old.read_text()


def test_settings_read_anew(home, systemd):
    conf = home / "conf"
    conf.write_text("clients_per_user = 3\nalive_timeout = 20s\n")
    conf.chmod(0o600)
    with Daemon(home=home, config=conf, environment={"NOTIFY_SOCKET": str(systemd.path)}) as d, d.client():
        systemd.until("READY")
        conf.write_text("clients_per_user = 5\nalive_timeout = 30s\nranks = 4\ncheck_timeout = 5min\n")
        d.process.send_signal(signal.SIGHUP)
        systemd.until("RELOADING")
        systemd.until("READY")
        wait_for(lambda: "settings: read again" in d.said(), "the settings")
        said = d.said()
        assert "info settings: clients_per_user: 3 -> 5\n" in said
        assert "warning settings: alive_timeout: 20s -> 30s: only after gpt2d is restarted\n" in said
        assert "warning settings: check_timeout: 120s -> 300s: only after" in said
        assert "settings: ranks" not in said  # the option comes over the file
        assert f"settings: read again from {conf}, 1 changed" in said
        others = [d.client() for _ in range(4)]
        assert not d.accepts()
        for other in others:
            other.close()
        # after an error all settings stay
        conf.write_text("clients_per_user = 1\nrank = 4\n")
        d.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "settings: errors, the old settings stay" in d.said(), "the error")
        assert f'error settings: {conf}:2: rank: no such setting, the nearest is "ranks"' in d.said()
        wait_for(d.accepts, "a client")


def test_log_level(home):
    with Daemon(home=home, options=("--log-level", "warning")) as d:
        # --verbose, which helpers gives, comes over it
        assert " debug " in d.said() and ", ranks 1, threads per rank 1\n" in d.said()
    command = [word for word in d.command if word != "--verbose"]
    with Daemon(home=home, ready=False) as d:
        assert d.stop() == 0
        d.log.unlink()
        d.command = [*command, "--log-level", "warning"]
        d.start()
        with d.client() as c:
            assert c.wait(c.submit(spec("quiet")))["state"] == "done"
        assert " info " not in d.said() and " debug " not in d.said()


def test_signals_at_the_start_and_at_the_end(tmp_path):
    """A program that rotates logs does not wait: gpt2d starts, and reopens its log; and no signal interrupts its end."""
    with Daemon(home=tmp_path) as d:
        assert d.stop() == 0
        db = sqlite3.connect(d.state / "gpt2d.db", isolation_level=None)
        db.execute("begin immediate")
        d.process = subprocess.Popen(d.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=d.environment)
        lock = d.state / "gpt2d.db.lock"
        wait_for(lambda: lock.read_text().strip() == str(d.process.pid), "the start")
        d.process.send_signal(signal.SIGHUP)
        db.close()
        assert d.process.stdout.readline().startswith("gpt2d: ready, ")
        wait_for(lambda: "SIGHUP: the log is open" in d.said(), "the reopened log")
        d.process.terminate()
        while d.process.poll() is None:
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
                d.process.send_signal(number)
            time.sleep(0.001)
        assert d.process.returncode == 0
