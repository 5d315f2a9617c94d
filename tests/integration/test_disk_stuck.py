"""The disk of the state directory neither answers nor fails: status, log and metrics report it, and status has a reply."""

import contextlib

import pytest

from faults import STALL, Faults
from helpers import PATIENCE_S, Daemon, spec, wait_for
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
