"""The engine alone, driven like by gpt2d: segments, artifacts, warmth, ends."""

import hashlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from engines import PROGRAM, Rank, Ranks, metrics, spec

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="no engine was built")


@pytest.mark.parametrize("shell", ["exec 3>&-", "exec 3</dev/null"])
def test_started_by_hand(shell):
    """Without a connection to gpt2d it reports an error."""
    done = subprocess.run(["/bin/sh", "-c", f'{shell}; exec "$0" "$@"', PROGRAM, "--role", "check"], capture_output=True, text=True,
        timeout=60, check=False)
    assert done.returncode == 2 and done.stderr == f"{PROGRAM.name}: descriptor 3 is not a socket to gpt2d; only gpt2d starts this program\n"


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
    assert order[2:-1] == ["segment.artifact"] * (7 if world == 1 else 8)  # rank_times.csv
    losses = metrics(directory)["gpt2d"]["losses"]
    assert len(losses) == 12 and losses[-1] < losses[0]
    assert (directory / "RUN_COMPLETE.txt").exists()


def test_nothing_is_tuned_on_a_cpu(folders, tmp_path):
    directory = folders()
    with Ranks(1, options=("--tuning-dir", tmp_path / "tuning")) as ranks:
        ranks.train(spec(1), directory)
    ours = metrics(directory)["gpt2d"]
    assert ours["tuning_cache_sha256"] is None and "rank order" in ours["determinism"]
    assert not (tmp_path / "tuning").exists()


@pytest.mark.parametrize("world", [1, 2])
def test_warm_segments_repeat_bit_for_bit(world, folders):
    """A, B (with other sizes and seed), A: the two A's are equal."""
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


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("stage, reduce_scatter", [(0, True), (1, True), (1, False)])
def test_bytes_sent_are_the_plans(world, stage, reduce_scatter, folders):
    directory = folders()
    zero = {"stage": stage, "reduce_scatter": reduce_scatter, "reduce_bucket_size": 4096}
    with Ranks(world) as ranks:
        ranks.train(spec(world, zero_optimization=zero), directory)
    traffic = metrics(directory)["gpt2d"]["traffic"]
    planned, sent = traffic["planned_bytes"], traffic["sent_bytes"]
    assert {kind: sent[kind] for kind in planned} == planned
    assert (planned["all_reduce"] > 0) == (stage == 0 or not reduce_scatter)
    assert (planned["all_gather"] > 0) == (stage == 1)


def test_the_same_over_tcp(folders):
    """The transport between the ranks changes no bit of a training, and no counted byte."""
    hashes, traffic = [], []
    for env in (None, {"UCX_TLS": "tcp"}):
        directory = folders()
        with Ranks(2, env=env) as ranks:
            hashes.append(ranks.train(spec(2), directory)[0]["loss_hash"])
        traffic.append(metrics(directory)["gpt2d"]["traffic"])
        assert ("tcp" in metrics(directory)["env"]["collectives"]) == (env is not None)
    assert hashes[0] == hashes[1] and traffic[0] == traffic[1]


def no_marker(directory):
    return not (directory / "RUN_COMPLETE.txt").exists()


