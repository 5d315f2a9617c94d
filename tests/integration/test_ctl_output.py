"""gpt2ctl's output for replies of a scripted daemon, and errors of writing it."""

import subprocess

import pytest

from client import CTL, ctl, done, environment, experiment, one_object, segment, status_reply, step
from fake_daemon import FakeDaemon, follow_script, run_object
from terminal import Terminal


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


def test_list_of_several_states(path):
    """By ID, each run once, as many as requested, over several pages."""
    states = {i: "done" for i in range(1, 2001)} | {1: "failed", 3: "failed", 5: "queued", 7: "running", 1008: "failed", 1999: "queued"}

    def page(params, connection):
        assert "state" not in params
        ids = [i for i in sorted(states, reverse=True) if i < params.get("after", 9999)][:params["limit"]]
        return {"runs": [run_object(i, f"r{i}", states[i]) for i in ids], "next": ids[-1] if len(ids) == params["limit"] else None}
    for args, expected, older in (((), "1f 3f 5q 7r 1008f 1999q", False), (("-n", 4), "5q 7r 1008f 1999q", True), (("-n", 1), "1999q", True),
            (("-n", 0), "1f 3f 5q 7r 1008f 1999q", False)):
        with FakeDaemon(path, list=page):
            value = one_object(ctl("list", "-s", "failed", "--state", "running", "-s", "queued", "-s", "failed", *args, "--json", path=path).stdout)
        assert " ".join(f"{run['id']}{run['state'][0]}" for run in value["runs"]) == expected and value["older"] is older


def test_shutdown(path):
    reply = {"running": None, "stopping": False}
    with FakeDaemon(path, shutdown=lambda params, connection: reply) as daemon:
        assert ctl("shutdown", path=path).stdout == "gpt2d is shutting down\n"
        assert ctl("shutdown", "--now", "--json", path=path).returncode == 0
    assert [params["now"] for params in daemon.asked("shutdown")] == [False, True]
    reply["running"] = 7
    with FakeDaemon(path, shutdown=lambda params, connection: reply):
        assert ctl("shutdown", path=path).stdout.splitlines()[1] == \
            "run 7 is finished first (gpt2ctl shutdown --now stops it); wait for its end with: gpt2ctl wait 7"
        reply["stopping"] = True
        assert ctl("shutdown", "--now", path=path).stdout.splitlines()[1] == "run 7 is being stopped; wait for its end with: gpt2ctl wait 7"


def test_show(path):
    plan = {"reduce_elems": 64, "n_reduce": 1, "gather_elems": 124439808, "n_gather": 13, "elem_bytes": 4}

    def show(params, connection):
        first = params.get("after", 0)
        rows = [segment(i, "AB"[i % 2], [10]) for i in range(first, min(first + 2, 5))]
        return {"run": run_object(5, "ab", "failed", reason="engine_lost: rank 1 killed by signal 9"), "spec": {},
            "checks": [{"arm": "A", "spec_sha256": "11" * 32, "check": {"plan": plan}}],
            "segments": rows, "transitions": [{"at": "2026-01-08T19:50:57.123Z", "state": "queued", "reason": ""}],
            "progress": None, "next": first + 2 if first + 2 < 5 else None}
    with FakeDaemon(path, show=show):
        text = ctl("show", 5, path=path).stdout
        value = one_object(ctl("show", 5, "--json", path=path).stdout)
    assert [row["segment"] for row in value["segments"]] == [1, 2, 3, 4, 5]
    assert "failed: engine_lost: rank 1 killed by signal 9" in text and "\nmessages of the engines: gpt2ctl logs 5\n" in text
    assert "1 bucket of 64 el" in text and "/state/runs/5-ab" in text
    assert max(map(len, text.splitlines())) <= 80


def test_show_of_an_experiment(path):
    """What differs between its arms, and which blocks are void."""
    rows = [segment(i, "AB"[i % 2], [10]) | {"void": "thermal_slowdown"} for i in range(2)]
    show = experiment(*rows)(None, None)
    show["checks"] = [{"arm": arm, "spec_sha256": "11" * 32, "check": {"plan": {}}} for arm in "AB"]
    with FakeDaemon(path, show=lambda params, connection: show):
        text = ctl("show", 5, path=path).stdout
    assert text.count("\n  ranks 2, stage 0\n") == 2
    assert text.count("\n  zero_optimization.reduce_bucket_size: 128 (A: 64)\n") == 1
    assert text.count("block void: thermal_slowdown\n") == 2


# ---- what cannot be written ----

@pytest.mark.parametrize("verb", [["status"], ["metrics"], ["follow", "1"], ["follow", "1", "--json"], ["help"]])
def test_full_stdout(path, verb):
    """The reason is printed, whichever write failed, and nothing false about a run."""
    with FakeDaemon(path, status=status_reply, metrics=lambda params, connection: {"text": "# x\n" * 10000},
            follow=follow_script(run_object(state="running"), [step(20, 1), done(2)])), open("/dev/full", "w") as full:
        process = subprocess.run([CTL, *verb], stdout=full, stderr=subprocess.PIPE, text=True, env=environment(path))
    assert process.returncode == 1
    assert process.stderr.startswith("gpt2ctl: stdout: No space left on device\n")


def on_terminal(path, *words, columns=80, locale="C.UTF-8", **methods):
    """The output lines of a command on a terminal with this many columns."""
    with FakeDaemon(path, **methods), Terminal([str(CTL), *map(str, words)], environment(path, LC_ALL=locale), columns=columns) as terminal:
        assert terminal.end() == 0, terminal.seen
    return terminal.seen.replace("\r\n", "\n").splitlines()


def test_a_hash_is_whole_on_a_narrow_terminal(path):
    sha256 = "0123456789abcdef" * 4
    files = [{"segment": 1, "path": "segments/001-a/metrics.csv", "bytes": 1234567, "sha256": sha256}]
    page = {"id": 1, "name": "demo", "state": "done", "dir": "/state/runs/1-demo", "files": files, "missing": [], "next": None}
    for columns in (40, 80):
        lines = on_terminal(path, "artifacts", 1, columns=columns, artifacts=lambda params, connection: page)
        assert lines[-1].endswith("  " + sha256)
