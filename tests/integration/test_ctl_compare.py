"""gpt2ctl compare of segments that a scripted daemon shows."""

import base64
import csv
import io
import json
import random
import re

import pytest

from client import ctl, experiment, one_object, segment
from fake_daemon import FakeDaemon

MS = 1000000


def blocks(speeds, n=8, noise=0.002, **more):
    """Segments of n mirrored blocks of arms whose steps take so many ms; more: members of all summaries."""
    seeded, rows = random.Random(1), []
    for block in range(1, n + 1):
        order = sorted(speeds)
        seeded.shuffle(order)
        for position, arm in enumerate(order + order[::-1]):
            times = [int(speeds[arm] * MS * (1 + seeded.gauss(0, noise))) for _ in range(20)]
            rows.append(segment(len(rows), arm, times, **more) | {"block": block, "position": position + 1})
    return rows


def compare(path, rows, *args, design=None, arms=None, **run):
    with FakeDaemon(path, show=experiment(*rows, design=design, arms=arms, **run)):
        return ctl("compare", 5, *args, path=path, env={"LC_ALL": "C"})


def narrow(text):
    assert text.isascii() and max(len(line) for line in text.splitlines()) <= 80, text
    return text


def test_faster(path):
    rows = blocks({"A": 10, "B": 9.6}, energy_j=10.0, mfu=0.41, exposed_wait_mean_s=3e-5)
    value = one_object(compare(path, rows, "--json").stdout)
    row = value["comparisons"][0]
    assert (row["verdict"], row["reason"], row["blocks"]) == ("FASTER", "significant", 8)
    assert row["p"] == pytest.approx(0.0078125) and 4 < row["throughput_low_percent"] < row["throughput_high_percent"] < 4.4
    text = narrow(compare(path, rows).stdout)
    assert text.endswith("verdict: FASTER\n") and "\nthroughput B/A +4." in text
    for part in ("  zero_optimization.reduce_bucket_size: 128 (A: 64)\n", "B   8 buckets of 64 el (256 B)   ranks 2, stage 0\n",
            "blocks 8 of 12 (random order, mirrored, seed 1), 20 steps a segment", "p .0078\n", "stalled segments 0, 0",
            "equal work: same tokens, losses bit-identical   applied updates 320, 320\n", "MFU A 41.0%   B 41.0%\n",
            "exposed communication A 100 us (waiting 30.0 us)", "energy: A 5000 J/Mtok   B 5000 J/Mtok\n", "scope: this daemon, 2 ranks\n"):
        assert part in text, (part, text)
    other = one_object(compare(path, rows, "--json", "--baseline", "B").stdout)
    assert [(row["arm"], row["verdict"]) for row in other["comparisons"]] == [("A", "SLOWER")]


def test_step_and_its_communication(path):
    """Communication may shrink by more than the step does, or grow while the step shrinks."""
    rows = blocks({"A": 10, "B": 9.6})
    for exposed, words in ((0.0, (100, "less")), (1e-3, (900, "more"))):
        for row in rows:
            row["summary"]["exposed_comm_mean_s"] = exposed if row["arm"] == "B" else 1e-4
        text = narrow(compare(path, rows).stdout)
        found = re.search(r"\na step takes (\S+ us) less, its exposed communication (\S+ us) (less|more)\n", text)
        assert found and 350 < float(found[1].split()[0]) < 450, text
        assert (float(found[2].split()[0]), found[3]) == words, text


def test_baseline_that_is_no_arm(path):
    rows = blocks({"A": 10, "B": 9.6}, 1)
    unknown, near = compare(path, rows, "--baseline", "nothing"), compare(path, rows, "--baseline", "AA")
    assert unknown.returncode == near.returncode == 2
    assert unknown.stderr.endswith("unknown arm (expected A, B)\n") and "did you mean A?" in near.stderr


def test_same_and_ambiguous(path):
    same = narrow(compare(path, blocks({"A": 10, "B": 10})).stdout)
    assert "\nverdict: SAME   (the whole interval lies within the margin)\n" in same
    real = narrow(compare(path, blocks({"A": 10, "B": 9.96})).stdout)
    assert "\nverdict: SAME   (the difference is real and below the margin of 1%)\n" in real
    few = narrow(compare(path, blocks({"A": 10, "B": 9}, 3)).stdout)
    assert "verdict: AMBIGUOUS   (too few blocks for a verdict)\nto settle it: run more blocks" in few
    assert few.endswith("gpt2ctl rerun 5\n") and "95%" not in few
    wide = narrow(compare(path, blocks({"A": 10, "B": 9.9}, noise=0.1)).stdout)
    assert "verdict: AMBIGUOUS   (the interval is too wide)\nto settle it: about " in wide


