"""gpt2ctl against a real gpt2d with an engine that trains nothing."""

import json
import os
import random
import re
import signal
import subprocess
import time

import pytest

import shapes
from helpers import BUILD, PATIENCE_S, experiment, read_until, refusal, spec, wait_for

CTL = BUILD / "ctl" / "gpt2ctl"


def environment(d, **more):
    return {**os.environ, "GPT2D_SOCKET": str(d.socket), "LC_ALL": os.environ.get("LC_ALL", "C.UTF-8"), **more}


def ctl(d, *args, run=None, text=None, **more):
    """What --json prints must have the shape that the tables give it."""
    result = subprocess.run([CTL, *map(str, args)], input=json.dumps(run) if run else text, capture_output=True, text=True,
        env=environment(d, **more), timeout=120)
    if "--json" in args:
        shapes.check_lines(result.stdout)
    return result


def started(d, *args):
    return subprocess.Popen([CTL, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=environment(d))


def submit(d, run):
    result = ctl(d, "submit", "-", "--print-id", run=run)
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


def one_object(result):
    lines = result.stdout.splitlines()
    assert len(lines) == 1, result
    value = json.loads(lines[0])
    assert value["schema"] == 1
    return value


@pytest.mark.parametrize("name, exit, says", [
    ("ok", 0, "done"),
    ("fail.r0.s2", 4, "failed: made_up: rank 0: as asked"),
    ("crash.r1.s2", 4, "failed"),
    ("endfail", 4, "artifacts"),
])
def test_exit_by_result(daemon, name, exit, says):
    with daemon(ranks=2) as d:
        result = ctl(d, "submit", "-", "--follow", run=spec(name, gpus=2))
        assert result.returncode == exit, result
        assert says in result.stdout and "artifacts: " in result.stdout
        assert ctl(d, "wait", 1).returncode == exit
        assert ctl(d, "follow", 1).returncode == exit
        assert says in ctl(d, "show", 1).stdout


def test_every_verb_as_json(daemon):
    with daemon(ranks=2) as d:
        value = one_object(ctl(d, "submit", "-", "--json", run=experiment(gpus=2)))
        assert value["id"] == 1 and value["arms"] == ["a", "b"] and value["segments"] == 8
        assert value["dir"] == str(d.state / "runs" / "1-exp")
        assert one_object(ctl(d, "wait", 1, "--json"))["runs"][0]["state"] == "done"
        assert one_object(ctl(d, "status", "--json"))["counts"]["done"] == 1
        assert [run["id"] for run in one_object(ctl(d, "list", "--json"))["runs"]] == [1]
        shown = one_object(ctl(d, "show", 1, "--json"))
        assert len(shown["segments"]) == 8 and shown["run"]["segments_done"] == 8
        compared = one_object(ctl(d, "compare", 1, "--json"))
        assert [arm["arm"] for arm in compared["arms"]] == ["a", "b"] and compared["segments_used"] == 8
        assert one_object(ctl(d, "cancel", 1, "--json"))["runs"][0]["already"] is True
        assert one_object(ctl(d, "version", "--json"))["gpt2d"]["protocol"] == 1
        events = [json.loads(line) for line in ctl(d, "follow", 1, "--json").stdout.splitlines()]
        assert events[-1]["kind"] == "run.done" and events[-1]["state"] == "done"
        for args in (["status"], ["list"], ["show", 1], ["compare", 1], ["version"]):
            text = ctl(d, *args)
            assert text.returncode == 0 and text.stderr == "" and "\x1b" not in text.stdout


def test_dry_run_queues_nothing(daemon):
    with daemon(ranks=2) as d:
        value = one_object(ctl(d, "submit", "-", "--dry-run", "--json", run=experiment(gpus=2)))
        assert [row["arm"] for row in value["arms"]] == ["a", "b"]
        text = ctl(d, "submit", "-", "--dry-run", run=experiment(gpus=2))
        assert text.returncode == 0 and "8 segments" in text.stdout
        assert one_object(ctl(d, "list", "--json"))["runs"] == []


def test_no_such_run(daemon):
    with daemon() as d:
        for verb in ("show", "follow", "wait", "cancel", "compare"):
            result = ctl(d, verb, 99)
            assert result.returncode == 7, (verb, result)
            assert "99: no such run" in result.stderr


def test_cancel(daemon):
    with daemon() as d:
        running, queued = submit(d, spec("ms20", steps=10000)), submit(d, spec("later"))
        follower = started(d, "follow", running)
        assert "run 1 ms20" in follower.stdout.readline()
        assert "run 2 is cancelled" in ctl(d, "cancel", queued).stdout
        assert ctl(d, "cancel", running).returncode == 0
        out, _ = follower.communicate(timeout=PATIENCE_S)
        assert follower.returncode == 6 and "ms20: cancelled: asked for" in out
        assert "nothing to cancel" in ctl(d, "cancel", running).stdout
        assert ctl(d, "wait", running, queued).returncode == 6


def test_wait_of_several_and_its_timeout(daemon):
    with daemon() as d:
        good, bad = submit(d, spec("good")), submit(d, spec("fail.r0.s1"))
        long = submit(d, spec("ms20", steps=10000))
        assert ctl(d, "wait", good).returncode == 0
        result = ctl(d, "wait", good, bad)
        assert result.returncode == 4
        assert "run 1 good: done" in result.stdout and "failed: made_up" in result.stdout
        assert ctl(d, "wait", long, "--timeout", 0.5).returncode == 124
        assert d.client().state(long) in ("starting", "running")


def test_detaching_leaves_the_run_alone(daemon):
    with daemon() as d:
        run = submit(d, spec("ms20", steps=100000))
        follower = started(d, "follow", run)
        read_until(follower, "step")
        follower.send_signal(signal.SIGINT)
        _, err = follower.communicate(timeout=PATIENCE_S)
        assert follower.returncode == 6 and "continues" in err
        assert d.client().state(run) == "running"
        assert ctl(d, "cancel", run).returncode == 0


def test_killed_daemon_comes_back_under_a_follower(daemon):
    with daemon() as d:
        run = submit(d, spec("ms20", steps=10000))
        follower = started(d, "follow", run)
        read_until(follower, "step")
        d.kill()
        d.start()
        out, err = follower.communicate(timeout=PATIENCE_S)
        assert follower.returncode == 6, (out, err)
        assert "interrupted" in out and "reconnecting" in err


def test_followers_that_are_killed_harm_nothing(daemon):
    """Case H9: the daemon lives, the run is not disturbed, descriptors return."""
    random.seed(1)
    with daemon() as d:
        ctl(d, "wait", submit(d, spec())) # what is started at the first run is there
        before = d.descriptors()
        run = submit(d, spec("ms10-logs", steps=200))
        followers = [started(d, "follow", run, "--json") for _ in range(12)]
        for follower in followers:
            time.sleep(random.random() / 10)
            follower.kill()
            follower.communicate()
        assert ctl(d, "wait", run).returncode == 0
        wait_for(lambda: d.descriptors() <= before, "descriptors closed")


def test_list_of_many(daemon):
    with daemon() as d:
        first = submit(d, spec("ms20", steps=10000))
        for i in range(60):
            d.client().submit(spec(f"r{i}"))
        value = one_object(ctl(d, "list", "--json", "--state", "queued", "--limit", 7))
        assert [run["id"] for run in value["runs"]] == list(range(55, 62)) and value["older"]
        assert len(one_object(ctl(d, "list", "--json", "-n", 0))["runs"]) == 61
        assert "60" in ctl(d, "status").stdout
        ctl(d, "cancel", first)


def test_words_are_those_of_the_daemon(daemon):
    """gpt2ctl knows states and levels before it asks: all that gpt2d takes, in its order."""
    def allowed(c, method, **params):
        refused = refusal(c.call, method, **params)
        return re.split(", | or ", re.search(r"\((?:expected )?(.*)\)", str(refused))[1])

    with daemon() as d, d.client() as c:
        states, ends, levels = allowed(c, "list", state="x"), allowed(c, "prune", state="x"), allowed(c, "logs", level="x")
        assert (len(states), len(ends), len(levels)) == (8, 4, 4)
        for words, option, all_of_them in ((["list"], "state", states), (["prune", "-n"], "state", ends), (["logs"], "level", levels)):
            reported = f"--{option}: x: {', '.join(all_of_them[:-1])} or {all_of_them[-1]} is needed"
            assert ctl(d, *words, f"--{option}=x").stderr == f"gpt2ctl: {reported}\n"
            for word in all_of_them:
                assert ctl(d, *words, f"--{option}", word).returncode == 0, word


def test_shutdown(daemon):
    with daemon() as d:
        assert ctl(d, "shutdown").returncode == 0
        assert d.process.wait(PATIENCE_S) == 0
        assert ctl(d, "status").returncode == 3


def test_compare_of_what_failed(daemon):
    """What failed, why, and what is comparable; or that nothing is."""
    with daemon() as d:
        first = submit(d, experiment("fail.r0.s2", repetitions=2))
        ctl(d, "wait", first)
        result = ctl(d, "compare", first)
        assert result.returncode == 12 and "run 1: nothing to compare (state failed, no segment is done): " \
            "arm_failed: " in result.stderr
        assert ": made_up: rank 0: as asked\nsee its messages: gpt2ctl logs 1" in result.stderr
        second = submit(d, experiment("ms20", 50, repetitions=2))
        wait_for(lambda: json.loads(ctl(d, "show", second, "--json").stdout)["run"]["segments_done"] >= 1, "a segment")
        ctl(d, "cancel", second)
        ctl(d, "wait", second)
        value = one_object(ctl(d, "compare", second, "--json"))
        assert value["segments_used"] >= 1 and [row["state"] for row in value["failed"]] == ["cancelled"]
        text = ctl(d, "compare", second).stdout
        assert f"segment {value['failed'][0]['segment']} ({value['failed'][0]['arm']}) cancelled\n" in text
        assert "cancelled: asked for\n" in text and "only finished segments are compared" in text
        third = submit(d, spec("ms50", 1000))
        result = ctl(d, "compare", third)
        assert result.returncode == 12 and "run 3: nothing to compare yet (state " in result.stderr
        ctl(d, "cancel", third)
        ctl(d, "wait", third)
        assert "run 3: nothing to compare (state cancelled, no segment is done): cancelled: asked for" in ctl(d, "compare", third).stderr


# ---- the daemon's errors of a spec have their line in the file: cases A1, B1, B3 ----

def refused(d, path, *options):
    before = json.loads(ctl(d, "list", "--json").stdout)["runs"]
    result = ctl(d, "submit", path, *options)
    assert result.returncode == 2 and json.loads(ctl(d, "list", "--json").stdout)["runs"] == before
    return result.stderr.splitlines()


def test_the_daemons_refusals_name_the_line(tmp_path, daemon):
    path = tmp_path / "spec.json"
    with daemon(ranks=2, engine=BUILD / "engine" / "gpt2-engine-cpu") as d:
        path.write_text(json.dumps(spec(gpus=4), indent=1))
        line = path.read_text().splitlines().index(' "gpus": 4') + 1
        assert refused(d, path) == [f"{path}:{line}:2: gpus: 4 ranks asked, the daemon has 2"]
        assert refused(d, path, "--set", "gpus=9") == [f"{path}: --set gpus: 9 ranks asked, the daemon has 2"]

        (tmp_path / "short.bin").write_bytes(b"\x05\x00" * 128)
        path.write_text(json.dumps(spec(data={"train": "short.bin"}), indent=1))
        line = path.read_text().splitlines().index('  "train": "short.bin"') + 1
        assert refused(d, path) == [
            f"{path}:{line}:3: data.train: {tmp_path}/short.bin: 128 tokens, 129 needed (2 ranks x 1 x 64 + 1)"]

        path.write_text(json.dumps(spec(steps=1e12), indent=1))
        line = path.read_text().splitlines().index('  "optimizer_steps": 1000000000000.0,') + 1
        found = refused(d, path)
        assert len(found) == 1 and found[0].startswith(f"{path}:{line}:3: work.optimizer_steps: 1000000000000 optimizer steps are not allowed, at"), found

        made_up = {"kind": "synthetic", "synthetic_tokens": 128}
        path.write_text(json.dumps(spec(data=made_up), indent=1))
        line = path.read_text().splitlines().index('  "synthetic_tokens": 128') + 1
        assert refused(d, path) == [
            f"{path}:{line}:3: data.synthetic_tokens: synthetic: 128 tokens, 129 needed (2 ranks x 1 x 64 + 1)"]

        # how many is not in the file: what asks for them is named
        path.write_text(json.dumps(spec(data={"kind": "synthetic"}, train_micro_batch_size_per_gpu=10000), indent=1))
        line = path.read_text().splitlines().index('  "kind": "synthetic"') + 1
        found = refused(d, path, "--set", 'model={"n_layer": 1, "n_head": 1, "n_embd": 8, "n_positions": 64, "vocab_size": 64}')
        assert found == [f"{path}:{line}:3: data.kind: synthetic: 1048576 tokens, 1280001 needed (2 ranks x 10000 x 64 + 1); "
            "data.synthetic_tokens sets how many are made"]
        # nor if the batch is the error
        path.write_text(json.dumps(spec(data={"kind": "synthetic"}, train_micro_batch_size_per_gpu=10**8), indent=1))
        found = refused(d, path)
        assert len(found) == 1 and ": train_micro_batch_size_per_gpu: " in found[0], found


def test_the_daemons_refusals_name_the_arm(tmp_path, daemon):
    path = tmp_path / "spec.json"
    missing = f"{tmp_path}/none.bin: No such file or directory"
    with daemon(ranks=1, engine=BUILD / "engine" / "gpt2-engine-cpu") as d:
        # an arm of its own, whose name has a dot
        (tmp_path / "good.bin").write_bytes(b"\x05\x00" * 1000)
        arms = {"a": {}, "v1.5": {"data.train": "none.bin"}}
        path.write_text(json.dumps({**experiment(data={"train": "good.bin"}), "arms": arms}, indent=1))
        line = path.read_text().splitlines().index('   "data.train": "none.bin"') + 1
        assert refused(d, path) == [f"{path}:{line}:4: arms.v1.5.data.train: {missing}"]
        # what all arms share
        path.write_text(json.dumps(experiment(data={"train": "none.bin"}), indent=1))
        line = path.read_text().splitlines().index('  "train": "none.bin"') + 1
        assert refused(d, path) == [f"{path}:{line}:3: data.train: {missing}"]
        assert refused(d, path, "--set", "data.train=none.bin") == [f"{path}: --set data.train: {missing}"]
