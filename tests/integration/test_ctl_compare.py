"""gpt2ctl compare of segments that a scripted daemon shows."""

import pytest

from client import ctl, experiment, one_object, segment
from fake_daemon import FakeDaemon


def test_compare(path):
    ms = 1000000
    show = experiment(segment(0, "A", [10 * ms] * 20, switch_ns=29000 * ms, init_ns=80 * ms), segment(1, "B", [8 * ms] * 19 + [16 * ms]),
        segment(2, "B", [8 * ms] * 20, losses=[5.0, 4.25], loss_hash="bb", switch_ns=2 * ms, init_ns=ms), segment(3, "A", [10 * ms] * 20))
    with FakeDaemon(path, show=show):
        value = one_object(ctl("compare", 5, "--json", path=path).stdout)
        text = ctl("compare", 5, path=path, env={"LC_ALL": "C"})
        unicode_text = ctl("compare", 5, path=path, env={"LC_ALL": "C.UTF-8"}).stdout
        reversed_value = one_object(ctl("compare", 5, "--json", "--baseline", "B", path=path).stdout)
        unknown = ctl("compare", 5, "--baseline", "nothing", path=path)
        near = ctl("compare", 5, "--baseline", "AA", path=path)
    assert unknown.returncode == 2 and near.returncode == 2
    assert unknown.stderr.endswith("unknown arm (expected A, B)\n")
    assert "unknown arm (expected A, B); did you mean A?" in near.stderr
    a, b = value["arms"]
    assert (a["arm"], a["steps"], a["median_ns"], a["p95_ns"], a["low_n"]) == ("A", 40, 10 * ms, 10 * ms, False)
    assert (b["median_ns"], b["p95_ns"]) == (8 * ms, 8 * ms) # rank 38 of 40
    assert a["tok_s"] == pytest.approx(10000) and b["tok_s"] == pytest.approx(4000 / 0.328)
    assert a["switch_mean_ns"] == b["switch_mean_ns"] == 12 * ms and a["init_mean_ns"] == b["init_mean_ns"] == 4 * ms
    assert a["losses_identical"] and not b["losses_identical"] and b["max_loss_diff"] == 0.25
    assert value["equal_tokens"] and value["verdict"] is None
    assert [block["ratios"][0]["tok_s_ratio"] for block in value["blocks"]] == pytest.approx([200 / 168, 1.25])
    assert value["ratios"][0]["tok_s_ratio"] == pytest.approx(0.4 / 0.328)
    assert value["ratios"][0]["step_time_ratio"] == pytest.approx(0.328 / 0.4)
    assert reversed_value["ratios"][0]["arm"] == "A"
    assert text.returncode == 0 and text.stdout.isascii()
    assert "B / A  throughput +21.95%  step time -18.00%" in text.stdout
    assert "#####" in text.stdout
    assert "no verdict: intervals are not computed yet (2 blocks; a verdict needs 8)" in text.stdout
    assert "\u2588" in unicode_text
    assert "SWITCH TO     MEAN  OF WHICH INIT\nA          12.0 ms        4.00 ms\n" in text.stdout
    assert max(len(line) for line in unicode_text.splitlines()) <= 80
    assert "skipped" not in text.stdout


def slow(rank, ratio):
    return {"rank": rank, "work_mean_s": 0.01 * ratio, "others_median_s": 0.01}


