"""Files of tests that run side by side: all results are in one file, and a program that died does not count as passed."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PASSES = "def test_passes():\n    pass\n"
FAILS = "def test_fails():\n    assert not 'broken'\n"
DIES = "import os\n\ndef test_dies():\n    os._exit(0)\n"
WAITS = ("import pathlib, time\n\ndef test_{0}():\n    folder = pathlib.Path(__file__).parent\n    (folder / '{0}').touch()\n"
    "    for _ in range(3000):\n        if (folder / '{1}').exists():\n            return\n        time.sleep(0.02)\n"
    "    assert False, 'alone'\n")


def side_by_side(folder, files, *options):
    """(status, output, tally.py's summary of the results)."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    results = folder / "results.xml"
    done = subprocess.run([sys.executable, TESTS / "side_by_side.py", "2", results, "-p", "no:cacheprovider", *options,
        "--", *sorted(str(file) for file in folder.glob("test_*.py"))], capture_output=True, text=True, cwd=folder,
        check=False, timeout=120)
    counted = subprocess.run([sys.executable, TESTS / "tally.py", "junit", results], capture_output=True, text=True,
        check=True)
    return done.returncode, done.stdout, counted.stdout.splitlines()


def test_results_are_put_together(tmp_path):
    status, said, counted = side_by_side(tmp_path, {"a": PASSES, "b": FAILS, "c": PASSES})
    assert status == 1
    assert counted[0] == "2 1 0" and "test_b: test_fails" in counted[1]
    assert said.count("1 passed") == 2 and said.count("1 failed") == 1


def test_two_at_a_time(tmp_path):
    status, said, counted = side_by_side(tmp_path, {"a": WAITS.format("a", "b"), "b": WAITS.format("b", "a")})
    assert (status, counted) == (0, ["2 0 0"]), said


@pytest.mark.parametrize("option, status, counted", [("passes", 0, "1 0 0"), ("nobody", 5, "0 0 0")])
def test_nothing_of_that_name(tmp_path, option, status, counted):
    assert side_by_side(tmp_path, {"a": PASSES, "b": FAILS}, "-k", option)[::2] == (status, [counted])


def test_without_a_report(tmp_path):
    status, said, counted = side_by_side(tmp_path, {"a": DIES, "b": PASSES})
    assert status == 1 and "test_a.py: no report, status 0" in said
    assert counted == ["1 0 0"]
