"""Faults of tests/cases.md that show only in the whole of daemon, checker and engine; each test names its case."""

import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import engines
import pytest

from client import ctl
from helpers import ROOT, refusal, spec

HEADER = struct.pack("<3i", 20240520, 1, 4000) + bytes(1012)
GOOD = HEADER + struct.pack("<4000H", *(i % 96 for i in range(4000)))
SPOILT = {
    "other magic": (b"\x01" + GOOD[1:], "magic 20240520 expected"),
    "other version": (GOOD[:4] + b"\x02" + GOOD[5:], "version 1 of the token format expected, 2 found"),
    "header cut": (GOOD[:500], "header of 1024 bytes expected, 500 found"),
    "one byte short": (GOOD[:-1], "9023 bytes, 9024 expected"),
    "one token short": (GOOD[:-2], "9022 bytes, 9024 expected"),
    "a count below zero": (GOOD[:8] + struct.pack("<i", -1) + GOOD[12:], "header says -1 tokens"),
    "a token too large": (GOOD[:-2] + struct.pack("<H", 96), "token 3999 is 96, ids below 96 expected"),
    "gone": (None, "No such file or directory"),
}


def metrics(segment):
    text = (Path(segment["dir"]) / "training_metrics.json").read_text()
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))["gpt2d"]


def trained(c, run):
    done = c.wait(run)
    assert done["state"] == "done", done
    return [metrics(segment) for segment in c.call("show", id=run)["segments"]]


def tree(folder):
    return sorted(str(path) for path in Path(folder).rglob("*"))


def refused(c, run):
    wrong = refusal(c.submit, run)
    return wrong.message


def test_batch_numbers(daemon):
    """A1: three of four batch numbers give the fourth, and all four are reported; impossible ones are refused with the number of ranks."""
    with daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        run = engines.spec(2, train_batch_size=16)
        del run["gradient_accumulation_steps"]
        batch = trained(c, c.submit(run))[0]["batch"]
        assert batch == {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "world": 2,
            "train_batch_size": 16, "seq_len": 16, "tokens_per_step": 256}
        check = c.call("show", id=1)["checks"][0]["check"]["batch"]
        assert check == {key: batch[key] for key in check} and len(check) == 4
        run["train_batch_size"] = 6
        message = refused(c, run)
        for number in ("train_batch_size: 6 ", "train_micro_batch_size_per_gpu 2 ", "1.5 ", "gpus 2"):
            assert number in message, message
        assert "train_batch_size: 16 is not" in refused(c, engines.spec(2, train_batch_size=16))
        assert trained(c, c.submit(engines.spec(2, train_batch_size=8)))
        assert c.call("status")["counts"]["done"] == 2 == len(c.call("list")["runs"])


def test_a_bucket_of_one(daemon):
    """A3: the smallest possible buckets train the same as one bucket."""
    run = engines.spec(2, arms={"one": {"zero_optimization.reduce_bucket_size": 1},
        "all": {"zero_optimization.reduce_bucket_size": 2e8}}, design={"repetitions": 1, "mirrored": False})
    with daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        found = {m["arm"]: m for m in trained(c, c.submit(run))}
        assert found["one"]["losses"] == found["all"]["losses"]
        assert found["one"]["plan"]["n_reduce"] > 1 == found["all"]["plan"]["n_reduce"]
        for bucket in (0, -1, 0.5, True, None, "2e8"):
            assert "zero_optimization.reduce_bucket_size" in refused(c,
                engines.spec(2, zero_optimization={"reduce_bucket_size": bucket}))


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/x", ".", "..", "", "a\nb", "a\0b", "-x", " ", "x" * 65, 5, None])
def test_names_that_lead_out(daemon, name):
    """A8: gpt2d itself refuses them, whatever the client accepted, and creates nothing."""
    with daemon() as d, d.client() as c:
        before = tree(d.home)
        assert ("NUL" if "\0" in str(name) else "name") in refused(c, spec(name))
        arms = {str(name): {}, "other": {"seed": 2}}
        if isinstance(name, str) and "\0" not in name:
            assert "arms" in refused(c, spec(arms=arms, design={"repetitions": 1}))
        assert c.call("list")["runs"] == [] and tree(d.home) == before


@pytest.mark.parametrize("how", SPOILT)
def test_data_that_is_spoilt_while_the_run_waits(daemon, tmp_path, how):
    """B1, B2, B5: the data was valid at the submission; the run fails with the reason, and the next one trains."""
    path = tmp_path / "train.bin"
    path.write_bytes(GOOD)
    content, reason = SPOILT[how]
    other = tmp_path / "other.bin"
    other.write_bytes(GOOD)
    work = {"optimizer_steps": 4, "warmup_steps": 0}
    with daemon(ranks=1, engine=engines.PROGRAM) as d, d.client() as c:
        engine = d.engines()
        first = c.submit(engines.spec(1, work={"optimizer_steps": 1000000, "warmup_steps": 0}))
        second = c.submit(engines.spec(1, data={"train": str(path)}, work=work))
        third = c.submit(engines.spec(1, data={"train": str(other)}, work=work))
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        c.call("cancel", id=first)
        failed = c.wait(second)
        assert failed["state"] == "failed" and str(path) in failed["reason"] and reason in failed["reason"]
        assert not list(Path(failed["dir"]).rglob("RUN_COMPLETE.txt"))
        trained(c, third)
        assert d.engines() == engine


