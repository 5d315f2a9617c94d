"""gpt2d with the real engine: what only the two of them together can show."""

import json
from pathlib import Path

import engines


def shown_done(c, run):
    """What "show" says of a run that has ended well."""
    done = c.wait(run)
    assert done["state"] == "done", done
    return c.call("show", id=run)


def metrics(segment):
    return json.loads((Path(segment["dir"]) / "training_metrics.json").read_text())["gpt2d"]


def test_arms_of_different_worlds(daemon):
    """gpus may differ between arms like any key: each segment runs on its own arm's ranks."""
    run = engines.spec(2, gpus=1, train_micro_batch_size_per_gpu=4, arms={
        "one": {}, "two": {"gpus": 2, "train_micro_batch_size_per_gpu": 2},
    }, design={"repetitions": 2})
    with daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        segments = shown_done(c, c.submit(run))["segments"]
        worlds = {segment["arm"]: metrics(segment)["world"] for segment in segments}
        losses = {segment["arm"]: metrics(segment)["losses"] for segment in segments}
    assert len(segments) == 8 and worlds == {"one": 1, "two": 2}
    assert max(abs(a - b) for a, b in zip(losses["one"], losses["two"])) < 1e-5
