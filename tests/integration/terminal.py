"""A program on a pseudo-terminal, for tests of its behaviour on a real one."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

from helpers import PATIENCE_S


class Terminal:
    """An interactive program on a new terminal."""

    def __init__(self, command, env, rows=24, columns=80):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            self.fd = 0
            self.resize(rows, columns)
            os.execvpe(command[0], command, {"TERM": "xterm", **env, "PS1": "$ ", "PROMPT": "$ "})
        self.seen = ""
        self.status = None

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        self.seen = ""
        os.write(self.fd, text.encode())

    def wait(self, pattern):
        """Waits until the text is seen, without bells and terminal sequences."""
        until = time.monotonic() + PATIENCE_S
        while not re.search(pattern, re.sub(r"\x07|\x1b\[[?0-9;]*[a-zA-Z]", "", self.seen)):
            assert time.monotonic() < until, f"{pattern} is not in {self.seen!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                assert self.read(), f"it ended: {self.seen!r}"

    def read(self):
        """Reads the next output; False at the end."""
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)

    def end(self):
        """Reads until the program has ended: its exit code."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if select.select([self.fd], [], [], 0.1)[0] and not self.read():
                break
        else:
            raise AssertionError(f"it has not ended: {self.seen!r}")
        _, status = os.waitpid(self.pid, 0)
        self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)