@pytest.mark.parametrize("world", [1, 2])
def test_cancel_between_steps(world, folders):
    """Every rank stops at the same step and stays warm; a late cancellation changes nothing."""
    directory = folders()
    long = spec(world, work={"optimizer_steps": 100000})
    with Ranks(world) as ranks:
        segment = ranks.start(long, directory)
        ranks[0].wait("segment.step")
        for rank in ranks:
            rank.send("segment.cancel", run=1, segment=segment, state="interrupted", reason="preempted: so it is")
            rank.send("segment.cancel", run=1, segment=segment, state="failed", reason="timeout: too late")
        _, cancelled = ranks[0].wait("segment.cancelled")
        assert cancelled["segment"] == segment and 0 < cancelled["step"] < 100000
        late = f"run 1: stopped after step {cancelled['step']} of 100000, 1 step after the request to "
        assert [p["message"] for p in ranks[0].all("engine.log") if "stopped" in p["message"]] in (
            [late + "stop"], [late + "another rank"])
        summary, _ = ranks.train(spec(world), folders())
        for rank in ranks:
            rank.send("segment.cancel", run=1, segment=segment)
        again, _ = ranks.train(spec(world), folders())
        pids = [hello["pid"] for hello in ranks.hellos]
        assert all(rank.process.poll() is None for rank in ranks) and len(set(pids)) == world
        ends = [name for rank in ranks for name, p in rank.messages
            if name in ("segment.done", "segment.failed", "segment.cancelled", "segment.trained") and p["segment"] == segment]
    assert ends == ["segment.cancelled"]
    assert summary["loss_hash"] == again["loss_hash"]
    assert no_marker(directory)
    kept = metrics(directory)["gpt2d"]
    assert kept["status"] == "interrupted" and kept["reason"] == "preempted: so it is"
    assert kept["steps"]["attempted"] == cancelled["step"]


def test_cancel_before_the_first_step(folders):
    """The first step sees a cancellation that is queued after segment.start."""
    with Ranks(2) as ranks:
        for rank in ranks:
            rank.send("segment.cancel", run=1, segment=7)
        ranks.segment = 8
        ranks.train(spec(2), folders())
        segment = ranks.start(spec(2, work={"optimizer_steps": 100000}), folders())
        for rank in ranks:
            rank.send("segment.cancel", run=1, segment=segment)
        assert ranks[0].wait("segment.cancelled")[1]["step"] < 100000


@pytest.mark.parametrize("world", [1, 2])
def test_cancel_while_validating(world, folders):
    """A validation of hours is cancelled as fast as a training step, and the engine stays warm."""
    work = {"optimizer_steps": 3, "validation_steps": 2**31 - 1}
    with Ranks(world) as ranks:
        segment = ranks.start(spec(world, work=work), folders())
        ranks[0].wait("segment.step", step=3)
        for rank in ranks:
            rank.send("segment.cancel", run=1, segment=segment)
        assert ranks[0].wait("segment.cancelled", segment=segment)[1]["step"] == 3
        ranks.train(spec(world), folders())


def test_validation_reads_the_same_sequences(folders):
    """L2: of arms that differ in micro-batch, accumulation and ranks, also where they do not divide the set."""
    arms = ((1, 2, 4), (1, 8, 1), (1, 3, 1), (2, 2, 2), (2, 3, 1))
    losses = []
    for world in (1, 2):
        with Ranks(world) as ranks:
            for gpus, micro, accumulation in (arm for arm in arms if arm[0] == world):
                own = spec(world, train_micro_batch_size_per_gpu=micro, gradient_accumulation_steps=accumulation,
                    optimizer={"type": "AdamW", "params": {"lr": 0}})
                losses.append(ranks.train(own, folders())[0]["val_loss"])
    assert losses == pytest.approx([losses[0]] * len(arms), rel=1e-7)


def test_no_gather_without_a_shard(folders):
    """L8: the plan of stage 0 has no all-gather buckets."""
    with Ranks(2) as ranks:
        plans = [ranks.train(spec(2, zero_optimization={"stage": stage, "reduce_bucket_size": 4096}), folders())[0]["plan"]
            for stage in (0, 1)]
    assert (plans[0]["n_gather"], plans[0]["gather_elems"]) == (0, 0) and plans[0]["n_reduce"] == plans[1]["n_reduce"]
    assert plans[1]["n_gather"] >= 1


