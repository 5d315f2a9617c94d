"""Checkpoints of whole daemons with real engines: resumed, restarted, damaged, without room."""

import array
import csv
import errno
import hashlib
import json
from pathlib import Path

import pytest

from client import ctl
from engines import PROGRAM
from faults import FAIL, KILL, LIBRARY, NEEDS_ROOM, Faults, sample
from helpers import Daemon, RpcError, refusal, spec, wait_for

STEPS, SAVED = 10, 5
SECTIONS = ("master", "m", "v")


def training(name, steps=STEPS, **more):
    """With dropout, whose masks are those of the micro-batch, accumulation, and a learning rate that changes."""
    return spec(name, steps, **{"model": {"preset": "nano", "dropout": 0.1}, "seq_len": 32, "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": None,
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 3, "total_num_steps": 20}}, **more})


def clean(run):
    return {key: value for key, value in run.items() if value is not None}


def finish(c, run):
    """The run's row and its only segment's summary; it is done."""
    number = c.submit(clean(run))
    end = c.wait(number)
    assert end["state"] == "done", end
    show = c.call("show", id=number)
    return show["run"], show["segments"][0]["summary"]


def rows(run):
    with open(Path(run["dir"]) / "step_log.csv", newline="") as f:
        return list(csv.DictReader(f))


def steps_in(folder):
    """The checkpoints in it, whole or not at all."""
    found = {}
    for path in Path(folder).glob("step-*"):
        if (path / "manifest.json").exists():
            manifest = json.loads((path / "manifest.json").read_text())
            check_whole(path, manifest)
            found[manifest["step"]] = manifest
    return found


def check_whole(path, manifest):
    """Shards have their hashes, and cover each element once."""
    seen = []
    for shard in manifest["shards"]:
        data = (path / shard["file"]).read_bytes()
        size = len(data) // 3
        assert len(data) == shard["bytes"] == 12 * sum(n for _, n in shard["ranges"])
        for i, name in enumerate(SECTIONS):
            assert hashlib.sha256(data[i * size:(i + 1) * size]).hexdigest() == shard["sha256"][name]
        seen += shard["ranges"]
    end = 0
    for first, n in sorted(seen):
        assert first == end
        end += n
    assert end == manifest["param_elems"]


def flip(path):
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("ranks, stage", [(1, 0), (2, 0), (2, 1)])
def test_five_and_five_are_ten(ranks, stage):
    zero = {"stage": stage, "reduce_bucket_size": 100000}
    with Daemon(ranks=2, engine=PROGRAM) as d, d.client() as c:
        _, whole = finish(c, training("whole", gpus=ranks, zero_optimization=zero))
        first, half = finish(c, training("half", SAVED, gpus=ranks, zero_optimization=zero, checkpoint={"at_end": True}))
        assert half["checkpoints"]["written"] == 1 and half["checkpoints"]["last_step"] == SAVED
        assert list(steps_in(first["dir"] + "/checkpoints")) == [SAVED]
        rest, summary = finish(c, training("rest", gpus=ranks, zero_optimization=zero, resume_from=first["id"]))
        assert summary["steps_before"] == SAVED and summary["steps_attempted"] == STEPS - SAVED
        assert half["losses"] + summary["losses"] == whole["losses"]
        assert [int(row["global_step"]) for row in rows(rest)] == list(range(SAVED + 1, STEPS + 1))
        # other ranks, another stage and other buckets: the same within the order of sums, at the same rates
        other = training("other", gpus=3 - ranks, resume_from=first["dir"] + "/checkpoints",
            zero_optimization={"stage": 1 - stage, "reduce_bucket_size": 5000})
        run, summary = finish(c, other)
        assert summary["losses"] == pytest.approx(whole["losses"][SAVED:], rel=1e-5)
        assert [row["lr"] for row in rows(run)] == [row["lr"] for row in rows(rest)]