def test_what_settles_it(path):
    """A run that has not ended goes on, and one that planned enough blocks is run again as it is."""
    few = blocks({"A": 10, "B": 9}, 3)
    going = narrow(compare(path, few, state="running").stdout)
    assert going.endswith("to settle it: wait for the other blocks of the run\ngpt2ctl follow 5\n")
    broken = narrow(compare(path, few, state="cancelled", reason="cancelled: asked for").stdout)
    assert broken.endswith("\ngpt2ctl rerun 5\n")
    short = narrow(compare(path, few, design={"repetitions": 3}).stdout)
    assert short.endswith("\ngpt2ctl rerun 5 --set design.repetitions=12\n")
    hopeless = narrow(compare(path, blocks({"A": 10, "B": 9.9}, noise=3)).stdout)
    assert "design.repetitions=" not in hopeless and "more than a run can have (1000)" in " ".join(hopeless.split())


def test_nothing_to_compare(path):
    """A gate that compares nothing does not pass."""
    rows = [segment(0, "run", [10 * MS] * 20)]
    text = narrow(compare(path, rows).stdout)
    assert text.startswith("run 5 ab (done), 1 segment\n")
    assert text.endswith("\nno verdict: the run has one arm, and nothing to compare it with\n")
    gate = compare(path, rows, "--fail-if", "slower>1%")
    assert gate.returncode == 14 and gate.stderr == "gpt2ctl: --fail-if: no arm to compare with the baseline\n"


def test_few_blocks_have_no_checks(path):
    """An A/A control of one block can be neither suspect nor ok."""
    rows = blocks({"A": 10, "B": 9, "A-aa": 14}, 1)
    arms = {"A": {}, "B": {"zero_optimization": {"reduce_bucket_size": 128}}}
    text = narrow(compare(path, rows, arms=arms, design={"aa_control": True}).stdout)
    assert "A/A -28." in text and "too few blocks for checks" in text
    assert " ok" not in text and "trend" not in text


def test_arm_that_failed(path):
    rows = [row if row["arm"] == "A" else row | {"state": "failed", "summary": None, "reason": "out_of_memory: rank 1: 3 GB"}
        for row in blocks({"A": 10, "B": 9})]
    text = narrow(compare(path, rows, state="failed", reason="arm_failed: B: out_of_memory: rank 1: 3 GB").stdout)
    assert " (B) failed: out_of_memory: rank 1: 3 GB\n" in text
    assert "\nB: no whole block\n" in text and "verdict: AMBIGUOUS   (the arm failed)\n" in text
    assert text.endswith("to settle it: read in the messages of the run why the arm failed\ngpt2ctl logs 5\n")


def test_other_training(path):
    arms = {"A": {}, "B": {"optimizer": {"params": {"lr": 0.5}}}}
    text = narrow(compare(path, blocks({"A": 10, "B": 9}), arms=arms).stdout)
    assert text.endswith("to settle it: set work.target_loss to a loss that every segment reaches, and\n  compare the times to it\n")
    rows = blocks({"A": 10, "B": 9})
    for row in rows:
        row["summary"]["time_to_loss_s"] = 0.125 if row["arm"] == "A" else None
    text = narrow(compare(path, rows, arms=arms).stdout)
    assert "\ntime to the target loss A 125 ms   B not reached in every segment\n" in text
    assert text.endswith("to settle it: compare the times to the target loss, see above\n")


def test_an_interval_that_one_of_many_may_have(path):
    """It excludes 0, and Holm's p does not: the words say why there is no verdict."""
    speeds = {"A": 10, "B": 9.7} | {f"C{i}": 10 for i in range(6)}
    arms = {name: {"zero_optimization": {"reduce_bucket_size": 64 << i}} for i, name in enumerate(speeds)}
    rows = blocks(speeds, 9, noise=0.001)
    for row in rows:  # one block in nine says otherwise, so that p is .0078 and seven times that
        if row["block"] == 3 and row["arm"] == "B":
            row["summary"]["seconds_measured"] *= 1.035
        row["summary"]["plan"] = {**row["summary"]["plan"], "n_reduce": sum(map(ord, row["arm"]))}
    value = one_object(compare(path, rows, "--json", arms=arms).stdout)
    b = next(row for row in value["comparisons"] if row["arm"] == "B")
    assert b["throughput_low_percent"] > 0 and b["p"] <= 0.05 < b["p_holm"], b
    assert b["reason_text"] == "the interval excludes 0, but with so many arms one may do so by chance"