def test_a_standstill_is_reported(folders):
    """L4: a rank that was stopped for seconds makes the segment's times unusable, and reports it."""
    with Ranks(2) as ranks:
        assert ranks.train(spec(2), folders())[0]["void"] == []
        segment = ranks.start(spec(2, work={"optimizer_steps": 400}), folders())
        ranks[0].wait("segment.step")
        ranks[1].process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        ranks[1].process.send_signal(signal.SIGCONT)
        method, params = ranks[0].wait("segment.done", "segment.failed", segment=segment)
        assert method == "segment.done", params
        reasons = params["summary"]["void"]
        assert len(reasons) == 1 and reasons[0].startswith("standstill: rank 1, 1."), reasons
        assert ranks.train(spec(2), folders())[0]["void"] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_for_everybody_is_gpt2ds(number, folders):
    """As a service manager sends it to a whole control group: the run in progress continues."""
    with Ranks(2) as ranks:
        segment = ranks.start(spec(2, work={"optimizer_steps": 400}), folders())
        ranks[0].wait("segment.step")
        for rank in ranks:
            rank.process.send_signal(number)
        ranks[0].wait("segment.done", segment=segment)


def test_exit_ends_a_running_segment(folders):
    with Ranks(2) as ranks:
        ranks.start(spec(2, work={"optimizer_steps": 100000}), folders())
        ranks[0].wait("segment.step")
        for rank in ranks:
            rank.send("engine.exit")
        assert [rank.end() for rank in ranks] == [0, 0]
        assert len(ranks[0].all("segment.cancelled")) == 1


def test_a_lost_peer(folders):
    """The survivors report it and end with a special code; nothing looks complete."""
    directory = folders()
    with Ranks(3) as ranks:
        ranks.start(spec(3, work={"optimizer_steps": 100000}), directory)
        ranks[0].wait("segment.step")
        ranks[1].process.kill()
        assert ranks[0].end() == 70 and ranks[2].end() == 70
        failed = ranks[0].all("segment.failed")
        assert len(failed) == 1 and failed[0]["reason"] == "peer_lost" and failed[0]["poisoned"]
    assert no_marker(directory)


def test_gpt2d_goes_away(folders):
    with Ranks(2) as ranks:
        ranks.start(spec(2, work={"optimizer_steps": 1000000}), folders())
        ranks[0].wait("segment.step")
        for rank in ranks:
            rank.sock.close()
        assert [rank.process.wait(60) for rank in ranks] == [72, 72]


def test_ranks_that_mean_different_things(folders):
    """D7: one rank has another spec: all fail, before anything is exchanged, and stay usable."""
    with Ranks(2) as ranks:
        directory = folders()
        for rank, seed in zip(ranks, (1, 2)):
            rank.send("segment.start", run=1, segment=1, segments=1, arm="run", block=1, position=1, attempt=1,
                world=2, dir=str(directory), spec=json.dumps(spec(2, seed=seed)))
        for rank in ranks:
            assert rank.wait("segment.failed")[1]["reason"] == "spec_mismatch"
            assert not rank.all("segment.started")
        ranks.segment = 2
        ranks.train(spec(2), folders())


def test_a_spec_that_was_changed_on_the_way(folders):
    with Ranks(1) as ranks:
        ranks.start(spec(1), folders(), spec_sha256="0" * 64)
        assert ranks[0].wait("segment.failed")[1]["reason"] == "spec_mismatch"


@pytest.mark.parametrize("world", [1, 2])
def test_a_loss_that_is_not_finite(world, folders):
    """F6: the files are valid and name the step, the segment failed, the engine continues."""
    directory = folders()
    diverging = spec(world, gradient_clipping=0, optimizer={"type": "AdamW", "params": {"lr": 1e18}})
    with Ranks(world) as ranks:
        segment = ranks.start(diverging, directory)
        _, failed = ranks[0].wait("segment.done", "segment.failed", segment=segment)
        assert failed["reason"] in ("nonfinite_loss", "nonfinite_gradient") and not failed["poisoned"]
        assert (directory / "training_metrics.json").exists(), "reported before its files were written"
        ranks.train(spec(world), folders())
        for rank in ranks.ranks[1:]:
            rank.drain()
            assert not rank.all("segment.failed"), "rank 0 reports what is the same on all ranks"
    ours = metrics(directory)["gpt2d"]
    assert ours["status"] == "failed" and ours["nonfinite"]
    assert no_marker(directory)


