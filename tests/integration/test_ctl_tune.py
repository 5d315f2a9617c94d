"""gpt2ctl tune against a scripted gpt2d: rounds of a search, and the confirmation of the winner."""

import json
import random

import pytest

from client import CTL, SPEC, ctl, done, environment, one_object, segment, step
from fake_daemon import FakeDaemon, follow_script, run_object
from terminal import Terminal

MS = 1000000


class Trainer:
    """Trains every experiment at once: an arm's steps take speeds[arm] ms."""

    def __init__(self, speeds):
        self.speeds, self.specs = speeds, []

    def submit(self, params, connection):
        self.specs.append(params["spec"])
        return {"id": len(self.specs), "name": "demo", "state": "queued", "spec_sha256": "ab" * 32, "segments": 1, "position": 0,
            "waiting": None}

    def follow(self, params, connection):
        return {"run": run_object(params["id"], state="done"), "progress": None, "outlook": None, "store": None, "seq": 1, "first": 1}

    def show(self, params, connection):
        spec, rows, seeded = self.specs[params["id"] - 1], [], random.Random(1)
        arms = [*spec["arms"], *(["base-aa"] if spec["design"]["aa_control"] else [])]
        for block in range(1, spec["design"]["repetitions"] + 1):
            for position, arm in enumerate(arms + arms[::-1]):
                times = [int(self.speeds.get(arm, 10) * MS * (1 + seeded.gauss(0, 0.001))) for _ in range(20)]
                rows.append(segment(len(rows), arm, times) | {"block": block, "position": position + 1})
        return {"run": run_object(params["id"], state="done"), "spec": spec, "checks": [], "segments": rows, "transitions": [],
            "progress": None, "outlook": None, "next": None}

    def dry_run(self, params, connection):
        return {"spec": {}, "spec_sha256": "ab" * 32, "segments": 1, "order": [], "arms": [{"arm": "run", "spec_sha256": "ab" * 32,
            "check": {"plan": {"arena_elems": 5000}, "batch": {"world": 2}}}]}

    def daemon(self, path):
        return FakeDaemon(path, submit=self.submit, follow=self.follow, show=self.show, **{"dry-run": self.dry_run})


@pytest.fixture
def spec(tmp_path):
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(SPEC))
    return file


def test_buckets(path, spec):
    """Powers of two from the smallest legal size, halved in each round; the claim is on fresh blocks."""
    trainer = Trainer({"256": 14, "512": 12, "1024": 9.8, "2048": 9.5, "4096": 9.9})
    with trainer.daemon(path):
        result = ctl("tune", spec, "--budget", "10m", path=path)
    assert result.returncode == 0, result
    assert [list(one["arms"]) for one in trainer.specs] == [["base", "256", "512", "1024", "2048", "4096", "8192"],
        ["base", "2048", "1024", "4096"], ["base", "2048", "1024"], ["base", "2048"]]
    assert [one["design"]["repetitions"] for one in trainer.specs] == [1, 2, 4, 40]
    assert [one["design"]["aa_control"] for one in trainer.specs] == [False, False, False, True]
    assert len({one["design"]["seed"] for one in trainer.specs}) == 4
    assert trainer.specs[0]["arms"]["512"]["zero_optimization"] == {"reduce_bucket_size": 512, "allgather_bucket_size": 512}
    assert "run 1: 6 candidates, 1 block\nbest 2048 +5." in result.stdout and "confirmation of 2048 on fresh blocks" in result.stdout
    assert result.stdout.endswith("verdict: FASTER\n")


def test_keys(path, spec):
    trainer = Trainer({"false": 9})
    with trainer.daemon(path):
        value = one_object(ctl("tune", spec, "--budget", "1m", "--keys", "zero_optimization.overlap_comm=false", "--json", path=path).stdout)
    assert value["winner"] == "false" and value["values"] == {"zero_optimization": {"overlap_comm": False}}
    assert [row["best"] for row in value["rounds"]] == ["false"]
    assert [list(one["arms"]) for one in trainer.specs] == [["base", "false"]] * 2
    assert value["confirmation"]["comparisons"][0]["verdict"] == "FASTER"


def test_nothing_is_faster(path, spec):
    trainer = Trainer({"256": 14, "512": 12, "1024": 12, "2048": 12, "4096": 12, "8192": 11})
    with trainer.daemon(path):
        result = ctl("tune", spec, "--budget", "1m", path=path)
    assert result.returncode == 0 and result.stdout.endswith("no candidate was faster than the base in the search: keep the base\n")


def test_progress_on_a_terminal(path, spec):
    trainer = Trainer({"false": 11})

    def follow(params, connection):
        events = [step(10, 1, arm="base", segment=2, segments=4), done(2)]
        return follow_script(run_object(params["id"], state="running"), events)(params, connection)
    trainer.follow = follow
    with trainer.daemon(path), Terminal([str(CTL), "tune", str(spec), "--budget", "1m", "--keys",
            "zero_optimization.overlap_comm=false"], environment(path)) as terminal:
        assert terminal.end() == 0
    assert "run 1: 1 candidate, 1 block" in terminal.seen
    assert "37%" in terminal.seen and "segment 2/4" in terminal.seen and "left" in terminal.seen, terminal.seen


def test_an_unknown_key_is_named_with_its_option(path, spec):
    with FakeDaemon(path):
        result = ctl("tune", spec, "--budget", "1m", "--keys", "sed=1,2", path=path)
        swept = ctl("submit", "-n", spec, "--sweep", "sed=1,2", path=path)
        both = ctl("submit", "-n", spec, "--set", "sed=3", path=path)
    assert result.returncode == 2 and "--keys sed: unknown key; did you mean seed?" in result.stderr
    assert swept.returncode == 2 and "--sweep sed: unknown key; did you mean seed?" in swept.stderr
    assert both.returncode == 2 and "--set sed: unknown key; did you mean seed?" in both.stderr


def test_refused(path, spec, tmp_path):
    arms = tmp_path / "arms.json"
    arms.write_text(json.dumps({**SPEC, "arms": {"a": {}, "b": {"seed": 2}}}))
    with FakeDaemon(path):
        assert "missing --budget" in ctl("tune", spec, path=path).stderr
        assert "--budget: soon: invalid time (expected a number and a unit, as 90s, 10m" in ctl("tune", spec, "--budget", "soon", path=path).stderr
        result = ctl("tune", arms, "--budget", "1m", path=path)
    assert result.returncode == 2 and "tune: the spec has arms" in result.stderr
