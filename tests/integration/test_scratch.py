"""What a killed gpt2d --check leaves in the state directory goes at the next start; what is not its own, or in use, stays."""

import errno
import fcntl
import os
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from faults import FAIL, KILL, LIBRARY, UNLINK, Faults, sample
from helpers import Daemon


@pytest.fixture
def stopped(tmp_path):
    """A gpt2d that has been there, and can be started."""
    faults = Faults(tmp_path)
    with Daemon(home=tmp_path, environment=faults.environment) as d:
        d.stop()
        yield d, faults.daemon
        if d.process.poll() is not None:
            d.start()


def check(d):
    return subprocess.run([*d.command, "--check"], env=d.environment, capture_output=True, timeout=60, check=False).returncode


def left(d):
    return sorted(path.name for path in d.state.glob(".check-*"))


@contextmanager
def used(folder):
    fd = os.open(folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    yield
    os.close(fd)


@pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
def test_killed_at_any_write(stopped):
    d, program = stopped
    before = program.count
    check(d)
    total = program.count - before
    assert total > 10 and not left(d)
    for n in sample(total, 8):
        program.arm(KILL, first=n, last=n)
        assert check(d) == -9
    program.disarm()
    assert len(left(d)) > 3
    d.start()
    assert not left(d)
    assert "XXXXXX folders of a gpt2d --check that was killed: removed" in d.said()
    assert sorted(path.name for path in d.state.iterdir() if path.name.startswith(".")) == []


@pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
def test_killed_where_there_is_no_state_directory_yet(stopped, tmp_path):
    """It tries one in the folder that is there."""
    d, program = stopped
    shutil.rmtree(d.state)
    d.command[d.command.index("--state-dir") + 1] = str(tmp_path / "a" / "state")
    d.state = tmp_path / "a" / "state"
    d.environment["GPT2D_FAULTS_UNDER"] = str(tmp_path)
    program.arm(KILL, first=4, last=4)
    assert check(d) == -9
    program.disarm()
    assert len(list(tmp_path.glob(".check-*"))) == 1
    d.start()
    assert not list(tmp_path.glob(".check-*"))
    assert f"{tmp_path}: 1 .check-XXXXXX folder of a gpt2d --check that was killed: removed" in d.said()


def test_not_its_own(stopped, tmp_path):
    """Other names, files, links, what lies in a folder, and what is another user's."""
    d, _ = stopped
    for name in (".check-abc", ".check-abcdefg", ".check-abc.ef", "check-abcdef", ".check-FuLL01"):
        (d.state / name).mkdir()
        (d.state / name / "t.db").touch()
    (d.state / ".check-FuLL01" / "mine").touch()
    (d.state / ".check-file01").touch()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "t.db").touch()
    (d.state / ".check-link01").symlink_to(elsewhere)
    expected = {".check-abc", ".check-abcdefg", ".check-abc.ef", ".check-FuLL01", ".check-file01", ".check-link01"}
    if os.geteuid() == 0:
        (d.state / ".check-other1").mkdir()
        os.chown(d.state / ".check-other1", 1, 1)
        expected.add(".check-other1")
    d.start()
    assert set(left(d)) == expected and (elsewhere / "t.db").exists() and (d.state / "check-abcdef" / "t.db").exists()
    assert (d.state / ".check-FuLL01" / "mine").exists()
    assert f"{d.state}/.check-FuLL01: left by a gpt2d --check, cannot be removed: {os.strerror(errno.ENOTEMPTY)}" in d.said()


def test_one_that_is_in_use(stopped):
    """Its owner lives: it stays until that is gone."""
    d, _ = stopped
    folder = d.state / ".check-used01"
    folder.mkdir()
    (folder / "t.db").touch()
    with used(folder):
        d.start()
        assert (folder / "t.db").exists()
        d.stop()
    d.start()
    assert not left(d)


@pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
def test_it_cannot_be_removed(stopped):
    """It is told, and gpt2d starts all the same."""
    d, program = stopped
    (d.state / ".check-stays1").mkdir()
    program.arm(FAIL, errno.EIO, ops=UNLINK)
    d.start()
    program.disarm()
    assert left(d) == [".check-stays1"] and ".check-stays1: left by a gpt2d --check, cannot be removed: Input" in d.said()