@pytest.mark.parametrize("split", ["train", "val"])
def test_one_token_short(daemon, tmp_path, split):
    """B3: found at the submission, with both numbers; one token more is one batch."""
    needed = 2 * 2 * 16 + 1
    data = {}
    for name in ("train", "val"):
        data[name] = str(tmp_path / f"{name}.bin")
        (tmp_path / f"{name}.bin").write_bytes(bytes(2 * needed))
    with daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        run = engines.spec(2, data=data, gradient_accumulation_steps=1)
        trained(c, c.submit(run))
        Path(data[split]).write_bytes(bytes(2 * (needed - 1)))
        assert f"{data[split]}: {needed - 1} tokens, {needed} needed (2 ranks x 2 x 16 + 1)" in refused(c, run)
        assert len(c.call("list")["runs"]) == 1


def test_the_manuals_token_file(daemon, tmp_path):
    """The example of gpt2d-spec(5) makes a file that a run trains on."""
    page = (ROOT / "proto/gpt2d-spec.5.in").read_text()
    program = re.search(r"made with Python[^\n]*:\n\.Bd -literal.*?\n(.*?)\.Ed", page, flags=re.S)[1]
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    file = tmp_path / "train.bin"
    assert file.stat().st_size == 1024 + 2 * 200000
    run = spec("manual", 1, data={"train": str(file)})
    with daemon(engine=engines.PROGRAM) as d, d.client() as c:
        assert c.wait(c.submit(run))["state"] == "done"
        reported = ctl("submit", "-", "--dry-run", path=d.socket, input=json.dumps(run))
        # 3124 sequences of 64, and the target of the last one
        assert "200,000 tokens, 65 required, 63 left out at the end, epochs " in reported.stdout, reported


def test_rates(daemon):
    """F1, F2, F3: counters match the work; rates follow from them; warm-up is excluded; A and A give the same."""
    run = engines.spec(2, arms={"first": {}, "again": {}}, gradient_accumulation_steps=4,
        design={"repetitions": 1, "mirrored": True})
    with daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        found = trained(c, c.submit(run))
    assert len(found) == 4
    for m in found:
        assert m["tokens_total"] == 12 * 2 * 16 * 4 * 2 and m["tokens_measured"] == m["tokens_total"] * 10 // 12
        assert m["steps"] == {"attempted": 12, "applied": 12, "skipped": 0, "warmup": 2, "measured": 10}
        assert m["tok_s_global"] == pytest.approx(m["tokens_measured"] / m["seconds_measured"], rel=1e-3)
        assert m["tok_s_global"] == m["tok_s_per_gpu"] * 2
        assert max(m["step_time_ns"]) / 1e9 < m["seconds_measured"] <= sum(m["step_time_ns"]) / 1e9
        assert sum(m["phases"].values()) <= m["seconds_measured"] / 10
        assert len(m["step_time_ns"]) == 10
        assert m["mfu"] is None
    assert len({json.dumps(m["losses"]) for m in found}) == 1


def test_a_name_twice(daemon):
    """F7: the second run of a name has another folder; the first one's files stay unchanged."""
    with daemon(ranks=1, engine=engines.PROGRAM) as d, d.client() as c:
        first = c.wait(c.submit(engines.spec(1)))["dir"]
        before = {path: path.read_bytes() for path in Path(first).rglob("*") if path.is_file()}
        second = c.wait(c.submit(engines.spec(1)))["dir"]
        assert second != first and (Path(second) / "RUN_COMPLETE.txt").exists()
        assert before == {path: path.read_bytes() for path in Path(first).rglob("*") if path.is_file()}


def mapped(pid):
    """Libraries for several ranks that a process has loaded."""
    return set(re.findall(r"lib(uc[pst]|nccl|mpi)\b", Path(f"/proc/{pid}/maps").read_text()))


def test_one_rank_loads_nothing_for_several(daemon):
    """k7: with one rank neither UCX nor NCCL nor MPI is loaded, so none of them must be installed."""
    with daemon(ranks=1, engine=engines.PROGRAM) as d, d.client() as c:
        assert c.wait(c.submit(engines.spec(1)))["state"] == "done"
        assert [mapped(pid) for pid in d.engines()] == [set()]
    with daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        assert c.wait(c.submit(engines.spec(2)))["state"] == "done"
        assert all(mapped(pid) >= {"ucp", "ucs"} for pid in d.engines())


def test_what_was_really_used(daemon):
    """k9: the files of a run have the effective buckets, the processes, hosts, libraries and the build."""
    with daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        run = c.submit(engines.spec(2, zero_optimization={"stage": 1, "reduce_bucket_size": 5000}))
        ours, = trained(c, run)
        folder = Path(c.call("show", id=run)["segments"][0]["dir"])
        whole = json.loads((folder / "training_metrics.json").read_text())
        plan = ours["plan"]
        assert plan["asked_reduce_elems"] == 5000 <= plan["reduce_elems"]
        assert plan["n_reduce"] == -(-plan["arena_elems"] // plan["reduce_elems"]) > 1
        assert [rank["pid"] for rank in ours["ranks"]] == d.engines()
        assert {rank["hostname"] for rank in ours["ranks"]} == {os.uname().nodename}
        assert whole["git_commit"] == c.greeting["build"]
        assert os.uname().release in json.dumps(whole["host"]) and "gpt2d_build" in json.dumps(whole)
        launched = json.loads((folder / "launcher_metadata.json").read_text())
        assert launched["git_commit"] == c.greeting["build"] and launched["backend"] == "cpu"
        assert any(name.startswith("UCX_") for name in launched["library_env"])