def test_several_arms(path):
    text = narrow(compare(path, blocks({"A": 10, "B": 9.6, "C": 10.4})).stdout)
    table = [line.split() for line in text.splitlines()[1:4]]
    assert table[0] == ["ARM", "THROUGHPUT", "95%", "P", "(HOLM)", "VERDICT"]
    assert [(row[0], row[-1]) for row in table[1:]] == [("B", "AMBIGUOUS"), ("C", "SLOWER")]
    assert "identical plan: the engine runs both alike" in text and "A/A -3." in text and "suspect" in text


def test_void_blocks(path):
    rows = blocks({"A": 10, "B": 9.6}, 9)
    for row in rows:
        row["void"] = "thermal_slowdown" if row["block"] == 4 else None
    text = narrow(compare(path, rows).stdout)
    assert "\nblocks 8 of 12 " in text and "\nblock 4 void: thermal_slowdown\n" in text
    rows[0]["void"] = "daemon_restart"
    text = narrow(compare(path, rows).stdout)
    assert "gpt2d restarted during the experiment" in text and "verdict: AMBIGUOUS" in text


def test_a_restart_between_blocks(path):
    rows = blocks({"A": 10, "B": 9.6})
    for row in rows:
        row["started_at"] = f"2026-01-01T00:00:{row['block']:02d}.000Z"
    for began, spans in (("2026-01-01T00:00:00.500Z", False), ("2026-01-01T00:00:04.500Z", True)):
        text = narrow(compare(path, rows, started_at=began).stdout)
        assert ("gpt2d restarted during the experiment" in text) is spans and "verdict: FASTER" in text


def test_unlike_work(path):
    arms = {"A": {}, "B": {"train_micro_batch_size_per_gpu": 4, "work": {"optimizer_steps": 10}}}
    text = narrow(compare(path, blocks({"A": 10, "B": 9.6}), arms=arms).stdout)
    assert "steps differ: 4 and 8 sequences" in text and "step time" not in text
    assert "unequal work: the arms train differently" in text and "verdict: AMBIGUOUS" in text
    rows = blocks({"A": 10, "B": 9.6})
    for row in rows:
        if row["arm"] == "B":
            row["summary"]["losses"], row["summary"]["loss_hash"] = [5.0, 4.25], "bb"
    assert "unequal work: block 1: losses differ by up to 0.25 (at most 0.001)" in compare(path, rows).stdout
    arms = {"A": {}, "B": {"bf16": {"enabled": True}}}
    text = narrow(compare(path, rows, arms=arms).stdout)
    assert "losses within 0.25" in text and "verdict: FASTER   (the precision differs)\n" in text


def test_fail_if(path):
    rows = blocks({"A": 10, "B": 9.6})
    for rule, code in (("slower>1%", 0), ("faster>1%", 5), ("changed>4.5%", 0), ("faster>1.5%", 5)):
        assert compare(path, rows, "--fail-if", rule).returncode == code, rule
    result = compare(path, blocks({"A": 10, "B": 11}), "--fail-if", "slower>1%")
    assert result.returncode == 5 and "B: throughput -9." in result.stderr
    assert compare(path, blocks({"A": 10, "B": 11}, 3), "--fail-if", "slower>1%").returncode == 14
    for rule in ("slower", "slower>1", "slower>-1%", "quicker>1%", "slower>1%x"):
        assert compare(path, rows, "--fail-if", rule).returncode == 2, rule


def test_tables(path):
    rows = blocks({"A": 10, "B": 9.6})
    table = list(csv.DictReader(io.StringIO(compare(path, rows, "--csv").stdout)))
    assert [(row["arm"], row["verdict"], row["steps_applied"]) for row in table] == [("A", "", "320"), ("B", "FASTER", "320")]
    lines = compare(path, rows, "--md").stdout.splitlines()
    assert lines[0].startswith("| arm | verdict |") and lines[1].startswith("|---|") and lines[3].startswith("| B | FASTER |")
    methods = narrow(compare(path, rows, "--methods").stdout)
    assert "Each of 8 blocks" in methods.replace("\n", " ") and "95% signed-rank interval" in methods


def test_methods_name_what_a_reader_must_know(path):
    """The rule of stopping, the control, arms that failed."""
    rows = blocks({"A": 10, "B": 9.6, "A-aa": 10, "C": 9})
    rows = [row if row["arm"] != "C" else row | {"state": "failed", "summary": None} for row in rows]
    arms = {name: {"zero_optimization": {"reduce_bucket_size": 64 << i}} for i, name in enumerate("ABC")}
    design = {"aa_control": True, "stop_when": {"half_width": 0.002}}
    text = " ".join(narrow(compare(path, rows, "--methods", arms=arms, design=design).stdout).split())
    assert "to stop once the half-width of every interval of the log ratio was at most 0.002, checked after each block from the 8th on." in text
    assert re.search(r"A control, the baseline run once more in each block, differed from it by [+-]\d\.\d\d%\.", text)
    assert "The training of C failed, so it is not compared." in text and "exact 97% signed-rank interval" in text and "2 ranks." in text


