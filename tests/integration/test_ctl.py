"""gpt2ctl against a scripted daemon: exit codes, JSON, errors, following, robustness."""

import itertools
import json
import os
import pty
import select
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from fake_daemon import FakeDaemon, Refused, follow_script, run_object

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GPT2D_BUILD", ROOT / "build"))
CTL = BUILD / "ctl" / "gpt2ctl"

SPEC = {
    "name": "demo",
    "model": {"preset": "nano"},
    "data": {"kind": "synthetic", "synthetic_tokens": 100000},
    "seq_len": 64,
    "gpus": 2,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 1,
    "work": {"optimizer_steps": 20},
}


def environment(path=None, **more):
    env = {key: value for key, value in os.environ.items()
        if key not in ("GPT2D_SOCKET", "XDG_RUNTIME_DIR", "NO_COLOR", "COLUMNS")}
    env["TERM"] = "xterm"
    if path:
        env["GPT2D_SOCKET"] = str(path)
    env.update(more)
    return env


def ctl(*args, path=None, input=None, env=None, timeout=60, **more):
    return subprocess.run([CTL, *map(str, args)], input=input, capture_output=True, text=True,
        env=environment(path, **(env or {})), timeout=timeout, **more)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s"


@pytest.fixture
def spec(tmp_path):
    file = tmp_path / "demo.json"
    file.write_text(json.dumps(SPEC, indent=2))
    return file


def step(n, seq, **more):
    return ("run.step", {"seq": seq, "segment": 0, "segments": 1, "block": 0, "arm": "run", "step": n, "steps": 20,
        "loss": 5.5 - n / 10, "tokens_per_sec": 12345.0, "step_time_ns": 1000000, "eta_s": 1.0, **more})


def done(seq, state="done", reason=None, dropped=0):
    return ("run.done", {"seq": seq, "state": state, "reason": reason, "dir": "/state/runs/1-demo", "dropped": dropped})


def one_object(text):
    lines = text.splitlines()
    assert len(lines) == 1, text
    value = json.loads(lines[0])
    assert value["schema"] == 1
    return value


# ---- the command line ----

@pytest.mark.parametrize("args, says", [
    (["submti", "x"], "did you mean submit?"),
    (["stat"], "did you mean status?"),
    (["frobnicate"], "no such verb"),
    (["status", "--jsno"], "did you mean --json?"),
    (["data"], "did you mean data prepare?"),
    (["show"], "ID needed"),
    (["show", "1", "2"], "too many"),
    (["show", "abc"], "not a run's id"),
    (["show", "0"], "not a run's id"),
    (["list", "--limit", "-1"], "-1 is not allowed, from 0"),
    (["list", "--limit", "2.5"], "whole number"),
    (["list", "--limit"], "N is needed"),
    (["status", "--json=yes"], "takes no value"),
    (["status", "-version"], "-version: no such option; did you mean --version?"),
    (["status", "-qx"], "-qx: no such option"),
    (["list", "-qn"], "-qn: N is needed"),
    (["list", "-qn-1"], "-1 is not allowed, from 0"),
    (["wait", "--timeout", "nan", "1"], "a number is needed"),
    (["status", "--socket", "x" * 200], "at most 107 bytes, this has 200"),
    (["submit", "--dry-run", "--follow", "x"], "--dry-run queues nothing"),
    (["submit", "--verbose", "x"], "--verbose is for --dry-run"),
])
def test_usage(args, says):
    result = ctl(*args)
    assert result.returncode == 2
    assert says in result.stderr
    assert result.stdout == ""


def test_letters_stand_together(path):
    with FakeDaemon(path, list=lambda params, connection: {"runs": [run_object()], "next": None}) as daemon:
        assert one_object(ctl("list", "-jn", "3", path=path).stdout)["kind"] == "list"
        assert one_object(ctl("list", "-jn3", path=path).stdout)["kind"] == "list"
        assert one_object(ctl("-j", "list", "--limit=3", path=path).stdout)["kind"] == "list"
        assert [params["limit"] for params in daemon.asked("list")] == [3, 3, 3]
        quiet = ctl("list", "-q", path=path)
        assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
        assert one_object(ctl("list", "-qj", path=path).stdout)["kind"] == "list"
    quiet = ctl("list", "-q", path=path)
    assert quiet.returncode == 3 and quiet.stdout == "" and "not running" in quiet.stderr


def test_two_dashes_end_the_options(tmp_path, path):
    result = ctl("submit", "--", "-no-such-file", path=path, cwd=tmp_path)
    assert result.returncode == 2 and "-no-such-file: No such file" in result.stderr
    assert "-5: not a run's id" in ctl("show", "-5", path=path).stderr


def test_no_verb_is_usage():
    result = ctl()
    assert result.returncode == 2 and "usage:" in result.stderr


def verbs():
    return json.loads(ctl("help", "--json").stdout)["verbs"]