def test_data_that_cannot_be_read(folders, tmp_path):
    data = tmp_path / "train.bin"
    data.write_bytes(bytes(range(96)) * 2)
    with Ranks(2) as ranks:
        segment = ranks.start(spec(2, data={"train": str(data), "val": str(data)}), folders())
        _, failed = ranks[0].wait("segment.failed", segment=segment)
        assert str(data) in failed["message"]
        ranks.train(spec(2), folders())


def replace(data, tokens, like=None):
    """Another file under the same name; like: with this one's time."""
    new = data.with_name("new")
    new.write_bytes(tokens)
    if like:
        os.utime(new, ns=(like.st_atime_ns, like.st_mtime_ns))
    new.rename(data)


@pytest.mark.parametrize("same_time_and_size", [False, True])
def test_a_later_segment_wants_the_file_of_the_first(same_time_and_size, folders, tmp_path):
    data = tmp_path / "train.bin"
    data.write_bytes(b"\x01\x00\x02\x00" * 4000)
    run = spec(2, data={"train": str(data), "val": str(data)})
    with Ranks(2) as ranks:
        ranks.train(run, folders())
        reported = ranks[0].all("segment.started")[-1]["data"]
        was = data.stat()
        assert reported == {str(data): {"dev": was.st_dev, "ino": was.st_ino, "bytes": 16000, "modified_ns": was.st_mtime_ns,
            "changed_ns": was.st_ctime_ns}}
        ranks.train(run, folders(), data=reported)
        replace(data, b"\x03\x00" * (8000 if same_time_and_size else 7000), was if same_time_and_size else None)
        directory = folders()
        segment = ranks.start(run, directory, data=reported)
        for rank in ranks:
            _, failed = rank.wait("segment.failed", segment=segment)
            assert failed["reason"] == "data"
            assert failed["message"].startswith(f"{data}: not the file of the run's first segments: 16000 bytes, of ")
            assert f"inode {was.st_ino} then; {data.stat().st_size} bytes, of " in failed["message"]
        assert not list(directory.iterdir())
        ranks.train(run, folders())