def test_two_runs(path):
    show = experiment(segment(1, "A", [10 * MS] * 20))
    with FakeDaemon(path, show=show):
        text = narrow(ctl("compare", 5, 5, path=path).stdout)
        value = one_object(ctl("compare", 5, 5, "--json", path=path).stdout)
        refused = ctl("compare", 5, 5, "--md", path=path)
    assert "one run each: no verdict\n" in text and "verdict:" not in text
    assert value["throughput_percent"] == 0 and len(value["runs"]) == 2 and value["differs"] == []
    assert value["trains_differently"] is False and "for a verdict submit one spec" in text
    assert refused.returncode == 2


@pytest.mark.parametrize("member, line", [("spec", "model.preset: nano, gpt2\n"), ("summary", "the token sequences (hash): dd, ee\n")])
def test_two_runs_that_are_unlike(path, member, line):
    """Another model, other tokens: the ratio of throughputs is printed, and that it is no comparison. Arms are named."""
    shows = {id: experiment(segment(0, "A", [10 * MS] * 20), segment(1, "B", [10 * MS] * 20))(None, None) for id in (5, 6)}
    if member == "summary":
        shows[6]["segments"][0]["summary"]["data_hash"] = "ee"
    else:
        shows[6]["spec"] = {**shows[6]["spec"], "model": {"preset": "gpt2"}}
    with FakeDaemon(path, show=lambda params, connection: shows[params["id"]]):
        text = narrow(ctl("compare", 5, 6, path=path).stdout)
        value = one_object(ctl("compare", 5, 6, "--json", path=path).stdout)
    assert text.startswith("run 5 ab, arm A: ") and line in text.replace('"', "")
    assert text.endswith("one run each: no verdict\nthe runs did not train the same: the change of throughput does not show which\n  one is faster\n")
    assert value["trains_differently"] is True and len(value["differs"]) >= 1


def test_the_machine(path):
    """From the metrics of the first segment that is done."""
    rows = blocks({"A": 10, "B": 9.6})
    rows[0]["dir"] = "/state/runs/5-ab/segments/001-A"
    ranks = [{"rank": 0, "node": 0, "hostname": "node7", "gpu": {"name": "NVIDIA H200", "driver": "570.1"}}]
    metrics = {"host": {"hostname": "node7"}, "env": {"gpt2d_build": "abc", "cuda_version": None, "collectives": "NCCL 2.27"},
        "hardware": {"gpu_name": "NVIDIA H200"}, "gpt2d": {"ranks": ranks}}
    def read(params, connection):
        assert params["path"] == "segments/001-A/training_metrics.json"
        return {"id": 5, "path": params["path"], "offset": 0, "bytes": 1, "size": 1,
            "data": base64.b64encode(json.dumps(metrics).encode()).decode()}
    methods = {"show": experiment(*rows), "artifact-read": read}
    with FakeDaemon(path, **methods):
        text = narrow(ctl("compare", 5, path=path).stdout)
        value = one_object(ctl("compare", 5, "--json", path=path).stdout)
        ranks += [{**ranks[0], "rank": 1, "node": 1, "hostname": "node8", "gpu": {"name": "NVIDIA H200", "driver": "565.9"}},
            {**ranks[0], "rank": 2}]
        several = narrow(ctl("compare", 5, path=path).stdout)
        nodes = one_object(ctl("compare", 5, "--json", path=path).stdout)["machine"]["nodes"]
    assert "scope: this daemon, 2 ranks   node7   NVIDIA H200   build abc   driver 570.1\n  NCCL 2.27\n" in text
    assert value["machine"]["gpu"] == "NVIDIA H200" and len(value["machine"]["nodes"]) == 1
    assert "scope: this daemon, 2 ranks on 2 nodes   node7, node8   NVIDIA H200   build abc\n  driver 570.1, 565.9   NCCL 2.27\n" in several
    assert nodes == [{"host": "node7", "gpu": "NVIDIA H200", "driver": "570.1"},
        {"host": "node8", "gpu": "NVIDIA H200", "driver": "565.9"}]