def test_help_of_every_verb():
    names = [verb["name"] for verb in verbs()]
    assert {"submit", "status", "list", "show", "follow", "wait", "cancel", "compare", "data prepare", "shutdown",
        "version", "help"} <= set(names)
    for name in names:
        result = ctl("help", *name.split())
        assert result.returncode == 0 and f"usage: gpt2ctl {name}" in result.stdout
        assert result.stdout == ctl(*name.split(), "--help").stdout
        assert max(map(len, result.stdout.splitlines())) <= 80
    assert ctl("help", "nothing").returncode == 2
    assert ctl("--version").stdout.startswith("gpt2ctl 0.1.0")


# ---- no daemon, wrong daemon ----

NEEDS_DAEMON = (["status"], ["list"], ["show", "1"], ["follow", "1"], ["wait", "1"], ["cancel", "1"], ["compare", "1"],
    ["shutdown"], ["drain"], ["resume"], ["release"], ["warm"], ["priority", "1", "2"], ["rerun", "1"])


@pytest.mark.parametrize("args", NEEDS_DAEMON, ids=lambda args: args[0])
def test_no_daemon(args, path):
    result = ctl(*args, path=path)
    assert result.returncode == 3
    assert f"gpt2d is not running ({path}: No such file or directory)" in result.stderr
    assert "start one with" in result.stderr


def test_no_socket_at_all(path):
    result = ctl("status", path=path.parent)
    assert result.returncode == 3
    assert f"{path.parent}: a directory, the socket of a gpt2d is expected" in result.stderr
    path.write_text("")
    result = ctl("status", path=path)
    assert result.returncode == 3
    assert f"{path}: a file, the socket of a gpt2d is expected" in result.stderr


def test_stale_socket_is_no_daemon(path):
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    result = ctl("status", "--json", path=path)
    assert result.returncode == 3
    assert one_object(result.stdout)["error"]["exit"] == 3


def test_version_without_daemon(path):
    result = ctl("version", "--json", path=path)
    assert result.returncode == 0
    value = one_object(result.stdout)
    assert value["gpt2d"] is None and value["gpt2ctl"]["protocol"] == 1


def test_version_of_both(path):
    with FakeDaemon(path):
        result = ctl("version", path=path)
    assert result.returncode == 0
    assert "gpt2ctl 0.1.0" in result.stdout and "gpt2d 0.1.0 (build fake)" in result.stdout


def test_socket_choice(tmp_path):
    """--socket before GPT2D_SOCKET before the user's own before the system's."""
    own = tmp_path / "gpt2d" / "gpt2d.sock"
    own.parent.mkdir()
    missing = tmp_path / "missing"
    assert "/run/gpt2d/gpt2d.sock" in ctl("status", env={"XDG_RUNTIME_DIR": str(tmp_path)}).stderr
    with FakeDaemon(own):
        assert ctl("version", env={"XDG_RUNTIME_DIR": str(tmp_path)}).stdout.count("fake") == 1
        assert "fake" not in ctl("version", path=missing, env={"XDG_RUNTIME_DIR": str(tmp_path)}).stdout
        assert "fake" in ctl("version", "--socket", own, path=missing).stdout


@pytest.mark.parametrize("refuses", [True, False])
def test_version_mismatch(path, refuses):
    def hello(params, connection):
        versions = {"protocol": 7, "build": "newer"}
        if refuses:
            raise Refused(-32001, "protocol 1, 7 is needed", versions)
        return {**versions, "pid": 1}
    with FakeDaemon(path, hello=hello) as daemon:
        result = ctl("status", path=path)
    assert result.returncode == 8
    assert "gpt2ctl speaks protocol 1" in result.stderr and "gpt2d speaks 7 (build newer)" in result.stderr
    assert "restart" in result.stderr
    assert [method for method, _ in daemon.requests] == ["hello"]


def test_build_mismatch(path):
    def hello(params, connection):
        raise Refused(-32001, f"client is build {params['build']}, gpt2d is build newer: restart gpt2d")
    with FakeDaemon(path, hello=hello):
        result = ctl("status", path=path)
    assert result.returncode == 8
    assert "gpt2d is build newer" in result.stderr and "start it again" in result.stderr


@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x01\x02\n", b"{}\n", b"[1]\n", b'{"jsonrpc":"2.0",'])
def test_no_gpt2d_on_the_socket(path, says):
    def hello(params, connection):
        connection.send(says)
        connection.close()
    with FakeDaemon(path, hello=hello):
        result = ctl("status", path=path)
    assert result.returncode == 1
    assert result.stderr.startswith("gpt2ctl: ")


def test_permission(path):
    if os.getuid() == 0:
        pytest.skip("root may connect to any socket")
    with FakeDaemon(path):
        os.chmod(path, 0)
        result = ctl("status", path=path)
    assert result.returncode == 1 and "Permission denied" in result.stderr


@pytest.mark.parametrize("code, exit", [(-32002, 2), (-32003, 7), (-32004, 2), (-32005, 1), (-32006, 1), (-32603, 1),
    (-32602, 2)])
