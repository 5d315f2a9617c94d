"""The last line of tests/run counts the cases that ran; a dead program never counts as passed."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tally # noqa: E402

TAP = "1..4\nok 1 - a\nnot ok 2 - b\n# 0x1 != 0x2\nnot ok 3 # SKIP c\nok 4 - d\n# not ok - group\n"


def counts(cases):
    return tally.report(cases).split("\n")[0]


def meson_log(tmp_path, **test):
    path = tmp_path / "testlog.json"
    path.write_text(json.dumps({"name": "plan", "result": "OK", "returncode": 0, "stdout": ""} | test) + "\n")
    return tally.meson(path)


@pytest.mark.parametrize("test, expected", [
    ({"stdout": "1..2\nok 1 - a\nok 2 - b\n"}, "2 0 0"),
    ({"stdout": TAP, "result": "FAIL", "returncode": 1}, "2 1 1"),
    ({"stdout": "1..3\nok 1 - a\n", "result": "FAIL", "returncode": -6}, "1 2 0"),
    ({"stdout": "1..2\nok 1 - a\nok 2 - b\n", "result": "FAIL", "returncode": 23}, "2 1 0"),
    ({"stdout": "1..2\nok 1 - a\n1..1\nok 1 - c\n", "result": "TIMEOUT"}, "2 1 0"),
    ({"stdout": "1..2\nok 1 a\nok 2\n"}, "2 0 0"),
    ({"stdout": "all well\n"}, "1 0 0"),
    ({"stdout": "", "result": "TIMEOUT", "returncode": -15}, "0 1 0"),
    ({"stdout": "", "result": "ERROR", "returncode": 127}, "0 1 0"),
    ({"stdout": "no such device\n", "result": "SKIP", "returncode": 77}, "0 0 1"),
])
def test_meson(tmp_path, test, expected):
    assert counts(meson_log(tmp_path, **test)) == expected


def test_a_failure_is_named_with_its_reason(tmp_path):
    text = tally.report(meson_log(tmp_path, stdout=TAP, result="FAIL", returncode=1))
    assert "failed plan: b: \n      0x1 != 0x2" in text and "skipped plan: c" in text


def test_junit(tmp_path):
    path = tmp_path / "r.xml"
    path.write_text('<testsuites><testsuite><testcase classname="a.b" name="x"/>'
        '<testcase classname="a.b" name="y"><failure message="boom">trace</failure></testcase>'
        '<testcase classname="a.b" name="z"><error message="fixture">t</error></testcase>'
        '<testcase classname="a.b" name="s"><skipped message="no sudo"/></testcase></testsuite></testsuites>')
    text = tally.report(tally.junit(path))
    assert text.startswith("1 2 1") and "failed b: y: boom" in text and "skipped b: s: no sudo" in text
