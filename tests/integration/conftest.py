import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import helpers


@pytest.fixture
def daemon():
    """helpers.Daemon, as a thing to call."""
    return helpers.Daemon
