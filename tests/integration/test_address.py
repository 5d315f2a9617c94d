"""The socket's name while gpt2d runs: removed, replaced, and bound again."""

import shutil
import signal
import socket
import stat
import subprocess

from helpers import spec, wait_for


def logged(d, text):
    wait_for(lambda: text in d.said(), f"{text!r} in the log")


def test_removed(daemon):
    """As by logind, with its folder. Connected clients stay, and the new socket has the mode of the old one."""
    with daemon(options=("--socket-mode", "0666")) as d, d.client() as before:
        assert stat.S_IMODE(d.socket.stat().st_mode) == 0o666
        shutil.rmtree(d.socket.parent)
        logged(d, f"socket: {d.socket}: removed; gpt2d has bound it again")
        assert d.accepts()
        assert stat.S_IMODE(d.socket.stat().st_mode) == 0o666
        run = before.submit(spec("kept"))
        assert before.wait(run)["state"] == "done"
        with d.client() as after:
            assert after.state(run) == "done"
    assert not d.socket.exists()


def test_somebody_else_listens_there(daemon):
    """gpt2d never replaces a live socket. It binds again once the other program has gone."""
    with daemon() as d:
        d.socket.unlink()
        other = socket.socket(socket.AF_UNIX)
        other.bind(str(d.socket.with_name("other")))
        other.listen()
        d.socket.with_name("other").rename(d.socket) # whatever gpt2d has bound by now
        logged(d, f"removed, and clients cannot find gpt2d: {d.socket}: another program listens there")
        other.close()
        wait_for(d.accepts, "gpt2d's own socket")


def test_a_start_where_another_program_listens(daemon):
    with daemon() as d:
        assert d.stop() == 0
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(d.socket))
            other.listen()
            refused = subprocess.run(d.command, capture_output=True, text=True, env=d.environment, timeout=60, check=False)
            assert refused.returncode == 3 and f"{d.socket}: another program listens there" in refused.stderr
            other.settimeout(10)
        d.start() # gpt2d replaces the socket of a dead process


def test_another_gpt2d_has_taken_the_name(daemon, tmp_path):
    """The folder with the lock file was removed while gpt2d was stopped: the second gpt2d owns the name until it ends."""
    with daemon() as d:
        d.process.send_signal(signal.SIGSTOP)
        shutil.rmtree(d.socket.parent)
        command = [str(tmp_path) if word == str(d.state) else word for word in d.command]
        command[command.index(str(d.log))] = str(tmp_path / "log")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=d.environment) as second:
            try:
                assert second.stdout.readline().startswith("gpt2d: ready, ")
                d.process.send_signal(signal.SIGCONT)
                logged(d, f"{d.socket}: another program listens there")
                with d.client() as c:
                    assert c.greeting["pid"] == second.pid
            finally:
                d.process.send_signal(signal.SIGCONT)
                second.terminate()
        assert second.returncode == 0
        wait_for(d.accepts, "the first one's socket")
        with d.client() as c:
            assert c.greeting["pid"] == d.process.pid