def test_exit_of_refusals(path, code, exit):
    def show(params, connection):
        raise Refused(code, "the reason\x1b[31m")
    with FakeDaemon(path, show=show):
        result = ctl("show", 3, path=path)
    assert result.returncode == exit
    assert "the reason?[31m" in result.stderr


def test_daemon_dies_before_the_reply(path):
    with FakeDaemon(path, status=lambda params, connection: connection.close()):
        result = ctl("status", path=path)
    assert result.returncode == 1
    assert "closed the connection" in result.stderr


# ---- submit ----

def test_spec_errors_before_any_socket(tmp_path, path):
    file = tmp_path / "bad.json"
    file.write_text('{\n "nam": "x",\n "model": {"preset": "nano"},\n "seq_len": "64"\n}\n')
    with FakeDaemon(path) as daemon:
        result = ctl("submit", file, path=path)
    assert result.returncode == 2
    assert daemon.requests == []
    assert f"{file}:2: nam: " in result.stderr and f"{file}:4: seq_len: " in result.stderr
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
    assert result.returncode == 0
    assert "run 7 demo queued, 2 before it" in result.stdout
    assert "artifacts /state/runs/7-demo" in result.stdout
    assert daemon.asked("submit")[0]["spec"]["seq_len"] == 128
    assert from_stdin.returncode == 0 and from_stdin.stdout == "7\n"
    assert one_object(as_json.stdout)["id"] == 7


def test_submit_names_the_arms(tmp_path, path):
    file = tmp_path / "ab.json"
    file.write_text(json.dumps({**SPEC, "arms": {"a": {}, "b": {"zero_optimization": {"reduce_bucket_size": 10000}}}, "design": {"repetitions": 2}}))
    with FakeDaemon(path, submit=submit_reply, show=show_reply):
        result = ctl("submit", file, path=path)
        value = one_object(ctl("submit", file, "--json", path=path).stdout)
    assert result.returncode == 0, result.stderr
    assert value["arms"] == ["a", "b"] and "arms      a, b" in result.stdout


def test_submit_refused_by_the_daemon(spec, path):
    def submit(params, connection):
        raise Refused(-32002, "refused", {"errors": [{"line": 3, "key": "gpus", "message": "2 asked, 1 there"}]})
    with FakeDaemon(path, submit=submit):
        result = ctl("submit", spec, path=path)
    assert result.returncode == 2
    # the file's line, not that of what was sent
    line = next(n for n, text in enumerate(spec.read_text().splitlines(), 1) if '"gpus"' in text)
    assert line != 3 and f"{spec}:{line}: gpus: 2 asked, 1 there" in result.stderr


def test_submit_with_an_unknown_end(spec, path):
    with FakeDaemon(path, submit=lambda params, connection: connection.close()):
        result = ctl("submit", spec, path=path)
    assert result.returncode == 1
    assert "whether the run is queued is not known" in result.stderr


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


def test_a_line_of_progress_fits(path):
    name = "n" * 60
    events = [step(1, 1, name=name), step(20, 2, name=name), done(3)]
    with FakeDaemon(path, follow=follow_script(run_object(1, name, state="running"), events)):
        lines = ctl("follow", 1, path=path).stdout.splitlines()
    assert [len(line) <= 80 for line in lines if "step 20/20" in line] == [True]


def test_dry_run(spec, path):
    plan = {"asked_reduce_elems": 1000000, "asked_gather_elems": 500000000, "reduce_elems": 1048576, "n_reduce": 8,
        "gather_elems": 8388608, "n_gather": 1, "arena_elems": 8388608, "elem_bytes": 4}
    check = {"plan": plan, "memory": {"parameters_bytes": 33554432, "total_bytes": 99999999},
        "data": {"train": {"path": "/x.bin", "tokens": 32769, "needed": 32769}}, "warnings": ["memory is short"]}

    def dry_run(params, connection):
        return {"spec": params["spec"], "spec_sha256": "ef" * 32, "segments": 1,
            "order": [{"block": 0, "position": 0, "arm": "run"}],
            "arms": [{"arm": "run", "spec_sha256": "ef" * 32, "check": check}]}
    with FakeDaemon(path, **{"dry-run": dry_run}) as daemon:
        result = ctl("submit", spec, "--dry-run", path=path)
        as_json = ctl("submit", spec, "-n", "--json", path=path)
        verbose = ctl("submit", spec, "-n", "--verbose", path=path)
    assert result.returncode == 0
    assert "nothing is queued" in result.stdout
    assert "8 buckets of 1,048,576 el (4.19 MB), asked 1,000,000 el" in result.stdout
    assert "1 bucket of 8,388,608 el (33.6 MB), asked 500,000,000 el" in result.stdout
    assert "warning: memory is short" in result.stdout
    assert result.stdout.endswith("warning: memory is short\n")
    assert "parameters           33.6 MB" in result.stdout and "32,769 tokens, 32,769 needed" in result.stdout
    assert "_bytes" not in result.stdout and '"reduce_bucket_size"' not in result.stdout
    assert '"reduce_bucket_size"' in verbose.stdout
    assert one_object(as_json.stdout)["arms"][0]["check"] == check
    assert daemon.asked("submit") == []