@pytest.mark.parametrize("told, found, line", [
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
def test_a_slow_rank(path, told, found, line):
    rows = [segment(i, "AB"[i % 2], [1000000] * 20, slowest_rank=value) for i, value in enumerate(told)]
    with FakeDaemon(path, show=experiment(*rows)):
        value = one_object(ctl("compare", 5, "--json", path=path).stdout)
        texts = [ctl(verb, 5, path=path).stdout for verb in ("compare", "show")]
    assert value["slow_rank"] == (found and found | {"work_ratio": pytest.approx(found["work_ratio"])})
    for text in texts:
        assert text and "".join(x for x in text.splitlines(keepends=True) if x.startswith("slow rank")) == line


def test_compare_of_arms_with_unequal_batches(path):
    """The same tokens in fewer, longer steps: tokens are those trained, step time is of steps."""
    ms = 1000000
    def a(number, **more):
        return segment(number, "A", [10 * ms] * 15, tokens_measured=1500, tokens_total=2000, steps_attempted=20, **more)
    def b(number, **more):
        return segment(number, "B", [20 * ms] * 4, tokens_measured=1600, tokens_total=2000, steps_attempted=5, **more)
    for more in ({}, {"step_time_ns": None, "step_median_ns": 1, "step_p95_ns": None}):
        with FakeDaemon(path, show=experiment(a(0, **more), b(1, **more))):
            value = one_object(ctl("compare", 5, "--json", path=path).stdout)
            text = ctl("compare", 5, path=path).stdout
        ratio = value["ratios"][0]
        assert value["equal_tokens"] and [arm["tokens_total"] for arm in value["arms"]] == [2000, 2000]
        assert [arm["tokens"] for arm in value["arms"]] == [1500, 1600] and "tokens: equal, 2,000 per arm\n" in text
        assert ratio["step_time_ratio"] == pytest.approx(2) and ratio["tok_s_ratio"] == pytest.approx(20000 / 10000)
        assert "B / A  throughput +100.00%  step time +100.00%" in text


def test_compare_of_steps_that_are_not_listed(path):
    """A long segment's steps are not in its summary: its own percentiles are, and no list's."""
    long = {"step_time_ns": None, "losses": None, "step_median_ns": 777, "step_p95_ns": 999, "steps_skipped": 2}
    with FakeDaemon(path, show=experiment(segment(0, "A", [1000], **long))):
        one = one_object(ctl("compare", 5, "--json", path=path).stdout)["arms"][0]
        text = ctl("compare", 5, path=path).stdout
    with FakeDaemon(path, show=experiment(segment(0, "A", [1000], **long), segment(1, "A", [1000]))):
        two = one_object(ctl("compare", 5, "--json", path=path).stdout)["arms"][0]
    assert (one["steps"], one["median_ns"], one["p95_ns"], one["low_n"]) == (None, 777, 999, False)
    assert one["exposed_comm_mean_s"] == pytest.approx(1e-4) and one["losses_identical"]
    assert (two["steps"], two["median_ns"], two["p95_ns"]) == (None, None, None)
    assert "skipped steps: A 2" in text


def test_losses_at_the_end(path):
    """Of the last step and of the validation, in show by the segment, in compare by the arm; no column of what there is not."""
    ms = 1000000
    rows = [segment(i, "AB"[i], [ms] * 20, loss_last=4.25 - i, val_loss=5.5 + i) for i in range(2)]
    rows += [segment(2, "B", [ms] * 20, loss_last=3.00001, val_loss=6.625), segment(3, "A", [ms] * 20, loss_last=4.25, val_loss=None)]
    rows += [{**segment(4, "A", [ms]), "state": "waiting", "summary": None}]
    with FakeDaemon(path, show=experiment(*rows)):
        value = one_object(ctl("compare", 5, "--json", path=path).stdout)
        text, shown = ctl("compare", 5, path=path).stdout, ctl("show", 5, path=path).stdout
    assert [arm["losses"] for arm in value["arms"]] == [
        [{"segment": 1, "loss_last": 4.25, "val_loss": 5.5}, {"segment": 4, "loss_last": 4.25, "val_loss": None}],
        [{"segment": 2, "loss_last": 3.25, "val_loss": 6.5}, {"segment": 3, "loss_last": 3.00001, "val_loss": 6.625}]]
    assert ("\nLOSS AT THE END          TRAINING        VALIDATION\n"
        "A                          4.2500                 -\nB                3.0000 to 3.2500  6.5000 to 6.6250\n\n") in text
    table = [line.split() for line in shown[shown.index("SEGMENT"):].splitlines()[:6]]
    assert table[0][-4:] == ["LOSS", "VAL", "LOSS", "REASON"]
    assert [row[-2:] for row in table[1:]] == [["4.2500", "5.5000"], ["3.2500", "6.5000"], ["3.0000", "6.6250"], ["4.2500", "-"], ["-", "-"]]
    with FakeDaemon(path, show=experiment(segment(0, "A", [ms], loss_last=2.5, val_loss=None))):
        text, shown = ctl("compare", 5, path=path).stdout, ctl("show", 5, path=path).stdout
    assert "\nLOSS AT THE END  TRAINING\nA                  2.5000\n" in text and "VAL" not in text + shown
    assert "  LOSS  REASON\n" in shown
    with FakeDaemon(path, show=experiment(segment(0, "A", [ms], loss_last=None, val_loss=None))):
        text, shown = ctl("compare", 5, path=path).stdout, ctl("show", 5, path=path).stdout
    assert "LOSS" not in text + shown


def test_tokens_of_what_is_not_done_yet(path):
    """Arms with more segments done have trained more, and yet nothing is unequal, unless a segment is."""
    def of(number, arm, tokens=2000, state="done"):
        made = segment(number, arm, [1000000] * 20, tokens_total=tokens)
        return made if state == "done" else {**made, "state": state, "summary": None}
    begun = [of(0, "A"), of(1, "B"), of(2, "B")]
    for rest, said in (([of(3, "A", state="failed"), of(4, "C", state="skipped")],
            "tokens: equal, 2,000 per segment; segments done: A 1, B 2, C 0\n"),
            ([of(3, "A", state="waiting"), of(4, "C", 1000)], "tokens: NOT equal: A 2,000, B 4,000, C 1,000\n"),
            ([of(3, "A", 2001), of(4, "C", state="waiting")], "tokens: NOT equal: A 4,001, B 4,000, C 0\n"), ([], "tokens: NOT equal: A 2,000, B 4,000\n")):
        with FakeDaemon(path, show=experiment(*begun, *rest)):
            text = ctl("compare", 5, path=path).stdout
            value = one_object(ctl("compare", 5, "--json", path=path).stdout)
        assert said in text and value["equal_tokens"] is False, text


def test_compare_counts_whole_blocks_of_a_mirrored_design(path):
    """A B of A B B A is half a block: it has no ratio, whatever became of the rest, and does not count for a verdict."""
    def of_block(number, arm, block, state="done"):
        made = {**segment(number, arm, [1000 * (number + 1)] * 20), "block": block, "state": state}
        return made if state == "done" else {**made, "summary": None}

    whole = [of_block(number, arm, 0) for number, arm in enumerate("ABBA")]
    for state in ("waiting", "failed", "skipped"):
        for begun in ("B", "BA", "BAA"):
            half = [of_block(4 + number, arm, 1, "done" if number < len(begun) else state) for number, arm in enumerate("BAAB")]
            with FakeDaemon(path, show=experiment(*whole, *half)):
                value = one_object(ctl("compare", 5, "--json", path=path).stdout)
                text = ctl("compare", 5, path=path).stdout
            assert [len(block["ratios"]) for block in value["blocks"]] == [1, 0] and value["ratios"][0]["blocks"] == 1
            assert "(1 block; a verdict needs 8)" in text and "throughput in 1 block" in text
    rest = [of_block(4 + number, arm, 1, "waiting") for number, arm in enumerate("BAAB")]
    with FakeDaemon(path, show=experiment(*whole, *rest)):
        assert len(one_object(ctl("compare", 5, "--json", path=path).stdout)["blocks"]) == 1


def test_compare_is_honest_about_what_is_missing(path):
    failed = {**segment(3, "B", [5]), "state": "failed", "summary": None}
    unequal = segment(1, "B", [2000], tokens_measured=77, losses=[None, 1.0], loss_hash="cc")
    with FakeDaemon(path, show=experiment(segment(0, "A", [1000]), unequal, segment(2, "A", [1000]), failed)):
        value = one_object(ctl("compare", 5, "--json", path=path).stdout)
        text = ctl("compare", 5, path=path).stdout
    assert value["segments_left_out"] == 1 and not value["equal_tokens"]
    assert value["arms"][0]["p95_ns"] is None and value["arms"][0]["low_n"]
    assert value["arms"][1]["max_loss_diff"] is None
    assert value["ratios"][0]["blocks"] == 1 and value["blocks"][1]["ratios"] == []
    assert "NOT equal" in text and "n<20" in text and "not comparable" in text
    with FakeDaemon(path, show=experiment(failed)):
        result = ctl("compare", 5, path=path)
    assert result.returncode == 12 and "nothing to compare yet" in result.stderr
