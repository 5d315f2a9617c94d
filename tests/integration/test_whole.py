"""gpt2d with the real engine: behaviour of both together."""

import json
import re
from pathlib import Path

import pytest

import engines
from helpers import RpcError


def shown_done(c, run):
    """The reply to "show" of a run that is done."""
    done = c.wait(run)
    assert done["state"] == "done", done
    return c.call("show", id=run)


def metrics(segment):
    return json.loads((Path(segment["dir"]) / "training_metrics.json").read_text())["gpt2d"]


def test_arms_of_different_worlds(daemon):
    """gpus may differ between arms like any key: each segment runs on its own arm's ranks."""
    run = engines.spec(2, gpus=1, train_micro_batch_size_per_gpu=4, arms={
        "one": {}, "two": {"gpus": 2, "train_micro_batch_size_per_gpu": 2},
    }, design={"repetitions": 2, "aa_control": False})
    with daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        segments = shown_done(c, c.submit(run))["segments"]
        worlds = {segment["arm"]: metrics(segment)["world"] for segment in segments}
        losses = {segment["arm"]: metrics(segment)["losses"] for segment in segments}
    assert len(segments) == 8 and worlds == {"one": 1, "two": 2}
    assert max(abs(a - b) for a, b in zip(losses["one"], losses["two"])) < 1e-5


def test_data_that_is_replaced_between_segments(daemon, tmp_path):
    """By another file with its name, which becomes new data for the next run; arms have different files."""
    files = {name: tmp_path / f"{name}.bin" for name in ("one", "two", "new")}
    for name, file in files.items():
        file.write_bytes(b"\x01\x00\x02\x00" * (3000 if name == "new" else 4000))
    run = engines.spec(1, data={"train": str(files["one"])}, arms={
        "one": {}, "two": {"data": {"train": str(files["two"])}},
    }, design={"repetitions": 100}, work={"optimizer_steps": 12})
    short = {**run, "design": {"repetitions": 2}}
    with daemon(ranks=1, engine=engines.PROGRAM) as d, d.client() as c:
        shown_done(c, c.submit(short))
        id = c.submit(run)
        c.call("follow", id=id, after=0)
        while c.event()["params"].get("segment") != 3:
            pass
        files["new"].rename(files["two"])
        while (event := c.event())["method"] != "run.done":
            pass
        end = event["params"]
        failed = [s for s in c.call("show", id=id)["segments"] if s["state"] == "failed"]
        assert end["state"] == "failed"
        assert end["reason"].startswith(f"arm_failed: two: data: rank 0: {files['two']}: not the file of the run's first "
            "segments: 16000 bytes")
        assert [segment["arm"] for segment in failed] == ["two"]
        shown_done(c, c.submit(short))  # each run has its own


def test_recomputed_activations_are_the_same_training(daemon):
    """Arms that keep all activations, some, or only the blocks' inputs: one loss trace, less memory."""
    settings = ["none", "selective", "full"]
    model = {"n_layer": 4, "n_head": 2, "n_embd": 32, "vocab_size": 96, "n_positions": 32, "dropout": 0.1}
    run = engines.spec(2, model=model, arms={s: {"activation_checkpointing": s} for s in settings},
        design={"repetitions": 2, "aa_control": False})
    with daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        planned = {arm["arm"]: arm["check"]["memory"] for arm in c.call("dry-run", spec=run)["arms"]}
        segments = shown_done(c, c.submit(run))["segments"]
        taken = {segment["arm"]: metrics(segment)["memory"] for segment in segments}
        losses = {segment["arm"]: metrics(segment)["losses"] for segment in segments}
        hashes = {segment["summary"]["loss_hash"] for segment in segments}
    assert len(hashes) == 1 and len(segments) == 12
    assert losses["none"] == losses["selective"] == losses["full"]
    for setting in settings:
        assert taken[setting]["activation_checkpointing"] == planned[setting]["activation_checkpointing"] == setting
        for key in ("activations_bytes", "logits_bytes"):
            assert taken[setting][key] == planned[setting][key] > 0
        assert planned["none"][f"activations_{setting}_bytes"] == planned[setting]["activations_bytes"]
    assert taken["full"]["device_bytes"] < taken["selective"]["device_bytes"] < taken["none"]["device_bytes"]


def test_a_refusal_for_memory_names_what_would_fit(daemon):
    """As many sequences as fit only with little kept, and do not fit with everything kept."""
    model = {"n_layer": 40, "n_head": 2, "n_embd": 128, "vocab_size": 96, "n_positions": 32}
    run = engines.spec(1, model=model, data={"kind": "synthetic", "synthetic_tokens": 2**40}, gradient_accumulation_steps=1)
    with daemon(ranks=1, engine=engines.PROGRAM) as d, d.client() as c:
        memory = c.call("dry-run", spec=run)["arms"][0]["check"]["memory"]
        per_sequence = memory["activations_selective_bytes"] / run["train_micro_batch_size_per_gpu"]
        run["train_micro_batch_size_per_gpu"] = int(memory["available_bytes"] / per_sequence) + 1
        with pytest.raises(RpcError) as refused:
            c.submit(run)
        assert not c.call("list")["runs"]
        run["activation_checkpointing"] = "full"
        memory = c.call("dry-run", spec=run)["arms"][0]["check"]["memory"]
    error = refused.value.data["errors"][0]
    assert error["key"] == "train_micro_batch_size_per_gpu"
    assert re.search(r"^memory: [\d.]+ [GT]B planned.*, [\d.]+ GB available", error["message"]), error
    assert "; largest of a rank: activations, " in error["message"]
    size, unit = re.search(r"; with activation_checkpointing full ([\d.]+) ([MG])B$", error["message"]).groups()
    assert float(size) * {"M": 1e6, "G": 1e9}[unit] == pytest.approx(memory["planned_bytes"], rel=0.006)
    assert memory["planned_bytes"] < memory["available_bytes"]