def test_dry_run_of_arms(spec, path):
    """What is common is told once, what differs by the arm."""
    def check(reduce, warnings):
        return {"memory": {"total_bytes": 1000, "activations_bytes": reduce}, "warnings": warnings,
            "work": {"optimizer_steps": 30, "micro_steps": 60, "tokens": 61440, "left_over_sequences": 0}}

    def dry_run(params, connection):
        understood = {"name": "ab", "zero_optimization": {"reduce_bucket_size": 500}, "seed": 1,
            "arms": {"a": {}, "b": {"zero_optimization": {"reduce_bucket_size": 64}}, "c": {}}}
        return {"spec": understood, "spec_sha256": "ef" * 32, "segments": 6, "order": [],
            "arms": [{"arm": "a", "spec_sha256": "aa" * 32, "check": check(1, ["both"])},
                {"arm": "b", "spec_sha256": "bb" * 32, "check": check(2000, ["both", "alone"])},
                {"arm": "c", "spec_sha256": "aa" * 32, "check": check(1, ["both"])}]}
    with FakeDaemon(path, **{"dry-run": dry_run}):
        text = ctl("submit", spec, "--dry-run", path=path).stdout
    assert "ab: 3 arms, 6 segments" in text
    assert text.count("61,440 tokens") == 1 and text.index("61,440 tokens") < text.index("\narm a")
    assert "  differs from a:\n    zero_optimization.reduce_bucket_size 64, not 500\n" in text
    assert "  the same as a\n" in text
    assert text.index("\narm b") < text.index("activations          2.00 kB") < text.index("\narm c")
    assert text.endswith("\nwarning: both\nwarning: arm b: alone\n")
    assert max(map(len, text.splitlines())) <= 80


# ---- the other verbs ----

def status_reply(params, connection):
    return {
        "daemon": {"pid": 4, "uid": 0, "version": "0.1.0", "build": "fake", "state": "serving", "uptime_s": 61.0,
            "rss_bytes": 9000000, "socket": "/s", "state_dir": "/state", "clients": 1},
        "engine": {"state": "ready", "reason": None, "program": "gpt2-engine-cpu", "threads": 1, "restarts": 0,
            "retry_in_s": None, "ranks": [{"rank": 0, "pid": 11, "state": "ready", "device": {"name": "cpu"}}]},
        "running": {"run": run_object(3, state="running"), "progress": step(10, 1, eta_s=5.0)[1]},
        "waiting": None, "queued": 4, "counts": {"done": 2, "queued": 4, "running": 1}}


def test_status(path):
    with FakeDaemon(path, status=status_reply):
        text = ctl("status", path=path)
        value = one_object(ctl("status", "--json", path=path).stdout)
    assert text.returncode == 0
    for part in ("gpt2d 0.1.0", "rank 0", "cpu", "3 demo: running", " 50%", "queued  4", "2 done"):
        assert part in text.stdout
    assert value["kind"] == "status" and value["queued"] == 4


def test_list_pages(path):
    def page(params, connection):
        assert params["newest"] is True
        last = params.get("after", 2501) - 1
        ids = range(last, max(last - params["limit"], 0), -1)
        return {"runs": [run_object(i, f"r{i}", "done") for i in ids],
            "next": ids[-1] if len(ids) == params["limit"] else None}
    with FakeDaemon(path, list=page):
        newest = one_object(ctl("list", "--json", path=path).stdout)
        everything = one_object(ctl("list", "--limit", 0, "--json", path=path).stdout)
        text = ctl("list", "--limit", 3, path=path).stdout.splitlines()
    assert [run["id"] for run in newest["runs"]] == list(range(2451, 2501)) and newest["older"]
    assert [run["id"] for run in everything["runs"]] == list(range(1, 2501)) and not everything["older"]
    assert [line.split()[0] for line in text[-3:]] == ["2498", "2499", "2500"]


def test_list_empty_and_state(path):
    with FakeDaemon(path, list=lambda params, connection: {"runs": [], "next": None}) as daemon:
        assert ctl("list", "--state", "failed", path=path).stdout == "no runs\n"
    assert daemon.asked("list")[0]["state"] == "failed"


def test_cancel(path):
    reply = {"id": 3, "state": "cancelled", "already": False}
    with FakeDaemon(path, cancel=lambda params, connection: reply):
        assert ctl("cancel", 3, path=path).stdout == "run 3 is cancelled\n"
        reply["already"] = True
        result = ctl("cancel", 3, path=path)
    assert result.returncode == 0 and "nothing to cancel" in result.stdout


def test_shutdown(path):
    with FakeDaemon(path, shutdown=lambda params, connection: {"running": None}) as daemon:
        assert ctl("shutdown", path=path).returncode == 0
        assert ctl("shutdown", "--now", "--json", path=path).returncode == 0
    assert [params["now"] for params in daemon.asked("shutdown")] == [False, True]