def test_equal_data_is_equal_content(folders, tmp_path):
    """L3: the artifacts have the hash of the files' content; it is kept, and a file is read once."""
    data, other, tuning = tmp_path / "train.bin", tmp_path / "other.bin", tmp_path / "tuning"
    data.write_bytes(b"\x01\x00\x02\x00" * 4000)
    other.write_bytes(data.read_bytes())
    with Ranks(1, options=("--tuning-dir", tuning)) as ranks:
        def hash_of(path, **keys):
            directory = folders()
            summary, _ = ranks.train(spec(1, data={"train": str(path), "val": str(path)}, **keys), directory)
            ours = metrics(directory)["gpt2d"]
            assert ours["data_hash"] == summary["data_hash"] and ours["val_sha256"] == ours["train_sha256"]
            assert ours["train_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
            return summary["data_hash"]
        first = hash_of(data)
        kept = (tuning / "data_hashes").read_text()
        assert kept.split()[0] == hashlib.sha256(data.read_bytes()).hexdigest() and kept.count("\n") == 1
        assert hash_of(data) == first and (tuning / "data_hashes").read_text() == kept
        assert hash_of(other) == first and hash_of(data, seed=7) != first
        data.write_bytes(b"\x03\x00\x02\x00" * 4000)
        assert hash_of(data) != first
        assert (tuning / "data_hashes").read_text().count("\n") == 2


def test_a_later_segment_sees_a_change_in_place(folders, tmp_path):
    """L3: a file as left by rsync --inplace -t: with the same inode, size and time of modification."""
    data = tmp_path / "train.bin"
    data.write_bytes(b"\x01\x00\x02\x00" * 4000)
    was = data.stat()
    run = spec(1, data={"train": str(data), "val": str(data)})
    with Ranks(1) as ranks:
        ranks.train(run, folders())
        reported = ranks[0].all("segment.started")[-1]["data"]
        data.write_bytes(b"\x03\x00\x02\x00" * 4000)
        os.utime(data, ns=(was.st_atime_ns, was.st_mtime_ns))
        segment = ranks.start(run, folders(), data=reported)
        _, failed = ranks[0].wait("segment.failed", segment=segment)
        assert failed["reason"] == "data" and "not the file of the run's first segments" in failed["message"]


def test_one_segment_has_one_file_on_all_ranks(folders, tmp_path):
    """It is replaced after one rank has opened it."""
    data = tmp_path / "train.bin"
    data.write_bytes(b"\x01\x00\x02\x00" * 4000)
    run = spec(2, data={"train": str(data)}, work={"optimizer_steps": 12})
    start = dict(run=1, segment=1, segments=1, arm="run", block=1, position=1, attempt=1, world=2,
        spec=json.dumps(run))
    with Ranks(2) as ranks:
        directory = folders()
        ranks[0].send("segment.start", dir=str(directory), **start)
        opened = lambda: any(Path(f"/proc/{ranks[0].process.pid}/fd/{fd}").resolve() == data
            for fd in os.listdir(f"/proc/{ranks[0].process.pid}/fd"))
        until = time.monotonic() + 60
        while not opened():
            assert time.monotonic() < until
        replace(data, b"\x03\x00" * 8000)
        ranks[1].send("segment.start", dir=str(directory), **start)
        for rank in ranks:
            _, failed = rank.wait("segment.failed")
            assert failed["reason"] == "spec_mismatch" and "data" in failed["message"]
        ranks.segment = 2
        ranks.train(run, folders())


def test_data_that_is_shortened_while_it_is_read(folders, tmp_path):
    data = tmp_path / "train.bin"
    data.write_bytes((b"\x01\x00\x02\x00" * 40000))
    with Ranks(2) as ranks:
        segment = ranks.start(spec(2, data={"train": str(data)}, work={"optimizer_steps": 100000}), folders())
        ranks[0].wait("segment.step")
        with open(data, "r+b") as out:
            out.truncate(1000)
        messages, until = [], time.monotonic() + 60
        while not messages:  # one of them finds it first
            assert time.monotonic() < until
            for rank in ranks:
                rank.drain(0.1)
                messages += [p["message"] for p in rank.all("segment.failed") if p["segment"] == segment]
        assert all(str(data) in m for m in messages)
        ranks.train(spec(2), folders())


def test_files_that_cannot_be_written(folders):
    directory = folders()
    with Ranks(1) as ranks:
        segment = ranks.start(spec(1, work={"optimizer_steps": 3000}), directory)
        ranks[0].wait("segment.started")
        directory.rmdir()
        _, failed = ranks[0].wait("segment.done", "segment.failed", segment=segment)
        assert failed["reason"] == "io"
        ranks.train(spec(1), folders())


def test_one_rank_does_without_ucx(folders):
    """Settings with which UCX cannot work do not matter with one rank."""
    with Ranks(1, env={"UCX_TLS": "nothing", "UCX_NET_DEVICES": "nowhere0"}) as ranks:
        assert "address" not in ranks.hellos[0]
        ranks.train(spec(1), folders())


def test_messages_of_steps_are_few(folders):
    with Ranks(1) as ranks:
        began = time.monotonic()
        _, steps = ranks.train(spec(1, work={"optimizer_steps": 4000}), folders())
        most = 2 + 20 * (time.monotonic() - began)  # 20 in a second, the first and the last
        started = ranks[0].all("segment.started")[0]
    assert steps[-1]["step"] == 4000 and steps[-1]["steps"] == 4000
    assert len(steps) < min(most, 4000)
    assert set(steps[0]) == {"run", "segment", "step", "steps", "loss", "tokens_per_sec", "step_time_ns"}
    assert started["init_ns"] > 0


def test_what_is_printed_is_not_in_the_way():
    run = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout.startswith("gpt2-engine ")
    for wrong, why in (("--role rank", "--rank, --ranks and --threads are needed"),
            ("", "--role is missing: rank, check or connect is needed"), ("--role king", "--role: king: rank, check or connect is needed"),
            ("--rank x", "--rank: x: a whole number is needed"),
            ("--ranks 1025", "--ranks: 1025 is not allowed, from 1 to 1024"),
            ("--role rank --rank 2 --ranks 2 --threads 1", "--rank: 2 is not allowed, from 0 to 1 (--ranks 2)"),
            ("--rank", "--rank: R is needed"), ("--nonsense", "--nonsense: no such option; see: gpt2-engine(8)"),
            ("-xy", "-xy: no such option; see: gpt2-engine(8)"), ("more", "more: an option is needed")):
        run = subprocess.run([PROGRAM, *wrong.split()], capture_output=True, text=True)
        assert run.returncode == 2 and not run.stdout and run.stderr.startswith(f"{PROGRAM.name}: {why}\nusage: {PROGRAM.name} "), run
    for option in ("--version", "--help"):
        with open("/dev/full", "w") as full:
            run = subprocess.run([PROGRAM, option], stdout=full, stderr=subprocess.PIPE, text=True)
        assert run.returncode == 1 and run.stderr == f"{PROGRAM.name}: standard output: No space left on device\n", run


def test_checks(tmp_path):
    """Role check: the plan of an arm, or all of its errors."""
    rank = Rank("--role", "check")
    try:
        assert rank.wait("engine.hello")[1]["role"] == "check"
        rank.wait("engine.ready")
        rank.send("check", token=1, world=2, arm="run", spec=json.dumps(spec(2)))
        good = rank.wait("check.reply")[1]
        assert good["ok"] and good["token"] == 1 and not good["errors"]
        assert good["check"]["plan"]["n_reduce"] > 1 and good["check"]["memory"]["total_bytes"] > 0
        rank.send("check", token=2, world=1, arm="run", spec=json.dumps(spec(2)))
        bad = rank.wait("check.reply")[1]
        assert not bad["ok"] and bad["token"] == 2 and bad["errors"]
        rank.send("check", token=3, world=1, arm="run", spec=json.dumps({"name": "x"}))
        assert not rank.wait("check.reply")[1]["ok"]
        rank.send("check", token=4, world=1)
        none = rank.wait("check.reply")[1]
        assert not none["ok"] and none["errors"] == [{"key": "", "message": "gpt2d sent no spec"}]
        rank.send("engine.exit")
        assert rank.end() == 0
    finally:
        rank.kill()


def connect(environment):
    """Two processes of role connect: the last error that they log, or "" when both connect."""
    ranks = [Rank("--role", "connect", "--rank", r, "--ranks", 2, env=environment) for r in range(2)]
    try:
        addresses = []
        for rank in ranks:
            method, params = rank.wait("engine.hello", "engine.log")
            if method == "engine.log":
                assert rank.end() == 73
                return params["message"]
            assert params["role"] == "connect" and "device" not in params
            addresses.append(params["address"])
        for rank in ranks:
            rank.send("engine.connect", addresses=addresses)
        for rank in ranks:
            method, params = rank.wait("engine.ready", "engine.log")
            if method == "engine.log":
                assert rank.end() == 73
                return params["message"]
        for rank in ranks:
            rank.send("engine.exit")
        assert [rank.end() for rank in ranks] == [0, 0]
        return ""
    finally:
        for rank in ranks:
            rank.kill()


@pytest.mark.parametrize("environment, problem", [
    (None, ""),
    ({"UCX_TLS": "tcp"}, ""),
    ({"UCX_TLS": "tcp", "UCX_NET_DEVICES": "nosuch0"}, "network device 'nosuch0' is not available"),
    ({"UCX_SHM_DEVICES": "nosuch"}, "cannot reach rank "),
    ({"UCX_TLS": "junk"}, "transport 'junk' is not available"),
])
def test_connecting(environment, problem):
    """L15: role connect finds the settings that keep ranks apart, and touches no device."""
    error = connect(environment)
    assert problem in error and bool(problem) == bool(error)