def test_what_is_missing(path):
    rows = blocks({"A": 10, "B": 9.6}, 2)
    rows[-1] |= {"state": "failed", "summary": None, "reason": "engine_lost: rank 1"}
    failed = compare(path, rows, state="failed", reason="failed: engine_lost")
    assert failed.returncode == 0
    text = narrow(failed.stdout)
    assert "failed: engine_lost\n  segment 8 (" in text and "only finished segments are compared" in text
    rows = [row | {"state": "waiting", "summary": None} for row in rows]
    result = compare(path, rows)
    assert result.returncode == 12 and "nothing to compare yet" in result.stderr
    one = narrow(compare(path, [segment(1, "run", [10 * MS] * 20)]).stdout)
    assert "run 10.0 k tok/s, median 10.0 ms, p95 10.0 ms\n" in one and "\nverdict" not in one
    assert "median 10.0 ms, p95 -\n" in compare(path, [segment(1, "run", [10 * MS] * 19)]).stdout


def slow(rank, ratio):
    return {"rank": rank, "work_mean_s": 0.01 * ratio, "others_median_s": 0.01}


@pytest.mark.parametrize("reported, found, line", [
    ([slow(1, 1.2), slow(1, 1.4), slow(0, 1.3), slow(1, 1.01), slow(1, 1.3)], {"rank": 1, "segments": 3, "of": 5, "work_ratio": 1.3},
        "slow rank: the others wait for rank 1, +30.00% work in a step, in 3 of 5 segments\n"),
    ([slow(1023, 1.06)], {"rank": 1023, "segments": 1, "of": 1, "work_ratio": 1.06},
        "slow rank: the others wait for rank 1023, +6.00% work in a step\n"),
    ([slow(3, 1.5), None, {}], {"rank": 3, "segments": 1, "of": 1, "work_ratio": 1.5},
        "slow rank: the others wait for rank 3, +50.00% work in a step\n"),
    ([slow(1, 1.2), slow(0, 1.2)], None, ""),
    ([slow(0, 1.049)], None, ""),
    ([slow(0, 1.5) | {"parts": 8, "most_in": 5}], None, ""),
    ([slow(0, 1.06) | {"parts": 8, "most_in": 6}], {"rank": 0, "segments": 1, "of": 1, "work_ratio": 1.06},
        "slow rank: the others wait for rank 0, +6.00% work in a step\n"),
    ([None], None, ""),
    ([slow(1024, 2), slow(-1, 2), slow(0, 2) | {"others_median_s": 0}, slow(0, 2) | {"rank": "0"}, 7, "no"], None, ""),
])
def test_a_slow_rank(path, reported, found, line):
    rows = [segment(i, "AB"[i % 2], [1000000] * 20, slowest_rank=value) for i, value in enumerate(reported)]
    with FakeDaemon(path, show=experiment(*rows)):
        value = one_object(ctl("compare", 5, "--json", path=path).stdout)
        texts = [ctl(verb, 5, path=path).stdout for verb in ("compare", "show")]
    assert value["slow_rank"] == (found and found | {"work_ratio": pytest.approx(found["work_ratio"])})
    for text in texts:
        assert text and "".join(x for x in text.splitlines(keepends=True) if x.startswith("slow rank")) == line


def test_losses_of_segments(path):
    """show prints those of the last step and of the validation, and no column for what there is not."""
    ms = 1000000
    rows = [segment(i, "AB"[i], [ms] * 20, loss_last=4.25 - i, val_loss=5.5 + i) for i in range(2)]
    rows += [segment(2, "B", [ms] * 20, loss_last=3.00001, val_loss=6.625), segment(3, "A", [ms] * 20, loss_last=4.25, val_loss=None)]
    rows += [{**segment(4, "A", [ms]), "state": "waiting", "summary": None}]
    with FakeDaemon(path, show=experiment(*rows)):
        text, shown = ctl("compare", 5, path=path).stdout, ctl("show", 5, path=path).stdout
    assert "validation loss B 6.6250\n" in text
    table = [line.split() for line in shown[shown.index("SEGMENT"):].splitlines()[:6]]
    assert table[0][-4:] == ["LOSS", "VAL", "LOSS", "REASON"]
    assert [row[-2:] for row in table[1:]] == [["4.2500", "5.5000"], ["3.2500", "6.5000"], ["3.0000", "6.6250"], ["4.2500", "-"], ["-", "-"]]
    with FakeDaemon(path, show=experiment(segment(0, "A", [ms], loss_last=None, val_loss=None))):
        text, shown = ctl("compare", 5, path=path).stdout, ctl("show", 5, path=path).stdout
    assert "LOSS" not in text + shown and "validation" not in text
