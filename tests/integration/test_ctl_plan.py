"""gpt2ctl plan: a predicted step on several nodes, without a gpt2d."""

import json

import pytest

from client import ctl, one_object

NETWORK = {"within": {"alpha_us": 3.4, "gb_s": 319}, "between": {"alpha_us": 9.6, "gb_s": 340}}
SPEC = {"name": "plan", "model": {"preset": "gpt2"}, "data": {"kind": "synthetic", "synthetic_tokens": 100000000},
    "seq_len": 1024, "train_micro_batch_size_per_gpu": 64, "bf16": {"enabled": True},
    "zero_optimization": {"stage": 1, "reduce_bucket_size": 2.5e7, "allgather_bucket_size": 2.5e7},
    "work": {"optimizer_steps": 10}}


def plan(folder, *args, network=NETWORK, **spec):
    (folder / "network.json").write_text(network if isinstance(network, str) else json.dumps(network))
    (folder / "spec.json").write_text(json.dumps({**SPEC, **spec}))
    return ctl("plan", "spec.json", *args, "--network", "network.json", cwd=folder)


def test_prediction(tmp_path):
    value = one_object(plan(tmp_path, "--nodes", 8, "--compute-ms", 99.2, "--json").stdout)
    assert (value["nodes"], value["ranks_per_node"], value["parameters"]) == (8, 8, 124439808)
    assert value["network"] == NETWORK and value["compute_ms"] == 99.2 and not value["compute_estimated"] and value["compute_error"] == 0.03
    rows = value["rows"]
    assert rows[0]["of_spec"] and rows[0]["bucket_size"] == 25000000 and rows[0]["reduce_buckets"] == 5
    assert len({row["reduce_buckets"] for row in rows}) == len(rows) > 5
    for row in rows:
        assert row["exposed_low_ms"] <= row["exposed_ms"] <= row["exposed_high_ms"]
        assert row["step_low_ms"] <= row["step_ms"] <= row["step_high_ms"]
        assert row["exposed_ms"] <= row["communication_ms"]
    best = min(rows, key=lambda row: row["step_ms"])
    assert value["fastest"] == best["bucket_size"]


def test_text_says_what_is_assumed(tmp_path):
    text = plan(tmp_path, "--nodes", 2, "--ranks-per-node", 4, "--set", "model.dropout=0.1").stdout
    assert text.startswith("predicted, not measured: 2 nodes of 4 GPUs, 124 M parameters\n")
    assert "+-15% (estimated)" in text and "spec: 25,000,000" in text and "assumptions:" in text
    assert "Dropout is not in the estimate" in text and max(map(len, text.split("assumptions:")[1].splitlines())) <= 80
    assert "Dropout" not in plan(tmp_path, "--nodes", 2, "--compute-ms", 5).stdout


def test_one_rank_does_not_communicate(tmp_path):
    value = one_object(plan(tmp_path, "--nodes", 1, "--ranks-per-node", 1, "--json").stdout)
    assert all(row["communication_ms"] == 0 and row["gather_buckets"] == 0 for row in value["rows"])


@pytest.mark.parametrize("args, more, message", [
    ([], {}, "plan: missing option --nodes"),
    (["--nodes", "512"], {}, "plan: 4096 ranks are too many (at most 1024)"),
    (["--nodes", "2"], {"gpus": 4}, "plan: the spec has gpus 4 (expected 16, 2 nodes of 8)"),
    (["--nodes", "2"], {"zero_optimization": {"stage": 2}}, "plan: zero_optimization.stage 2: no model for it"),
    (["--nodes", "2"], {"seq_len": 0}, "seq_len: 0 is not allowed"),
    (["--nodes", "2"], {"network": {"within": NETWORK["within"]}}, "network.json: between: missing"),
    (["--nodes", "2"], {"network": {**NETWORK, "between": {"alpha_us": 1, "gb_s": 0}}},
        "network.json: between.gb_s: invalid (expected a number from 1e-6 to 1e6)"),
    (["--nodes", "2"], {"network": {**NETWORK, "beside": 1}},
        "network.json: beside: unknown key (expected within and between)"),
    (["--nodes", "2"], {"network": "{"}, "network.json:1: "),
])
def test_refusals(tmp_path, args, more, message):
    result = plan(tmp_path, *args, **more)
    assert result.returncode == 2 and message in result.stderr and result.stdout == ""


def test_no_network_file(tmp_path):
    result = ctl("plan", "spec.json", "--nodes", 2, "--network", "absent.json", cwd=tmp_path)
    assert result.returncode == 2 and "absent.json" in result.stderr
