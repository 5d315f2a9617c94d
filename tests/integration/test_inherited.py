"""Signals that are blocked or ignored by who starts a program stay so over exec: they must not change what it does."""

import os
import signal
import subprocess
import sys
import time

import pytest

from helpers import BUILD, Daemon, read_until, spec, wait_for

CTL = BUILD / "ctl/gpt2ctl"
BLOCK_ALL = (sys.executable, "-c", "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); "
    "os.execv(sys.argv[1], sys.argv[1:])")
IGNORE_ALL = (sys.executable, "-c", "import os, signal, sys\n"
    "for s in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(s, signal.SIG_IGN)\n"
    "os.execv(sys.argv[1], sys.argv[1:])")


@pytest.mark.parametrize("prefix", [BLOCK_ALL, IGNORE_ALL])
def test_daemon_notices_the_end_of_engines_and_ends(prefix):
    with Daemon(ranks=2, prefix=prefix) as d:
        pids = d.engines()
        with d.client() as c:
            run = c.submit(spec("untold"))
            wait_for(lambda: c.state(run) == "running", "the run")
            os.kill(pids[1], signal.SIGKILL)
            assert c.wait(run)["reason"].startswith("engine_lost: rank 1 killed by signal 9")
            assert d.engines() != pids
        d.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "SIGHUP: the log is open" in d.said(), "the log anew")
        assert d.stop() == 0


@pytest.mark.parametrize("prefix", [BLOCK_ALL, IGNORE_ALL])
def test_the_check_asks_the_engine(prefix, tmp_path):
    result = subprocess.run([*prefix, BUILD / "daemon/gpt2d", "-c", "/dev/null", "--socket", tmp_path / "s", "--state-dir",
        tmp_path / "state", "--check"], capture_output=True, text=True, timeout=60, check=False)
    lines = {line.split()[1]: line for line in result.stdout.splitlines()}
    assert lines["engine"].startswith("ok "), result
    assert lines["checker"].startswith("ok "), result


def following(d, prefix, *words):
    """gpt2ctl that waits for a run."""
    return subprocess.Popen([*prefix, CTL, "--socket", d.socket, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_blocked_signal_ends_gpt2ctl(number):
    with Daemon() as d, d.client() as c:
        run = c.submit(spec("untold"))
        p = following(d, BLOCK_ALL, "follow", str(run))
        read_until(p, "run 1")
        p.send_signal(number)
        _, said = p.communicate(timeout=60)
        assert p.returncode == 6 and f"detached; run {run} goes on" in said, (p.returncode, said)
        d.tell()
        c.wait(run)


def test_nohup_stays_nohup():
    with Daemon() as d, d.client() as c:
        run = c.submit(spec("untold"))
        p = following(d, ("nohup",), "follow", str(run))
        read_until(p, "run 1")
        p.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        d.tell()
        out, said = p.communicate(timeout=60)
        assert p.returncode == 0 and "done" in out, (p.returncode, out, said)
        c.wait(run)
