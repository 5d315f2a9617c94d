"""Signals that a launcher blocked or ignored, signals from other processes, and gpt2d as process 1."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import BUILD, FAKE_ENGINE, Daemon, read_until, spec, wait_for

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
            run = c.submit(spec("held"))
            wait_for(lambda: c.state(run) == "running", "the run")
            os.kill(pids[1], signal.SIGKILL)
            assert c.wait(run)["reason"].startswith("engine_lost: rank 1 killed by signal 9")
            assert d.engines() != pids
        d.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "SIGHUP: the log is open" in d.said(), "the reopened log")
        assert d.stop() == 0


def following(d, prefix, *words):
    """gpt2ctl that waits for a run."""
    return subprocess.Popen([*prefix, CTL, "--socket", d.socket, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_blocked_signal_ends_gpt2ctl(number):
    with Daemon() as d, d.client() as c:
        run = c.submit(spec("held"))
        p = following(d, BLOCK_ALL, "follow", str(run))
        read_until(p, "run 1")
        p.send_signal(number)
        _, said = p.communicate(timeout=60)
        assert p.returncode == 6 and f"interrupted; run {run} continues" in said, (p.returncode, said)
        d.unhold()
        c.wait(run)


# Whose default action ends a process, without those that report a fault and those that ask for the end.
OTHERS = ["SIGHUP", "SIGQUIT", "SIGPIPE", "SIGALRM", "SIGUSR2", "SIGPOLL", "SIGPROF", "SIGVTALRM", "SIGXCPU", "SIGXFSZ", "SIGSTKFLT",
    "SIGPWR", "SIGRTMIN", "SIGRTMAX"]


def test_no_other_signal_ends_gpt2d_or_an_engine():
    with Daemon(engine=BUILD / "engine/gpt2-engine-cpu") as d, d.client() as c:
        engine = d.engines()[0]
        for name in OTHERS:
            number = getattr(signal, name, 16)  # Python has no name for SIGSTKFLT before 3.11
            d.process.send_signal(number)
            os.kill(engine, number)
        for name in ("SIGTERM", "SIGINT", "SIGUSR1"):
            os.kill(engine, getattr(signal, name))
        assert c.wait(c.submit(spec("good", 1)))["state"] == "done"
        assert d.process.poll() is None and d.engines() == [engine]


def children(pid):
    """The children of a process, and the state of each. One that ends meanwhile is left out."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found[child] = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a pid namespace")
def test_process_1_reaps_orphans(tmp_path):
    """In a container: the orphan of an engine, whose parent is process 1 then, leaves no zombie."""
    prefix = ("unshare", "-p", "-f", "--kill-child", "--mount-proc")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespace can be made here")
    engine = tmp_path / "engine"
    engine.write_text(f'#!/bin/sh\n(setsid sh -c "touch {tmp_path}/orphan; sleep 0.5; touch {tmp_path}/ended" &)\nexec {FAKE_ENGINE} "$@"\n')
    engine.chmod(0o755)
    with Daemon(home=tmp_path, engine=engine, prefix=prefix) as d:
        (init,) = children(d.process.pid)
        wait_for((tmp_path / "ended").exists, "the orphan's end")
        wait_for(lambda: "Z" not in children(init).values() and len(children(init)) == 1, "that nothing is left of it")
        with d.client() as c:
            assert c.wait(c.submit(spec("good")))["state"] == "done"
        os.kill(int(init), signal.SIGTERM)
        assert d.process.wait(60) == 0 and "info stopped" in d.said()


def test_threads_by_affinity(tmp_path):
    """The processors that gpt2d may use, not those of the machine."""
    with Daemon(home=tmp_path, prefix=("taskset", "-c", str(min(os.sched_getaffinity(0)))), options=("--threads", "0")) as d:
        assert ", ranks 1, threads per rank 1\n" in d.said()