def segment(number, arm, times, **more):
    tokens = 100 * len(times)
    return {"segment": number, "block": number // 2, "position": number % 2, "arm": arm, "state": "done", "reason": "",
        "started_at": None, "ended_at": None, "dir": "", "summary": {
            "tokens_measured": tokens, "seconds_measured": sum(times) / 1e9, "tok_s_global": tokens * 1e9 / sum(times),
            "step_time_ns": times, "exposed_comm_mean_s": 1e-4, "forward_mean_s": 1e-3, "backward_mean_s": 2e-3,
            "optimizer_mean_s": 1e-4, "data_mean_s": 1e-5, "losses": [5.0, 4.0], "loss_hash": "aa",
            "init_ns": 4000000, "switch_ns": 12000000 if number else None, "steps_skipped": 0,
            "plan": {"reduce_elems": 64, "n_reduce": 8 if arm == "B" else 1, "gather_elems": 64, "n_gather": 8,
                "arena_elems": 512, "elem_bytes": 4}, **more}}


def experiment(*segments):
    def show(params, connection):
        return {"run": run_object(5, "ab", "done", segments=len(segments)), "spec": {}, "checks": [],
            "segments": list(segments), "transitions": [], "progress": None, "next": None}
    return show


def test_compare(path):
    ms = 1000000
    show = experiment(segment(0, "A", [10 * ms] * 20, switch_ns=29000 * ms), segment(1, "B", [8 * ms] * 19 + [16 * ms]),
        segment(2, "B", [8 * ms] * 20, losses=[5.0, 4.25], loss_hash="bb"), segment(3, "A", [10 * ms] * 20))
    with FakeDaemon(path, show=show):
        value = one_object(ctl("compare", 5, "--json", path=path).stdout)
        text = ctl("compare", 5, path=path, env={"LC_ALL": "C"})
        unicode_text = ctl("compare", 5, path=path, env={"LC_ALL": "C.UTF-8"}).stdout
        reversed_value = one_object(ctl("compare", 5, "--json", "--baseline", "B", path=path).stdout)
        unknown = ctl("compare", 5, "--baseline", "nothing", path=path)
        near = ctl("compare", 5, "--baseline", "AA", path=path)
    assert unknown.returncode == 2 and near.returncode == 2
    assert unknown.stderr.endswith("no such arm; its arms: A, B\n")
    assert "its arms: A, B; did you mean A?" in near.stderr
    a, b = value["arms"]
    assert (a["arm"], a["steps"], a["median_ns"], a["p95_ns"], a["low_n"]) == ("A", 40, 10 * ms, 10 * ms, False)
    assert (b["median_ns"], b["p95_ns"]) == (8 * ms, 8 * ms) # rank 38 of 40
    assert a["tok_s"] == pytest.approx(10000) and b["tok_s"] == pytest.approx(4000 / 0.328)
    assert a["losses_identical"] and not b["losses_identical"] and b["max_loss_diff"] == 0.25
    assert value["equal_tokens"] and value["verdict"] is None
    assert [block["ratios"][0]["tok_s_ratio"] for block in value["blocks"]] == pytest.approx([200 / 168, 1.25])
    assert value["ratios"][0]["tok_s_ratio"] == pytest.approx(0.4 / 0.328)
    assert value["ratios"][0]["step_time_ratio"] == pytest.approx(0.328 / 0.4)
    assert reversed_value["ratios"][0]["arm"] == "A"
    assert text.returncode == 0 and text.stdout.isascii()
    assert "B / A  throughput +21.95%  step time -18.00%" in text.stdout
    assert "#####" in text.stdout
    assert "no verdict: intervals are not computed yet (2 blocks; a verdict needs 8)" in text.stdout
    assert "\u2588" in unicode_text
    assert "SWITCH TO     MEAN  INITIALISATION IN IT\nA          12.0 ms               4.00 ms\n" in text.stdout
    assert max(len(line) for line in unicode_text.splitlines()) <= 80
    assert "skipped" not in text.stdout


def test_compare_of_steps_that_are_not_listed(path):
    """A long segment's steps are not in its summary: its own percentiles are, and no list's."""
    long = {"step_time_ns": None, "losses": None, "step_median_ns": 777, "step_p95_ns": 999, "steps_skipped": 2}
    with FakeDaemon(path, show=experiment(segment(0, "A", [1000], **long))):
        one = one_object(ctl("compare", 5, "--json", path=path).stdout)["arms"][0]
        text = ctl("compare", 5, path=path).stdout
    with FakeDaemon(path, show=experiment(segment(0, "A", [1000], **long), segment(1, "A", [1000]))):
        two = one_object(ctl("compare", 5, "--json", path=path).stdout)["arms"][0]
    assert (one["steps"], one["median_ns"], one["p95_ns"], one["low_n"]) == (None, 777, 999, False)
    assert one["exposed_comm_mean_s"] == pytest.approx(1e-4) and one["losses_identical"]
    assert (two["steps"], two["median_ns"], two["p95_ns"]) == (None, None, None)
    assert "skipped steps: A 2" in text