def test_every_few_steps_and_the_last_ones_stay():
    with Daemon(ranks=2, engine=PROGRAM) as d, d.client() as c:
        _, whole = finish(c, training("whole"))
        run, summary = finish(c, training("often", checkpoint={"every_steps": 3, "keep_last": 2}))
        assert summary["losses"] == whole["losses"]  # writing changes nothing
        assert sorted(steps_in(run["dir"] + "/checkpoints")) == [6, 9]
        assert summary["checkpoints"]["written"] == 3 and summary["checkpoints"]["lost"] == 0
        saving = [int(row["saving"]) for row in rows(run)]
        assert saving[3] == 1 and saving[0:3] == [0, 0, 0]
        if sum(saving) < STEPS:
            assert summary["checkpoints"]["steps_left_out"] == sum(saving)
        # files of a checkpoint are no artifacts
        listed = c.call("artifacts", id=run["id"])["files"]
        assert listed and not [entry for entry in listed if "checkpoint" in entry["path"]]
        with pytest.raises(RpcError, match="is part of a checkpoint"):
            c.call("artifact-read", id=run["id"], path="checkpoints/step-9/manifest.json")
        last, = finish(c, training("on", 12, resume_from=run["dir"]))[:1]  # the folder of a run
        assert [int(row["global_step"]) for row in rows(last)] == [10, 11, 12]
        assert c.call("prune", keep=0)["runs"]
        assert not Path(run["dir"]).exists()


def test_prune_leaves_what_a_queued_run_resumes(tmp_path):
    with Daemon(ranks=1, engine=PROGRAM) as d, d.client() as c:
        for name in ("first", "second"):
            finish(c, training(name, SAVED, checkpoint={"at_end": True}))
        c.call("drain")
        arms = {"arms": {"scratch": {}, "resumed": {"resume_from": 1}}, "design": {"repetitions": 1, "aa_control": False}}
        number = c.submit(clean(training("rest", resume_from=1)))
        assert [run["id"] for run in c.call("prune", keep=0)["runs"]] == [2]
        c.call("resume")
        assert c.wait(number)["state"] == "done"
        c.call("drain")
        number = c.submit(clean(training("arms", **arms)))
        assert [run["id"] for run in c.call("prune", keep=0)["runs"]] == [3]
        c.call("cancel", id=number)
        assert 1 in [run["id"] for run in c.call("prune", keep=0)["runs"]]


def long_run(name, **more):
    return training(name, 120, checkpoint={"every_steps": 10, "keep_last": 3}, restart=True, **more)


def interrupted(d, number, run_name):
    """gpt2d dies once two checkpoints are there."""
    folder = d.state / "runs" / f"{number}-{run_name}" / "checkpoints"
    wait_for(lambda: len(list(folder.glob("step-*/manifest.json"))) >= 2, "two checkpoints")
    d.kill()
    return folder


@pytest.mark.parametrize("damage", [False, True])
def test_a_restart_resumes_the_last_good_one(damage):
    with Daemon(ranks=2, engine=PROGRAM) as d:
        with d.client() as c:
            _, whole = finish(c, training("whole", 120))
            number = c.submit(clean(long_run("long")))
        folder = interrupted(d, number, "long")
        there = sorted(steps_in(folder))
        if damage:
            flip(folder / f"step-{there[-1]}" / "shard-1-of-2.bin")
        d.start()
        with d.client() as c:
            assert c.wait(number)["state"] == "done", d.said()
            show = c.call("show", id=number)
            summary = show["segments"][0]["summary"]
            from_step = there[-2] if damage else there[-1]
            assert show["run"]["attempt"] == 2 and summary["steps_before"] == from_step, d.said()
            assert summary["losses"] == whole["losses"][from_step:]
            assert f"resumed from {folder}/step-{from_step} " in d.said()
            if damage:
                assert f"step-{there[-1]}/shard-1-of-2.bin: damaged: " in d.said()
            # those of the attempt before count for keep_last
            assert sorted(steps_in(show["run"]["dir"] + "/checkpoints")) == [100, 110, 120]
            assert not list(folder.glob("step-*"))


