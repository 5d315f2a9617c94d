"""The project itself follows the rules of rules.py."""

import re
from pathlib import Path

import pytest

import rules

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_tree(rule):
    findings = rule(ROOT)
    assert not findings, rule.__doc__ + "\n" + "\n".join(findings)


def test_tree_is_seen():
    """A rule that checks no file would always pass."""
    assert len(rules.files(ROOT, rules.C_ENDINGS)) > 15


def test_top_folders():
    known = set(rules.FOLDERS)
    found = {path.name for path in ROOT.iterdir()
        if path.is_dir() and not path.name.startswith((".", "build", "__pycache__"))}
    assert found <= known, f"a new room needs a row in rules.py: {sorted(found - known)}"


def test_manual_pages_refer_to_pages_that_are_there():
    pages = {path.name.removesuffix(".in") for path in rules.files(ROOT, ("1", "5", "7", "8", ".in"))}
    found = []
    for path in rules.files(ROOT, (".1", ".5", ".7", ".8", ".in")):
        for number, line in enumerate(rules.lines(path), 1):
            words = line.split()
            if words[:1] == [".Xr"] and words[1].startswith("gpt2") and f"{words[1]}.{words[2]}" not in pages:
                found.append(f"{rules.relative(ROOT, path)}:{number}: no page {words[1]}({words[2]})")
    assert not found, "\n".join(found)


def test_every_case_names_tests_that_are_there():
    """tests/cases.md says `path` or `path:name`."""
    text = (ROOT / "tests/cases.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[^`:]+\.\w+)(?::([\w-]+))?`", text)
    gone = [f"{path}:{function}" for path, function in named if not (ROOT / path).is_file()
        or not re.search(rf"\b{function}\b", (ROOT / path).read_text(encoding="utf-8"))]
    assert len(named) > 50 and not gone, "\n".join(gone)
    assert all(f"| {case} |" in text for case in "A1 A3 A4 A5 A8 A9 B1 B2 B3 C1 C8 D1 F1 F2 F3".split())


def test_ranges_for_a_profiler_are_called_as_said():
    """Names for filters of a profile are those in step.h."""
    header, source = ((ROOT / "engine/train" / name).read_text(encoding="utf-8") for name in ("step.h", "step.c"))
    reported = set(re.findall(r"\b(?:train|val)/\w+", re.sub(r"(?m)^#include.*", "", header)))
    assert {"train/dataload", "train/forward", "train/loss", "train/backward", "train/optimizer_step"} <= reported
    begun = set(re.findall(r'k_range_begin\("([^"]+)"\)', source))
    assert begun == reported - {"train/reduce", "train/gather"}  # zero.c's, with the bucket's number


def test_the_version_has_one_place():
    """The version of meson.build is that of the newest heading in the changes."""
    version = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text(encoding="utf-8"))[1]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+)", changes, flags=re.M)[1] == version
    for name in ("CITATION.cff", "proto/version.h", "packaging/build-deb", "packaging/debian/control"):
        assert version not in (ROOT / name).read_text(encoding="utf-8"), name