def test_compare_is_honest_about_what_is_missing(path):
    failed = {**segment(3, "B", [5]), "state": "failed", "summary": None}
    unequal = segment(1, "B", [2000], tokens_measured=77, losses=[None, 1.0], loss_hash="cc")
    with FakeDaemon(path, show=experiment(segment(0, "A", [1000]), unequal, segment(2, "A", [1000]), failed)):
        value = one_object(ctl("compare", 5, "--json", path=path).stdout)
        text = ctl("compare", 5, path=path).stdout
    assert value["segments_left_out"] == 1 and not value["equal_tokens"]
    assert value["arms"][0]["p95_ns"] is None and value["arms"][0]["low_n"]
    assert value["arms"][1]["max_loss_diff"] is None
    assert value["ratios"][0]["blocks"] == 1 and value["blocks"][1]["ratios"] == []
    assert "NOT equal" in text and "n<20" in text and "not comparable" in text
    with FakeDaemon(path, show=experiment(failed)):
        result = ctl("compare", 5, path=path)
    assert result.returncode == 2 and "nothing to compare yet" in result.stderr


def test_show(path):
    plan = {"reduce_elems": 64, "n_reduce": 1, "gather_elems": 124439808, "n_gather": 13, "elem_bytes": 4}

    def show(params, connection):
        first = params.get("after", -1) + 1
        rows = [segment(i, "AB"[i % 2], [10]) for i in range(first, min(first + 2, 5))]
        return {"run": run_object(5, "ab", "failed", reason="engine_lost: rank 1 killed by signal 9"), "spec": {},
            "checks": [{"arm": "A", "spec_sha256": "11" * 32, "check": {"plan": plan}}],
            "segments": rows, "transitions": [{"at": "2026-01-08T19:50:57.123Z", "state": "queued", "reason": ""}],
            "progress": None, "next": first + 1 if first + 2 < 5 else None}
    with FakeDaemon(path, show=show):
        text = ctl("show", 5, path=path).stdout
        value = one_object(ctl("show", 5, "--json", path=path).stdout)
    assert [row["segment"] for row in value["segments"]] == [0, 1, 2, 3, 4]
    assert "failed: engine_lost: rank 1 killed by signal 9" in text
    assert "1 bucket of 64 el" in text and "/state/runs/5-ab" in text
    assert max(map(len, text.splitlines())) <= 80


def mutations(value):
    """The value with one part at a time taken away or replaced by something of another type."""
    if isinstance(value, dict):
        keys, items = list(value), dict
    elif isinstance(value, list):
        keys, items = list(range(min(len(value), 1))), list
    else:
        return
    for key in keys:
        for other in (None, -1, 1e300, "x\x1b[2J" * 20, [], {}, [[{}]], {"a": [None]}, True):
            copy = items(value)
            copy[key] = other
            yield copy
        for inner in mutations(value[key]):
            copy = items(value)
            copy[key] = inner
            yield copy


def test_replies_of_any_shape(path):
    """Nothing that a daemon sends ends gpt2ctl in a crash, moves the cursor or breaks --json."""
    show = experiment(segment(0, "A", [10]), segment(1, "B", [10]))
    check = {"plan": segment(0, "A", [1])["summary"]["plan"], "memory": {"a_bytes": 1}}
    replies = {
        ("status",): ("status", status_reply(None, None)),
        ("show", "5"): ("show", {**show(None, None), "progress": step(1, 1)[1],
            "checks": [{"arm": "A", "spec_sha256": "a", "check": check}],
            "transitions": [{"at": "2026-01-08T19:50:57.123Z", "state": "queued", "reason": ""}]}),
        ("compare", "5"): ("show", show(None, None)),
        ("list",): ("list", {"runs": [run_object()], "next": None}),
        ("cancel", "1"): ("cancel", {"id": 1, "state": "done", "already": True}),
        ("version",): ("version", {"version": "1", "build": "b", "protocol": 1, "libraries": {"x": "1"}}),
    }
    current = []
    with FakeDaemon(path, **{method: lambda params, connection: current[0]
            for method in ("status", "show", "list", "cancel")}) as daemon:
        daemon.methods["version"] = lambda params, connection: current[0]
        for args, (method, reply) in replies.items():
            for number, mutant in enumerate(itertools.islice(mutations(reply), 0, None, 3)):
                current[:] = [mutant]
                result = ctl(*args, *["--json"] * (number % 2), path=path)
                assert result.returncode in (0, 1, 2), (args, mutant, result.stderr)
                assert "\x1b" not in result.stdout + result.stderr
                if number % 2:
                    one_object(result.stdout)


# ---- follow and wait ----