@pytest.mark.parametrize("same", [True, False])
def test_a_restart_notices_other_data(same, tmp_path):
    """A file of the same length takes the place of data.train: with the same tokens, or with others."""
    def put(factor):
        (tmp_path / "new").write_bytes(array.array("H", [factor * i % 257 for i in range(4000)]).tobytes())
        (tmp_path / "new").rename(tmp_path / "train.bin")
    put(7)
    data = {"train": str(tmp_path / "train.bin")}
    with Daemon(ranks=2, engine=PROGRAM) as d:
        with d.client() as c:
            finish(c, training("hashed", SAVED, data=data))  # so that the hash is known
            number = c.submit(clean(long_run("long", data=data)))
        folder = interrupted(d, number, "long")
        put(7 if same else 11)
        d.start()
        with d.client() as c:
            end = c.wait(number)
            last = f"{folder}/step-{max(steps_in(folder) or [0])}"
            if same:
                assert end["state"] == "done" and f"resumed from {folder}/step-" in d.said(), d.said()
                return
            assert end["state"] == "failed" and end["reason"].startswith(
                f"data: rank 0: {last} was written while training on other data (SHA-256 "), end
            assert f'submit the spec again with "resume_from": {number}' in end["reason"], end
            rest, _ = finish(c, training("rest", 120, data=data, resume_from=number))
            assert f"run {rest['id']}: {last} was written while training on other data (SHA-256 " in d.said()
            assert f"run {rest['id']}: resumed from {last} " in d.said()


def test_a_run_of_which_all_is_trained_does_not_begin_again():
    """gpt2d dies in the validation after the last step, and the only checkpoint is that of the last step."""
    with Daemon(ranks=2, engine=PROGRAM) as d:
        with d.client() as c:
            number = c.submit(clean(training("trained", checkpoint={"at_end": True}, restart=True,
                work={"optimizer_steps": STEPS, "warmup_steps": 0, "validation_steps": 10**5})))
        folder = d.state / "runs" / f"{number}-trained" / "checkpoints"
        wait_for((folder / f"step-{STEPS}" / "manifest.json").exists, "the checkpoint of the last step")
        d.kill()
        d.start()
        with d.client() as c:
            end = c.wait(number)
            assert end["state"] == "failed" and "nothing left to train" in end["reason"], end
        assert list(steps_in(folder)) == [STEPS]


def test_a_stop_of_gpt2d_saves_and_a_cancel_does_not():
    with Daemon(ranks=2, engine=PROGRAM) as d:
        saves = {"checkpoint": {"every_steps": 100000, "at_end": True}, "restart": True}
        with d.client() as c:
            for name in ("cancelled", "stopped"):
                number = c.submit(clean(training(name, 10**5, **saves)))
                c.call("follow", id=number)
                while c.event()["method"] != "run.step":
                    pass
                if name == "cancelled":
                    c.call("cancel", id=number)
                    assert c.followed(number)[-1]["params"]["state"] == "cancelled"
        assert d.stop() == 0
        runs = d.state / "runs"
        assert not steps_in(runs / "1-cancelled" / "checkpoints")
        (step, manifest), = steps_in(runs / "2-stopped" / "checkpoints").items()
        assert manifest["state"]["attempted"] == step > 0
        d.start()
        with d.client() as c:
            wait_for(lambda: f"resumed from {runs}/2-stopped/checkpoints/step-{step} " in d.said(), "the run's restart")
            c.call("cancel", id=2)
            assert c.wait(2)["state"] == "cancelled"


