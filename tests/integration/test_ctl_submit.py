"""gpt2ctl submit against a scripted daemon: files, errors with their lines, trials, the result as exit code."""

import json
import os

import pytest

from client import SPEC, ctl, done, one_object, step
from fake_daemon import FakeDaemon, Refused, follow_script, run_object


def test_spec_errors_before_any_socket(tmp_path, path):
    file = tmp_path / "bad.json"
    file.write_text('{\n "nam": "x",\n "model": {"preset": "nano"},\n "seq_len": "64"\n}\n')
    with FakeDaemon(path) as daemon:
        result = ctl("submit", file, path=path)
    assert result.returncode == 2
    assert daemon.requests == []
    assert f"{file}:2:2: nam: " in result.stderr and f"{file}:4:2: seq_len: " in result.stderr
    assert result.stdout == ""
    value = one_object(ctl("submit", file, "--json", path=path).stdout)
    assert [row["key"] for row in value["error"]["errors"]][0] == "nam"


def test_submit_errors_of_files(tmp_path, path):
    assert ctl("submit", tmp_path / "missing.json", path=path).returncode == 2
    result = ctl("submit", tmp_path, path=path)
    assert result.returncode == 2 and "Is a directory" in result.stderr
    big = tmp_path / "big.json"
    big.write_bytes(b" " * ((1 << 20) + 1))
    assert "at most 1048576 bytes" in ctl("submit", big, path=path).stderr
    for text in ("", "{", "[]", "\x00", "\xff"):
        result = ctl("submit", "-", input=text, path=path)
        assert result.returncode == 2 and result.stderr.startswith("stdin"), text


def submit_reply(params, connection):
    return {"id": 7, "name": "demo", "state": "queued", "spec_sha256": "cd" * 32, "segments": 1, "position": 2}


def show_reply(params, connection):
    return {"run": run_object(7), "segments": [], "transitions": [], "checks": [], "progress": None, "next": None}


def test_submit(spec, path):
    with FakeDaemon(path, submit=submit_reply, show=show_reply) as daemon:
        result = ctl("submit", spec, "--set", "seq_len=128", path=path)
        from_stdin = ctl("submit", "-", "--print-id", input=spec.read_text(), path=path)
        as_json = ctl("submit", spec, "--json", path=path)
        assert ctl("submit", spec, "--name", "other", path=path).returncode == 0
        quoted = spec.parent / "quoted.json"
        quoted.write_text(json.dumps({**SPEC, "seq_len": "64"}))
        wrong = ctl("submit", quoted, "--set", "seq_len=128", path=path).stderr
        assert "quoted.json:1:" in wrong and ': seq_len: whole number expected, found the string "64"' in wrong, wrong
        assert "demo.json: --name: \"a/b\"" in ctl("submit", spec, "--name", "a/b", path=path).stderr
    assert [params["spec"]["name"] for params in daemon.asked("submit")] == ["demo"] * 3 + ["other"]
    assert result.returncode == 0
    assert "run 7 demo queued, 2 ahead" in result.stdout
    assert "artifacts /state/runs/7-demo" in result.stdout
    assert daemon.asked("submit")[0]["spec"]["seq_len"] == 128
    assert from_stdin.returncode == 0 and from_stdin.stdout == "7\n"
    assert one_object(as_json.stdout)["id"] == 7


def test_submit_names_the_arms(tmp_path, path):
    file = tmp_path / "ab.json"
    file.write_text(json.dumps({**SPEC, "arms": {"a": {}, "b": {"zero_optimization": {"reduce_bucket_size": 10000}}}, "design": {"repetitions": 2, "aa_control": False}}))
    with FakeDaemon(path, submit=submit_reply, show=show_reply):
        result = ctl("submit", file, path=path)
        value = one_object(ctl("submit", file, "--json", path=path).stdout)
    assert result.returncode == 0, result.stderr
    assert value["arms"] == ["a", "b"] and "arms      a, b" in result.stdout