def test_follow_plain_lines(path):
    events = [("run.state", {"seq": 1, "state": "running", "reason": None})]
    events += [step(n, n + 1) for n in range(1, 21)] + [done(22)]
    with FakeDaemon(path, follow=follow_script(run_object(), events)):
        result = ctl("follow", 1, path=path)
    assert result.returncode == 0
    assert "\x1b" not in result.stdout and "\r" not in result.stdout
    lines = result.stdout.splitlines()
    assert lines[0] == "run 1 demo: running"
    assert 10 <= sum("tok/s" in line for line in lines) <= 12
    assert "step 20/20  loss 3.5000  12.3 k tok/s" in lines[-3]
    assert lines[-2:] == ["run 1 demo: done", "artifacts: /state/runs/1-demo"]


def test_follow_json_lines(path):
    with FakeDaemon(path, follow=follow_script(run_object(), [step(1, 1), done(2, dropped=3)])):
        result = ctl("follow", 1, "--json", path=path)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["run.step", "run.done"]
    assert all(line["schema"] == 1 and line["id"] == 1 for line in lines)


def read_pty(args, path, width=100, rows=24, until=None, send=None, env=None):
    """Everything the program writes on a terminal, and its exit code."""
    import fcntl
    import struct
    import termios
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, width, 0, 0))
    process = subprocess.Popen([CTL, *map(str, args)], stdin=slave, stdout=slave, stderr=slave, close_fds=True,
        env=environment(path, LC_ALL="C.UTF-8", **(env or {})), start_new_session=True)
    os.close(slave)
    text, deadline, sent = b"", time.monotonic() + 30, False
    while time.monotonic() < deadline:
        if not select.select([master], [], [], 0.2)[0]:
            if process.poll() is not None:
                break
            continue
        try:
            piece = os.read(master, 65536)
        except OSError: # the other side is closed
            break
        if not piece:
            break
        text += piece
        if until and not sent and until in text:
            send(process)
            sent = True
    os.close(master)
    return text.decode(), process.wait(30)


def test_follow_on_a_terminal(path):
    def slowly(connection):
        for n in range(1, 21):
            connection.notify(*[step(n, n)[0]], id=1, **step(n, n)[1])
            time.sleep(0.06)
        connection.notify("run.done", id=1, **done(21)[1])
    with FakeDaemon(path, follow=follow_script(run_object(), [], slowly)):
        text, code = read_pty(["follow", 1], path, width=100)
        brief, _ = read_pty(["follow", 1], path, width=72)
        narrow, _ = read_pty(["follow", 1], path, width=40)
        plain, _ = read_pty(["follow", 1], path, env={"NO_COLOR": "1"})
        dumb, _ = read_pty(["follow", 1], path, env={"TERM": "dumb"})
    assert code == 0
    assert "\r\x1b[K" in text and "\u2588" in text and "\x1b[36m" in text and "100%" in text
    assert " left" in text
    assert "\r\x1b[Krun 1 demo  [" in text
    assert "\r\x1b[K[" in brief and "\u2588" in brief and "step 20/20" in brief and " left" in brief
    assert text.replace("\r\n", "\n").endswith("done\x1b[0m\nartifacts: /state/runs/1-demo\n")
    for frame in narrow.split("\r"):
        line = frame.replace("\x1b[K", "").replace("\n", "")
        if "tok/s" in line:
            assert len(line) < 40
    assert "\x1b[3" not in plain and "\u2588" in plain
    assert "\x1b" not in dumb


def test_interrupting_follow_detaches(path):
    with FakeDaemon(path, follow=follow_script(run_object(state="running"), [step(3, 1)])) as daemon:
        text, code = read_pty(["follow", 1], path, until=b"step 3/20",
            send=lambda process: process.send_signal(signal.SIGINT))
    assert code == 6
    assert "detached; run 1 goes on" in text and "gpt2ctl cancel 1" in text
    assert daemon.asked("cancel") == []


@pytest.mark.parametrize("state, exit", [("done", 0), ("failed", 4), ("cancelled", 6), ("interrupted", 6)])
def test_follow_of_an_ended_run(path, state, exit):
    with FakeDaemon(path, follow=follow_script(run_object(state=state), [done(1, state)])):
        assert ctl("follow", 1, path=path).returncode == exit


def test_no_such_run(path):
    def follow(params, connection):
        raise Refused(-32003, f"run {params['id']}: no such run")
    with FakeDaemon(path, follow=follow):
        assert ctl("follow", 9, path=path).returncode == 7
        text = ctl("wait", 9, path=path)
        result = ctl("wait", 9, "--json", path=path)
    assert text.stdout == "" and "run 9: no such run" in text.stderr
    assert result.returncode == 7
    assert one_object(result.stdout)["runs"][0]["exit"] == 7


def test_wait_of_several(path):
    states = {1: "done", 2: "failed", 3: "cancelled", 4: "done"}

    def follow(params, connection):
        state = states.get(params["id"])
        if not state:
            raise Refused(-32003, "no such run")
        return follow_script(run_object(params["id"]), [done(1, state)])(params, connection)
    with FakeDaemon(path, follow=follow):
        assert ctl("wait", 1, 4, path=path).returncode == 0
        assert ctl("wait", 1, 3, 4, path=path).returncode == 6
        assert ctl("wait", 3, 2, 1, path=path).returncode == 4
        result = ctl("wait", 9, 2, 1, path=path)
        value = one_object(ctl("wait", 1, 2, 3, "--json", path=path).stdout)
    assert result.returncode == 7
    assert "run 2 demo: failed" in result.stdout and "run 1 demo: done" in result.stdout
    assert [run["exit"] for run in value["runs"]] == [0, 4, 6] and value["exit"] == 4


