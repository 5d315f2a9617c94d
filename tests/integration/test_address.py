"""The socket's name under a gpt2d that lives: removed, replaced, and bound anew."""

import fcntl
import shutil
import signal
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from helpers import spec, wait_for


def logged(d, text):
    wait_for(lambda: text in d.said(), f"{text!r} in the log")


@pytest.mark.parametrize("how", ["asked for", "by itself"])
def test_removed(daemon, how):
    """Who is connected stays; the new one is for whom the old one was."""
    with daemon(options=("--socket-mode", "0666")) as d, d.client() as before:
        assert stat.S_IMODE(d.socket.stat().st_mode) == 0o666
        d.socket.unlink()
        if how == "asked for":
            d.process.send_signal(signal.SIGHUP)
        logged(d, f"socket: {d.socket}: it was removed or replaced")
        wait_for(d.accepts, "a socket that is there again")
        logged(d, f"socket: {d.socket}: bound anew")
        assert stat.S_IMODE(d.socket.stat().st_mode) == 0o666
        run = before.submit(spec("kept"))
        assert before.wait(run)["state"] == "done"
        with d.client() as after:
            assert after.state(run) == "done"
    assert not d.socket.exists()


def test_moved_and_moved_back(daemon):
    with daemon() as d:
        away = d.socket.with_name("away")
        wait = d.socket.with_name("wait")
        d.socket.rename(away)
        d.socket.mkdir() # so that it is not bound anew meanwhile
        logged(d, f"socket: {d.socket}: is there and is no socket; no client finds gpt2d")
        d.socket.rename(wait)
        try:
            away.rename(d.socket)
        finally:
            wait.rmdir()
        wait_for(d.accepts, "the socket")
        with d.client() as c:
            assert c.wait(c.submit(spec("found")))["state"] == "done"


def test_somebody_else_listens_there(daemon):
    """A live socket is never taken, and the name is once it is free."""
    with daemon() as d:
        d.socket.unlink()
        other = socket.socket(socket.AF_UNIX)
        other.bind(str(d.socket.with_name("other")))
        other.listen()
        d.socket.with_name("other").rename(d.socket) # whatever gpt2d has bound by now
        logged(d, f"socket: {d.socket}: another program listens there; no client finds gpt2d")
        d.process.send_signal(signal.SIGHUP)
        wait_for(lambda: d.said().count("another program listens there") >= 2, "the same, asked for")
        other.close()
        wait_for(d.accepts, "gpt2d's own socket")


def test_another_gpt2d_has_taken_the_name(daemon, tmp_path):
    """Where the lock's file goes as well, the name is whose who locked the new one."""
    with daemon() as d:
        d.process.send_signal(signal.SIGSTOP)
        shutil.rmtree(d.socket.parent)
        command = [str(tmp_path) if word == str(d.state) else word for word in d.command]
        command[command.index(str(d.log))] = str(tmp_path / "log")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=d.environment) as second:
            try:
                assert second.stdout.readline().startswith("gpt2d: ready, ")
                d.process.send_signal(signal.SIGCONT)
                logged(d, f"socket: {d.socket}: in use by another gpt2d (process {second.pid}), which holds ")
                with d.client() as c:
                    assert c.greeting["pid"] == second.pid
            finally:
                d.process.send_signal(signal.SIGCONT)
                second.terminate()
        assert second.returncode == 0
        wait_for(d.accepts, "the first one's socket")
        with d.client() as c:
            assert c.greeting["pid"] == d.process.pid
        assert Path(f"{d.socket}.lock").read_text().strip() == str(d.process.pid)


def test_the_locks_file_is_removed(daemon):
    """It is made anew before anybody misses it: a second gpt2d finds the socket taken."""
    with daemon() as d:
        lock = d.socket.with_name("gpt2d.sock.lock")
        lock.unlink()
        logged(d, f"{lock}: it was removed; made and locked anew")
        assert lock.read_text().strip() == str(d.process.pid)
        second = subprocess.run([f"{word}2" if word == str(d.state) else word for word in d.command if word != str(d.log)
            and word != "--log-file"], capture_output=True, text=True, env=d.environment, timeout=60)
        assert second.returncode == 3
        assert f"{d.socket}: in use by another gpt2d (process {d.process.pid})" in second.stderr
        assert d.accepts()


def test_somebody_else_has_the_lock(daemon):
    """While the socket stands that is said, once; when the lock is free again it is taken."""
    with daemon() as d:
        lock = d.socket.with_name("gpt2d.sock.lock")
        with open(d.socket.with_name("theirs"), "w") as theirs:
            fcntl.flock(theirs, fcntl.LOCK_EX)
            Path(theirs.name).rename(lock)
            logged(d, f"socket: {d.socket}: in use by another gpt2d (process unknown), which holds {lock}; the socket is")
            with d.client() as c:
                assert c.wait(c.submit(spec("served")))["state"] == "done"
        lock.unlink()
        logged(d, f"{lock}: it was removed; made and locked anew")
        assert d.said().count("in use by another") == 1
