"""etc/demo with a reader that closes its output; tests/run runs the whole of it."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from helpers import BUILD, PATIENCE_S, ROOT


@pytest.fixture
def tree():
    """The sources that the demonstration needs, with built programs, so nothing is built."""
    with tempfile.TemporaryDirectory() as folder:  # short: a socket lies below it
        tree = Path(folder)
        shutil.copytree(ROOT / "etc", tree / "etc")
        (tree / "build").mkdir()
        (tree / "build/build.ninja").touch()
        for name in ("ctl", "daemon", "engine"):
            (tree / "build" / name).symlink_to(BUILD / name)
        (tree / "bin").mkdir()
        (tree / "bin/ninja").write_text("#!/bin/sh\necho nothing to do\n")
        (tree / "bin/ninja").chmod(0o755)
        (tree / "tmp").mkdir()
        yield tree


@pytest.mark.parametrize("last", ["Starting gpt2d", "Making tokens", "Running it"])
def test_without_a_reader_it_leaves_nothing(tree, last):
    with open(tree / "err", "w+", encoding="utf-8") as err, \
            subprocess.Popen([tree / "etc/demo", "--no-setup"], stdout=subprocess.PIPE, stderr=err, text=True,
                env={**os.environ, "PATH": f"{tree / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(tree / "tmp")}) as demo:
        for line in demo.stdout:
            if line.startswith(last):
                break
        else:
            raise AssertionError(f"{last} is not said: {(tree / 'err').read_text()}")
        demo.stdout.close()
        assert demo.wait(PATIENCE_S) == 141, (tree / "err").read_text()
    assert list((tree / "tmp").iterdir()) == []
    assert "etc/demo: interrupted; gpt2d is stopped, " in (tree / "err").read_text()


def test_a_clone_of_somebody_else(tree):
    """An unwritable folder is reported, before a build fails because of it."""
    tree.chmod(0o755)
    (tree / "build").chmod(0o555)
    user = {"user": 61001, "group": 61001, "extra_groups": []} if os.geteuid() == 0 else {}
    demo = subprocess.run([tree / "etc/demo", "--no-setup"], capture_output=True, text=True, timeout=PATIENCE_S, cwd="/",
        env={**os.environ, "PATH": f"{tree / 'bin'}:{os.environ['PATH']}"}, check=False, **user)
    (tree / "build").chmod(0o755)
    assert demo.returncode == 1 and demo.stdout == ""
    assert f"etc/demo: {tree}/build: " in demo.stderr and "may not write there" in demo.stderr