def test_wait_timeout(path):
    with FakeDaemon(path, follow=follow_script(run_object(state="running"), [])):
        result = ctl("wait", 1, "--timeout", "0.3", path=path)
    assert result.returncode == 124
    assert "has not ended in time" in result.stderr


def test_daemon_comes_back(path):
    """Killed in mid-run: the follower connects again and goes on after the last event it saw."""
    first = FakeDaemon(path, follow=follow_script(run_object(state="running"), [step(5, 4)],
        lambda connection: connection.close()))
    with first:
        process = subprocess.Popen([CTL, "follow", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(path))
        assert process.stdout.readline() == "run 1 demo: running\n"
        assert "step 5/20" in process.stdout.readline()
        first.methods["follow"] = follow_script(run_object(state="running"), [step(5, 4), step(20, 5), done(6)])
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "looking for it again" in err
    assert out.count("step 5/20") == 0 and out.count("step 20/20") == 1
    assert first.asked("follow") == [{"id": 1}, {"id": 1, "after": 4}]


def test_daemon_comes_back_as_another_process(path):
    """Numbers start anew with a new daemon: nothing is taken for seen."""
    first = FakeDaemon(path, follow=follow_script(run_object(state="running"), [step(5, 40)]))
    with first:
        process = subprocess.Popen([CTL, "follow", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(path))
        assert process.stdout.readline() == "run 1 demo: running\n"
        assert "step 5/20" in process.stdout.readline()
    second = FakeDaemon(path, follow=follow_script(run_object(state="queued"), [step(9, 1), done(2, "interrupted")]))
    second.pid = 1
    with second:
        out, err = process.communicate(timeout=30)
    assert process.returncode == 6
    assert "step 9/20" in out
    assert second.asked("follow") == [{"id": 1}]


def test_daemon_does_not_come_back(path):
    daemon = FakeDaemon(path, follow=follow_script(run_object(state="running"), [step(5, 1)])).start()
    process = subprocess.Popen([CTL, "follow", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(path))
    assert process.stdout.readline() == "run 1 demo: running\n"
    assert "step 5/20" in process.stdout.readline()
    daemon.stop()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "how run 1 ended is not known" in err and "gpt2ctl show 1" in err


def test_a_connection_lost_twice_is_enough(path):
    lose = follow_script(run_object(state="running"), [], lambda connection: connection.close())
    with FakeDaemon(path, follow=lose) as daemon:
        result = ctl("follow", 1, path=path)
    assert result.returncode == 1
    assert len(daemon.asked("follow")) == 2


# ---- what cannot be written ----

def test_full_stdout(path):
    with FakeDaemon(path, status=status_reply), open("/dev/full", "w") as full:
        process = subprocess.run([CTL, "status"], stdout=full, stderr=subprocess.PIPE, text=True, env=environment(path))
    assert process.returncode == 1
    assert "stdout: No space left on device" in process.stderr


def test_closed_pipe(path):
    """A reader that goes away ends follow; the run goes on."""
    events = [step(n % 20 + 1, n + 1) for n in range(2000)]
    with FakeDaemon(path, follow=follow_script(run_object(state="running"), events)) as daemon:
        process = subprocess.Popen([CTL, "follow", "1", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment(path))
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == b""
        process.stderr.close()
    assert daemon.asked("cancel") == []


@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_a_reader_that_leaves_early(path, json_too):
    """Nothing is said of it, whether the output fits the buffers or not."""
    for n in (1, 2000):
        page = {"runs": [run_object(i, f"r{i}", "done") for i in range(n, 0, -1)], "next": None}
        read, write = os.pipe()
        os.close(read)
        with FakeDaemon(path, list=lambda params, connection: page):
            process = subprocess.run([CTL, "list", *json_too], stdout=write, stderr=subprocess.PIPE, text=True,
                env=environment(path))
        os.close(write)
        assert (process.returncode, process.stderr) == (141, "")


def test_events_in_pieces(path):
    """Bytes may come one at a time or many lines at once."""
    text = b"".join(json.dumps({"jsonrpc": "2.0", "method": method, "params": {"id": 1, **params}}).encode() + b"\n"
        for method, params in [step(1, 1), step(2, 2), done(3)])

    def slowly(connection):
        for i in range(0, len(text) - 200):
            connection.send(text[i:i + 1])
        connection.send(text[len(text) - 200:])
    with FakeDaemon(path, follow=follow_script(run_object(), [], slowly)):
        result = ctl("follow", 1, "--json", path=path)
    assert result.returncode == 0 and len(result.stdout.splitlines()) == 3