def test_submit_of_one_arm(tmp_path, path):
    """A user who wrote arms wants a comparison."""
    file = tmp_path / "a.json"
    file.write_text(json.dumps({**SPEC, "arms": {"a": {}}, "design": {"repetitions": 2}}))
    with FakeDaemon(path, submit=submit_reply, show=show_reply):
        result = ctl("submit", file, path=path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith("\nwarning: the spec has one arm, so nothing is compared: add another arm\n")


def test_submit_warns_as_a_dry_run_does(spec, path):
    """A run that is queued at once would do without the words otherwise."""
    checks = [{"arm": "a", "spec_sha256": "aa" * 32, "check": {"warnings": ["both"]}},
        {"arm": "b", "spec_sha256": "bb" * 32, "check": {"warnings": ["both", "al\x1bone"]}}]
    with FakeDaemon(path, submit=submit_reply, show=lambda *args: {**show_reply(*args), "checks": checks}):
        result = ctl("submit", spec, path=path)
        value = one_object(ctl("submit", spec, "--json", path=path).stdout)
        assert ctl("submit", spec, "--print-id", path=path).stdout == "7\n"
    assert result.returncode == 0
    assert result.stdout.endswith("\nwarning: both\nwarning: arm b: al?one\n")
    assert value["warnings"] == ["both", "arm b: al\x1bone"]
    with FakeDaemon(path, submit=submit_reply, show=show_reply):
        assert "warning" not in ctl("submit", spec, path=path).stdout
        assert one_object(ctl("submit", spec, "--json", path=path).stdout)["warnings"] == []


def test_submit_refused_by_the_daemon(spec, path):
    def submit(params, connection):
        raise Refused(-32002, "refused", {"errors": [{"line": 3, "key": "gpus", "message": "2 asked, 1 there"}]})
    with FakeDaemon(path, submit=submit):
        result = ctl("submit", spec, path=path)
    assert result.returncode == 2
    # the file's line, not that of what was sent
    line = next(n for n, text in enumerate(spec.read_text().splitlines(), 1) if '"gpus"' in text)
    assert line != 3 and f"{spec}:{line}:3: gpus: 2 asked, 1 there" in result.stderr


def test_submit_to_one_that_is_stopping(spec, path):
    """The message says that nothing was queued."""
    def stopping(params, connection):
        raise Refused(-32005, "gpt2d is stopping; submit it again once gpt2d is back", {"queued": False})

    with FakeDaemon(path, submit=stopping):
        result = ctl("submit", spec, path=path)
    assert result.returncode == 10
    assert result.stderr == ("gpt2ctl: gpt2d is stopping; submit it again once gpt2d is back\n"
        "the run is not queued\n")


def test_a_product_names_what_is_given(spec, path):
    """Not gpus if the user did not give it."""
    text = json.loads(spec.read_text())
    del text["gpus"]
    spec.write_text(json.dumps(text))
    with FakeDaemon(path):
        result = ctl("submit", spec, "--set", "gradient_accumulation_steps=16777216", "--set",
            "train_micro_batch_size_per_gpu=16777216", path=path)
    assert result.returncode == 2
    assert "16777216 x gradient_accumulation_steps 16777216 = 281474976710656 is not allowed, a train_batch_size of at most" in result.stderr


def test_paths_are_made_absolute(tmp_path, path):
    tokens = tmp_path / "t.bin"
    tokens.write_bytes(b"ab" * 5000)
    file = tmp_path / "s.json"
    file.write_text(json.dumps({**SPEC, "data": {"train": "t.bin"}}))
    with FakeDaemon(path, submit=submit_reply, show=show_reply) as daemon:
        assert ctl("submit", file, path=path, cwd="/").returncode == 0
        assert ctl("submit", "-", path=path, cwd=tmp_path, input=file.read_text()).returncode == 0
    for params in daemon.asked("submit"):
        assert params["spec"]["data"]["train"] == str(tokens)


@pytest.mark.parametrize("state, exit", [("done", 0), ("failed", 4), ("cancelled", 6), ("interrupted", 6)])
def test_submit_follow_returns_by_result(spec, path, state, exit):
    run = run_object(7, state="running")
    follow = follow_script(run, [step(1, 1), step(20, 2), done(3, state, "why: because")])
    with FakeDaemon(path, submit=submit_reply, show=show_reply, follow=follow):
        result = ctl("submit", spec, "--follow", path=path)
        quiet = ctl("submit", spec, "--follow", "--print-id", path=path)
    assert result.returncode == exit
    assert "step 20/20" in result.stdout and f"{state}: why: because" in result.stdout
    assert quiet.returncode == exit
    assert quiet.stdout == "7\n" and "step 20/20" in quiet.stderr


def test_dry_run(spec, path):
    plan = {"asked_reduce_elems": 1000000, "asked_gather_elems": 500000000, "reduce_elems": 1048576, "n_reduce": 8,
        "gather_elems": 8388608, "n_gather": 1, "arena_elems": 8388608, "elem_bytes": 4}
    memory = {"parameters_bytes": 33554432, "total_bytes": 99999999, "activations_bytes": 13439074304,
        "activations_none_bytes": 20284178432, "activations_selective_bytes": 13439074304, "activations_full_bytes": 3427270656}
    check = {"plan": plan, "memory": memory,
        "data": {"train": {"path": "/x.bin", "tokens": 32769, "needed": 32769}}, "warnings": ["memory is short"]}

    def dry_run(params, connection):
        return {"spec": params["spec"], "spec_sha256": "ef" * 32, "segments": 1,
            "order": [{"block": 1, "position": 1, "arm": "run"}],
            "arms": [{"arm": "run", "spec_sha256": "ef" * 32, "check": check}]}
    with FakeDaemon(path, **{"dry-run": dry_run}) as daemon:
        result = ctl("submit", spec, "--dry-run", path=path)
        as_json = ctl("submit", spec, "-n", "--json", path=path)
        verbose = ctl("submit", spec, "-n", "--verbose", path=path)
    assert result.returncode == 0
    assert "nothing is queued" in result.stdout
    assert "8 buckets of 1,048,576 el (4.19 MB), requested 1,000,000 el" in result.stdout
    assert "1 bucket of 8,388,608 el (33.6 MB), requested 500,000,000 el" in result.stdout
    assert "warning: memory is short" in result.stdout
    assert result.stdout.endswith("warning: memory is short\n")
    assert "memory: parameters     33.6 MB" in result.stdout and "32,769 tokens, 32,769 required" in result.stdout
    assert "activations with       none 20.3 GB, selective 13.4 GB, full 3.43 GB" in result.stdout
    assert "_bytes" not in result.stdout and '"reduce_bucket_size"' not in result.stdout
    assert '"reduce_bucket_size"' in verbose.stdout
    assert one_object(as_json.stdout)["arms"][0]["check"] == check
    assert daemon.asked("submit") == []


def test_dry_run_of_arms(spec, path):
    """Common lines are printed once, differences by arm."""
    def check(reduce, warnings):
        return {"memory": {"total_bytes": 1000, "activations_bytes": reduce}, "warnings": warnings,
            "work": {"optimizer_steps": 30, "micro_steps": 60, "tokens": 61440, "left_over_sequences": 0}}

    def dry_run(params, connection):
        understood = {**SPEC, "name": "ab", "zero_optimization": {"reduce_bucket_size": 500}, "seed": 1,
            "arms": {"a": {}, "b": {"zero_optimization": {"reduce_bucket_size": 64}}, "c": {}}}
        return {"spec": understood, "spec_sha256": "ef" * 32, "segments": 6, "order": [],
            "arms": [{"arm": "a", "spec_sha256": "aa" * 32, "check": check(1, ["both"])},
                {"arm": "b", "spec_sha256": "bb" * 32, "check": check(2000, ["both", "alone"])},
                {"arm": "c", "spec_sha256": "aa" * 32, "check": check(1, ["both"])}]}
    with FakeDaemon(path, **{"dry-run": dry_run}):
        text = ctl("submit", spec, "--dry-run", path=path).stdout
    assert "ab: 3 arms, 6 segments" in text
    assert text.count("61,440 tokens") == 1 and text.index("61,440 tokens") < text.index("\narm a")
    assert "  zero_optimization.reduce_bucket_size: 64 (a: 500)\n" in text
    assert "  the same as a\n" in text
    assert text.index("\narm b") < text.index("memory: activations    2.00 kB") < text.index("\narm c")
    assert text.endswith("\nwarning: both\nwarning: arm b: alone\n")
    assert max(map(len, text.splitlines())) <= 80


def test_dry_run_tells_of_an_arm_what_differs(spec, path):
    """An arm with another model has one line per changed key; equal keys are not listed."""
    nano = {"n_layer": 2, "gelu": "tanh", "tied_head": True, "dropout": 0}
    understood = {**SPEC, "name": "ab", "seed": 1, "model": {"preset": "nano", **nano}, "arms": {"a": {},
        "b": {"model": {"preset": "nano", **nano, "dropout": 0.1}}, "c": {"model": nano, "seed": 1},
        "d": {"seed": 2**53 - 1, "scheduler": {"type": "WarmupLR"}}}}

    def dry_run(params, connection):
        return {"spec": understood, "spec_sha256": "ef" * 32, "segments": 5, "order": [],
            "arms": [{"arm": name, "spec_sha256": "aa" * 32, "check": {}} for name in "abcd"]}
    with FakeDaemon(path, **{"dry-run": dry_run}):
        text = ctl("submit", spec, "--dry-run", path=path).stdout
    printed = {part[0]: part.splitlines()[1:] for part in text.split("\narm ")[1:]}
    assert [line.strip() for line in printed["b"] if line.strip()] == ['model.preset: "custom" (a: "nano")', "model.dropout: 0.1 (a: 0)"]
    assert [line.strip() for line in printed["c"] if line.strip()] == ["the same as a"]
    differences = [line.strip() for line in printed["d"] if line.strip()]
    assert 'scheduler.type: "WarmupLR" (a: "Constant")' in differences
    assert f"seed: {2**53 - 1} (a: 1)" in differences and "scheduler.params.warmup_min_lr: 0 (a: absent)" in differences


def test_sweep(spec, path):
    """A grid of two keys: base, and an arm for each combination; options for the design."""
    def submit(params, connection):
        return {"id": 4, "name": "demo", "state": "queued", "spec_sha256": "ab" * 32, "segments": 1, "position": 0, "waiting": None}
    sweep = ["--sweep", "zero_optimization.reduce_bucket_size=5e4,1e5", "--sweep", "zero_optimization.overlap_comm=true"]
    with FakeDaemon(path, submit=submit) as daemon:
        result = ctl("submit", spec, *sweep, "--repetitions", 16, "--margin", 0.02, "--print-id", path=path)
        assert (result.returncode, result.stdout) == (0, "4\n"), result
        sent = daemon.asked("submit")[0]["spec"]
        assert list(sent["arms"])[:3] == ["base", "5e4_true", "1e5_true"]
        assert sent["arms"]["5e4_true"]["zero_optimization"]["reduce_bucket_size"] == 50000
        assert sent["design"]["repetitions"] == 16 and sent["design"]["margin"] == 0.02
        wrong = ctl("submit", spec, "--sweep", "zero_optimization.reduce_bucket=5e4", path=path)
        assert wrong.returncode == 2 and "zero_optimization.reduce_bucket_size" in wrong.stderr


def test_dry_run_of_a_design(spec, path):
    plan = {"asked_reduce_elems": 9, "asked_gather_elems": 9, "reduce_elems": 8, "n_reduce": 1, "gather_elems": 8, "n_gather": 1,
        "arena_elems": 8, "elem_bytes": 4}
    understood = {**SPEC, "name": "ab", "zero_optimization": {"stage": 1, "reduce_bucket_size": 500}, "arms": {"a": {},
        "b": {"zero_optimization": {"reduce_bucket_size": 64}}, "c": {"zero_optimization": {"reduce_bucket_size": 90}}},
        "design": {"repetitions": 4, "mirrored": True, "spare_blocks": 1, "margin": 0.01}}

    def dry_run(params, connection):
        return {"spec": understood, "spec_sha256": "ef" * 32, "segments": 24, "order": [], "arms": [
            {"arm": name, "spec_sha256": "aa" * 32, "check": {"plan": {**plan, "n_reduce": n}}} for name, n in (("a", 1), ("b", 2), ("c", 1))]}
    with FakeDaemon(path, **{"dry-run": dry_run}):
        text = ctl("submit", spec, "--dry-run", path=path).stdout
    assert "4 blocks of 3 arms, mirrored, at most 1 more for void ones, margin 1%\n" in text
    assert "fewer than 8 blocks give figures, and no verdict\n" in text
    assert text.count("identical plan") == 1 and text.index("\narm c") < text.index("identical plan")
    assert text.count("ZeRO stage             1\n") == 1


def test_relative_paths_of_a_pipe(tmp_path, path):
    """As for "-": a pipe, such as that of <(jq . spec.json), has no directory of its own."""
    (tmp_path / "train.bin").write_bytes(b"ab" * 5000)
    text = json.dumps({**SPEC, "data": {"train": "train.bin"}})
    reader, writer = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)
    with FakeDaemon(path, submit=submit_reply, show=show_reply) as daemon:
        result = ctl("submit", f"/dev/fd/{reader}", path=path, cwd=tmp_path, pass_fds=[reader])
    os.close(reader)
    assert result.returncode == 0, result.stderr
    sent = daemon.asked("submit")[0]["spec"]
    sent = json.loads(sent) if isinstance(sent, str) else sent
    assert sent["data"]["train"] == str(tmp_path / "train.bin")
