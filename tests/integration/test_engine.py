"""The engine alone, as gpt2d drives it: segments, artifacts, warmth, ends."""

import json

import pytest

from engines import PROGRAM, Ranks, spec

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="no engine was built")


def metrics(directory):
    return json.loads((directory / "training_metrics.json").read_text())


@pytest.fixture
def folders(tmp_path):
    """A new directory at each call."""
    made = iter(range(1000))

    def make():
        path = tmp_path / f"segment{next(made)}"
        path.mkdir()
        return path
    return make


@pytest.mark.parametrize("world", [1, 2])
def test_a_segment_from_start_to_done(world, folders):
    directory = folders()
    with Ranks(world) as ranks:
        summary, steps = ranks.train(spec(world), directory)
        order = [name for name, _ in ranks[0].messages if name.startswith("segment.") and name != "segment.step"]
        for rank in ranks:
            rank.send("engine.exit")
        assert [rank.end() for rank in ranks] == [0] * world
    assert summary["steps_applied"] == 12 and steps[-1]["step"] == 12
    assert order[0] == "segment.started" and order[1] == "segment.trained" and order[-1] == "segment.done"
    assert order[2:-1] == ["segment.artifact"] * 6
    losses = metrics(directory)["gpt2d"]["losses"]
    assert len(losses) == 12 and losses[-1] < losses[0]
    assert (directory / "RUN_COMPLETE.txt").exists()


@pytest.mark.parametrize("world", [1, 2])
def test_warm_segments_repeat_bit_for_bit(world, folders):
    """A, B (of other sizes and seed), A: the two A's are one."""
    a = spec(world)
    b = spec(world, seed=5, seq_len=32, gradient_accumulation_steps=1, zero_optimization={"stage": 0})
    with Ranks(world) as ranks:
        hashes = [ranks.train(s, folders())[0]["loss_hash"] for s in (a, b, a)]
        started = ranks[0].all("segment.started")
    assert hashes[0] == hashes[2] != hashes[1]
    assert "switch_ns" not in started[0] and started[1]["switch_ns"] >= started[1]["init_ns"] > 0


def test_fewer_ranks_than_there_are(folders):
    with Ranks(2) as ranks:
        alone, _ = ranks.train(spec(1), folders(), world=1)
        ranks.train(spec(2), folders())
        again, _ = ranks.train(spec(1), folders(), world=1)
    with Ranks(1) as ranks:
        other, _ = ranks.train(spec(1), folders())
    assert alone["loss_hash"] == again["loss_hash"] == other["loss_hash"]