def test_what_cannot_be_resumed_is_refused():
    with Daemon(ranks=2, engine=PROGRAM) as d, d.client() as c:
        none, _ = finish(c, training("none", SAVED))
        first, _ = finish(c, training("first", SAVED, checkpoint={"at_end": True}))
        folder = Path(first["dir"]) / "checkpoints"
        experiment = c.submit(clean(training("arms", SAVED, arms={"a": {}, "b": {"checkpoint": {"at_end": True}}},
            design={"repetitions": 1, "mirrored": False, "aa_control": False}, restart=False)))
        assert c.wait(experiment)["state"] == "done"
        segments = d.state / "runs" / f"{experiment}-arms" / "segments"
        for name in ("999-b", "1000-a"):  # the last of many
            (segments / name / "checkpoints" / "step-5").mkdir(parents=True)
            (segments / name / "checkpoints" / "step-5" / "manifest.json").touch()
        assert c.call("checkpoint", id=experiment)["dir"] == f"{segments}/1000-a/checkpoints/step-5"
        for resume_from, changes, why in [
                (99, {}, "run 99: no such run"),
                (none["id"], {}, f"run {none['id']} has no checkpoint (checkpoint.at_end in its spec writes one)"),
                (experiment, {}, f"run {experiment} is an experiment: give the path of a segment's folder, below "),
                (str(d.home), {}, "no checkpoint found"),
                (first["id"], {"model": {"preset": "nano", "n_layer": 3}}, "model.n_layer 2, this run has 3"),
                (first["id"], {"train_batch_size": 4}, "train_batch_size 8, this run has 4"),
                (first["id"], {"model": {"preset": "nano", "tied_head": False}}, "model.tied_head true, this run has false"),
                (first["id"], {"model": {"preset": "nano", "gelu": "exact"}}, 'model.gelu "tanh", this run has "exact"'),
                (first["id"], {"data": {"kind": "synthetic", "synthetic_tokens": 3200}},
                    "sequences in the training data 32767, this run has 99"),
                (first["id"], {"work": {"optimizer_steps": SAVED}}, "nothing left to train")]:
            refused = refusal(c.submit, clean(training("rest", resume_from=resume_from, **changes)))
            assert [error["key"] for error in refused.data["errors"]] == ["resume_from"]
            assert why in refused.data["errors"][0]["message"]
        number = first["id"]
        manifest = folder / f"step-{SAVED}" / "manifest.json"
        text = manifest.read_text()
        manifest.write_text(text.replace('"schema_version": "1.0"', '"schema_version": "2.0"'))
        refused = refusal(c.submit, clean(training("rest", resume_from=number)))
        assert 'schema_version: "2.0" is not supported (expected 1.0)' in refused.data["errors"][0]["message"]
        # of a build that did not write the hash
        manifest.write_text("".join(line for line in text.splitlines(True) if "train_sha256" not in line))
        finish(c, training("rest", resume_from=number))
        assert "could not be compared" not in d.said()
        manifest.write_text(text)
        flip(folder / f"step-{SAVED}" / "shard-0-of-2.bin")
        end = c.wait(c.submit(clean(training("rest", resume_from=number))))
        assert end["state"] == "failed"
        assert end["reason"].startswith(f"checkpoint: rank 0: resume_from: {folder}/step-{SAVED}/shard-0-of-2.bin: damaged: ")
        _, whole = finish(c, training("whole", SAVED))  # the engines are well


@pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
def test_a_crash_at_any_write_leaves_the_last_good_one(tmp_path):
    """In checkpoint.dir, so that only writes of checkpoints count."""
    (tmp_path / "saved").mkdir()
    faults = Faults(tmp_path, under=tmp_path / "saved")
    saves = {"every_steps": 2, "keep_last": 2, "dir": str(tmp_path / "saved")}
    with Daemon(ranks=2, engine=PROGRAM, home=tmp_path, environment=faults.environment) as d:
        with d.client() as c:
            _, whole = finish(c, training("whole", 8))
            before = faults.engine.count
            run, _ = finish(c, training("count", 6, checkpoint=saves))
            writes = faults.engine.count - before
            assert writes >= 3 * (2 + 1), writes
            assert (Path(run["dir"]) / "checkpoints").is_symlink()
            assert sorted(steps_in(tmp_path / "saved" / f"{run['id']}-count")) == [4, 6]
        for at in sample(writes, 7):
            d.engines()
            faults.engine.arm(KILL, first=at, last=at)
            with d.client() as c:
                number = c.submit(clean(training("killed", 6, checkpoint=saves)))
                assert c.wait(number)["state"] in ("failed", "done")
            faults.engine.disarm()
            d.engines()
            left = sorted(steps_in(tmp_path / "saved" / f"{number}-killed"))
            with d.client() as c:
                if left:
                    _, summary = finish(c, training("rest", 8, resume_from=number))
                    assert summary["losses"] == whole["losses"][left[-1]:], (at, left)


@pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
def test_a_full_disk_loses_the_checkpoint_and_not_the_run(tmp_path):
    (tmp_path / "saved").mkdir()
    faults = Faults(tmp_path, under=tmp_path / "saved")
    saves = {"every_steps": 4, "at_end": True, "dir": str(tmp_path / "saved")}
    with Daemon(ranks=2, engine=PROGRAM, home=tmp_path, environment=faults.environment) as d, d.client() as c:
        _, whole = finish(c, training("whole"))
        d.engines()
        faults.engine.arm(FAIL, errno.ENOSPC, first=3, ops=NEEDS_ROOM)
        run, summary = finish(c, training("full", checkpoint=saves))
        faults.engine.disarm()
        assert summary["losses"] == whole["losses"]
        assert summary["checkpoints"]["lost"] >= 1, summary["checkpoints"]
        assert "is lost: enospc: rank " in d.said() and "training continues" in d.said()
        assert c.call("status")["waiting"] is None  # no hold
        assert summary["checkpoints"]["written"] == len(steps_in(Path(run["dir"]) / "checkpoints"))
        shown = ctl("show", run["id"], path=d.socket).stdout
        assert f"; lost {summary['checkpoints']['lost']}, see: gpt2ctl logs {run['id']}\n" in shown, shown
        assert summary["checkpoints"]["written"] == 0
        for words in (["export", run["id"], "-o", tmp_path / "out"], ["generate", run["id"]]):
            refused = ctl(*words, path=d.socket)
            assert refused.returncode == 12 and f"if it does, the log says why: gpt2ctl logs {run['id']}" in refused.stderr
        # the hold is for the state directory's disk: it would not end this run's trouble
        faults.engine.arm(FAIL, errno.ENOSPC, ops=NEEDS_ROOM)
        end = c.wait(c.submit(clean(training("nowhere", SAVED, checkpoint=saves))))
        faults.engine.disarm()
        assert end["state"] == "failed" and end["reason"].startswith(f"checkpoint: rank 0: {tmp_path}/saved/"), end


def test_where_checkpoints_may_be_written(tmp_path):
    (tmp_path / "roots" / "a").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    with Daemon(ranks=1, engine=PROGRAM, options=("--checkpoint-roots", str(tmp_path / "roots"))) as d, d.client() as c:
        saves = {"at_end": True, "dir": str(tmp_path / "roots" / "a")}
        run, _ = finish(c, training("in", SAVED, checkpoint=saves))
        assert list(steps_in(tmp_path / "roots" / "a" / f"{run['id']}-in")) == [SAVED]
        # a user who may read that folder need not be allowed to read the state directory
        assert c.call("checkpoint", id=run["id"])["dir"] == f"{tmp_path}/roots/a/{run['id']}-in/step-{SAVED}"
        own, _ = finish(c, training("root", SAVED, checkpoint={"at_end": True, "dir": str(tmp_path / "roots")}))
        assert list(steps_in(tmp_path / "roots" / f"{own['id']}-root")) == [SAVED]
        for folder in (tmp_path / "elsewhere", tmp_path / "missing"):
            refused = refusal(c.submit, clean(training("out", SAVED, checkpoint={"at_end": True, "dir": str(folder)})))
            assert f"{folder} is not below checkpoint_roots of gpt2d.conf ({tmp_path / 'roots'})" in str(refused.data["errors"])
        assert c.call("prune", keep=0)["runs"]
        assert list(steps_in(tmp_path / "roots" / "a" / f"{run['id']}-in")) == [SAVED]  # a user's folder is left alone


def test_steps_beside_a_checkpoint_are_not_compared():
    with Daemon(ranks=1, engine=PROGRAM) as d, d.client() as c:
        arms = {"plain": {}, "saves": {"checkpoint": {"every_steps": 4, "keep_last": 1}}}
        run = clean(training("arms", 12, arms=arms, design={"repetitions": 1, "aa_control": False}, restart=False))
        number = c.submit(run)
        assert c.wait(number)["state"] == "done", d.said()
        show = c.call("show", id=number)
        for segment in show["segments"]:
            made = segment["summary"]["checkpoints"]
            assert (made is not None) == (segment["arm"] == "saves")
            if made:
                assert made["written"] == 3
                assert segment["summary"]["tokens_measured"] == (12 - made["steps_left_out"]) * 8 * 32
                assert len(segment["summary"]["step_time_ns"]) == 12 - made["steps_left_out"]
                assert list(steps_in(segment["dir"] + "/checkpoints")) == [12]
        result = json.loads((Path(show["run"]["dir"]) / "experiment.json").read_text())
        assert [row["checkpoints"] for row in result["arms"]] == [0, 6], result["arms"]
        assert all(row["work"]["equal"] for row in result["comparisons"]), result["comparisons"]
