"""The project itself follows the rules of rules.py."""

from pathlib import Path

import pytest

import rules

ROOT = Path(__file__).resolve().parents[2]


WIDE = ("kernels/kernels.h", "proto/", "engine/") # comments of the first headers, until they are rewrapped


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_tree(rule):
    findings = [finding for finding in rule(ROOT)
        if not (finding.startswith(WIDE) and ".h:" in finding and "columns" in finding)]
    assert not findings, rule.__doc__ + "\n" + "\n".join(findings)


def test_tree_is_seen():
    """A rule over no file would pass."""
    assert len(rules.files(ROOT, rules.C_ENDINGS)) > 15


def test_top_folders():
    known = set(rules.FOLDERS)
    found = {path.name for path in ROOT.iterdir()
        if path.is_dir() and not path.name.startswith((".", "build", "__pycache__"))}
    assert found <= known, f"a new room needs a row in rules.py: {sorted(found - known)}"
