"""gpt2ctl judge of files with repeated results."""

import json

import pytest

from client import ctl, one_object

A = [5.31, 5.29, 5.33, 5.30, 5.32, 5.34, 5.28, 5.35]
B = [5.10, 5.08, 5.11, 5.09, 5.12, 5.07, 5.13, 5.06]


def numbers(path, values):
    path.write_text("".join(f"{value}\n" for value in values))
    return path


def judge(tmp_path, a, b, *args):
    return ctl("judge", f"A={numbers(tmp_path / 'a', a)}", f"B={numbers(tmp_path / 'b', b)}", *args)


def test_faster(tmp_path):
    value = one_object(judge(tmp_path, A, B, "--json").stdout)
    assert (value["verdict"], value["reason"], value["refusal"]) == ("FASTER", "significant", None)
    assert [side["runs"] for side in value["sides"]] == [8, 8] and value["sides"][0]["median"] == pytest.approx(5.315)
    assert 3 < value["throughput_low_percent"] < value["throughput_percent"] < value["throughput_high_percent"] < 5.5
    text = judge(tmp_path, A, B).stdout
    assert text.splitlines()[-1] == "verdict: FASTER" and "throughput B/A +4." in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert one_object(judge(tmp_path, A, B, "--json", "--unit", "rate").stdout)["verdict"] == "SLOWER"
    paired = one_object(judge(tmp_path, A, B, "--json", "--paired").stdout)
    assert paired["verdict"] == "FASTER" and paired["p"] == pytest.approx(0.0078125)


def test_same_and_ambiguous(tmp_path):
    assert "verdict: SAME   (both have exactly the same times)" in judge(tmp_path, A, A, "--paired").stdout
    assert "verdict: SAME   (the whole interval" in judge(tmp_path, A, A, "--margin", "0.05").stdout
    wide = [value * (1.2 - i / 20) for i, value in enumerate(A)]
    assert judge(tmp_path, A, wide).stdout.endswith(
        "verdict: AMBIGUOUS   (the interval is too wide)\nto settle it: more runs of both sides, in alternation\n")
    assert judge(tmp_path, A, wide[::2] + wide[1::2], "--paired").stdout.splitlines()[-1].startswith("to settle it: about ")


def test_too_few(tmp_path):
    text = judge(tmp_path, A[:4], B).stdout
    assert text.splitlines()[-1] == "no verdict: 4 and 8 runs are too few for a verdict (at least 5 of each)"
    assert "throughput B/A +4." in text and "95%" not in text
    text = judge(tmp_path, A[:7], B[:7], "--paired").stdout
    assert text.splitlines()[-1] == "no verdict: 7 pairs are too few for a verdict (at least 8)"


def test_sources(tmp_path):
    """One run per log, members of JSON, and a column of CSV."""
    words = []
    for name, values in (("old", A), ("new", B)):
        for i, value in enumerate(values):
            log = tmp_path / f"{name}{i}.log"
            log.write_text(f"step 1 time 99\nstep 2 time {value - 0.01}\nstep 3 time {value + 0.01}\n")
            words.append(f"{name}={log}")
    value = one_object(ctl("judge", *words, "--pattern", "time ([0-9.]+)", "--drop", 1, "--json").stdout)
    assert value["verdict"] == "FASTER" and value["sides"][1]["name"] == "new" and value["sides"][1]["mean"] == pytest.approx(sum(B) / 8)
    rates = tmp_path / "rates.json"
    rates.write_text("".join(json.dumps({"summary": {"rate": 1 / value}}) + "\n" for value in B))
    table = tmp_path / "table.csv"
    table.write_text("run,rate\n" + "".join(f"{i},{1 / value}\n" for i, value in enumerate(A)))
    value = one_object(ctl("judge", f"A={table}:rate", f"B={rates}:summary.rate", "--unit", "rate", "--json").stdout)
    assert value["verdict"] == "FASTER"


@pytest.mark.parametrize("args, message", [
    (["A=a", "b"], "judge: b: invalid (expected NAME=FILE)"),
    (["A=a", "A=a"], "judge: results of two sides are required"),
    (["A=a", "B=a", "C=a"], "judge: C: a third name (expected two, found A and B)"),
    (["A=a", "B=none"], "none: No such file or directory"),
    (["A=a", "B=a", "--drop", "3"], "judge: --drop requires --pattern"),
    (["A=a", "B=a", "B=a", "--paired"], "judge: --paired needs as many runs of A as of B (found 8 and 16)"),
])
def test_refused(tmp_path, args, message):
    numbers(tmp_path / "a", A)
    result = ctl("judge", *args, cwd=tmp_path)
    assert result.returncode == 2 and message in result.stderr
