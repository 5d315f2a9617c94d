import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import client
import helpers


@pytest.fixture(autouse=True)
def kills_only_processes(monkeypatch):
    """A pid of 0 or below (of a rank that has ended, say) would mean this process group, with pytest and its parent."""
    kill = os.kill

    def one(pid, number):
        assert pid > 0, f"kill({pid}, {number})"
        kill(pid, number)

    monkeypatch.setattr(os, "kill", one)


@pytest.fixture
def daemon():
    """helpers.Daemon, as a function."""
    return helpers.Daemon


@pytest.fixture
def home():
    """A folder with a short path, which other users may enter."""
    path = Path(tempfile.mkdtemp(prefix="gpt2d-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def folders(tmp_path):
    """A new directory at each call."""
    made = iter(range(1000))

    def make():
        path = tmp_path / f"segment{next(made)}"
        path.mkdir()
        return path
    return make


@pytest.fixture
def path(tmp_path):
    """A directory for the socket of a scripted daemon."""
    return tmp_path / "s"


@pytest.fixture
def spec(tmp_path):
    """A spec's file."""
    file = tmp_path / "demo.json"
    file.write_text(json.dumps(client.SPEC, indent=2))
    return file
