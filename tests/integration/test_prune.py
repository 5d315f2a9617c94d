"""Old runs are removed with their files, as whole runs, under all faults."""

import json
import random
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from clocks import DAY_S, YEAR_S, Clocks
from helpers import Daemon, RpcError, experiment, folders, ids, refusal, spec, trash, wait_for
from test_ctl_daemon import ctl


def ended(c, *names):
    for run in [c.submit(spec(name)) for name in names]:
        c.wait(run)


def test_rules(daemon):
    with daemon() as d, d.client() as c:
        ended(c, "a", "fail.r0.s1", "b", "c", "fail.r0.s1-x", "d")
        c.call("keep", id=3)
        waits = c.submit(spec("ms50", 1000))

        def would(**params):
            return [run["id"] for run in c.call("prune", dry_run=True, **params)["runs"]]

        assert would(keep=0) == [1, 2, 4, 5, 6]
        assert would(keep=2) == [1, 2, 4]
        assert would(keep=2, state="done") == [1] and would(keep=5) == would(keep=99) == []
        assert would(state="failed") == [2, 5] and would(state="cancelled") == []
        assert would(older_than_s=3600) == [] and would(older_than_s=0) == [1, 2, 4, 5, 6]
        page = c.call("prune", dry_run=True, keep=0, limit=2)
        assert page["next"] == 2 and page["bytes"] == sum(run["bytes"] for run in page["runs"])
        assert would(keep=0, after=2, limit=2) == [4, 5]

        def stay(**params):
            return c.call("prune", dry_run=True, **params)["kept"]

        assert stay(keep=0) == {"marked": 1, "newest": 0} and stay(keep=2) == {"marked": 1, "newest": 2}
        assert stay(keep=99) == {"marked": 1, "newest": 5} and stay(state="failed") == {"marked": 0, "newest": 0}
        assert stay(keep=1, state="done") == {"marked": 1, "newest": 1}
        assert stay(keep=2, older_than_s=3600) == {"marked": 0, "newest": 0}
        # of a page those between its ids, and on the last one all that come after
        assert stay(keep=1, limit=2) == {"marked": 0, "newest": 0}
        assert stay(keep=1, limit=2, after=2) == {"marked": 1, "newest": 0}
        assert stay(keep=1, limit=2, after=5) == {"marked": 0, "newest": 1}
        c.call("keep", id=3, kept=False)
        assert would(keep=0) == [1, 2, 3, 4, 5, 6]
        assert ids(c) == [1, 2, 3, 4, 5, 6, waits] and trash(d) == []
        for params in ({}, {"keep": -2}, {"older_than_s": -5}, {"state": "running"}, {"state": "odd"},
                {"keep": 1, "limit": 0}):
            assert refusal(c.call, "prune", **params).code == -32602, params
        assert refusal(c.call, "keep", id=99).code == -32003
        c.call("cancel", id=waits)


@pytest.mark.parametrize("what", [{"keep": -1}, {"older_than_s": -1}, {"older_than_s": 2**63 - 1}, {"state": "done", "after": -1},
    {"state": "done", "limit": 0}])
def test_numbers_that_mean_nothing(daemon, what):
    """Least of all "remove everything"."""
    with daemon() as d, d.client() as c:
        c.wait(c.submit(spec()))
        assert refusal(c.call, "prune", **what).code == -32602
        assert c.state(1) == "done"


def test_one_that_cannot_be_removed(daemon):
    """It stays and is reported; the others are removed."""
    with daemon() as d, d.client() as c:
        for _ in range(3):
            ended = c.wait(c.submit(spec()))
        inside = Path(ended["dir"]).parent / "1-run" / "mounted"
        inside.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", inside], capture_output=True, check=False).returncode:
            pytest.skip("nothing can be mounted here")
        try:
            for removed in (2, 0):
                refused = refusal(c.call, "prune", keep=0)
                assert f"run 1: {d.state}/runs/.trash/1-run: cannot be removed: Device or resource busy" in refused.message
                assert f"runs that could not be removed: 1, removed: {removed}" in refused.message
                assert ids(c) == [1]
        finally:
            subprocess.run(["umount", d.state / "runs" / ".trash" / "1-run" / "mounted"], check=False)
        assert [run["id"] for run in c.call("prune", keep=0)["runs"]] == [1]


def test_removal(daemon):
    with daemon() as d:
        with d.client() as c:
            ended(c, "a", "b")
            assert c.wait(c.submit(experiment()))["state"] == "done"
            (d.state / "runs" / "1-a" / "deep" / "er").mkdir(parents=True)
            (d.state / "runs" / "1-a" / "deep" / "er" / "file").write_bytes(b"x" * 1000)
            outside = d.home / "outside"
            outside.write_text("mine")
            (d.state / "runs" / "1-a" / "link").symlink_to(outside)
            (d.state / "runs" / "1-a" / "up").symlink_to(d.home)
            result = c.call("prune", keep=1)
            assert [run["id"] for run in result["runs"]] == [1, 2] and result["bytes"] > 1000
            assert ids(c) == [3] and folders(d) == [3] and trash(d) == []
            assert outside.read_text() == "mine"
            counts = c.call("status")["counts"]
            assert counts["done"] == 1
            assert refusal(c.call, "show", id=1).code == -32003
            assert c.call("logs", id=3)["lines"] != []
        d.stop()
        d.start()
        with d.client() as c:
            assert c.call("status")["counts"] == counts
            assert c.submit(spec("next")) == 4


def test_all_attempts_go(daemon):
    with daemon() as d:
        with d.client() as c:
            run = c.submit(spec("held", restart=True))
            wait_for(lambda: c.state(run) == "running", "the run")
        d.kill()
        d.unhold()
        d.start()
        with d.client() as c:
            assert c.wait(run)["state"] == "done"
            assert folders(d) == [1, 1]
            c.call("prune", keep=0)
            assert folders(d) == [] and trash(d) == [] and ids(c) == []


@pytest.mark.parametrize("seed", range(4))
def test_killed_while_it_removes(tmp_path, seed):
    """kill -9 at any point: listed runs have their files, others have none, and the trash empties."""
    dice = random.Random(seed)
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            ended(c, *[f"r{i}" for i in range(12)])
        for folder in (d.state / "runs").glob("[0-9]*"):
            for i in range(300):
                (folder / f"file{i}").write_bytes(b"x")
        for _ in range(3):
            with d.client() as c:
                before = ids(c)
                c.ask("prune", keep=0)
                time.sleep(dice.random() * 0.06)
                d.kill()
            d.start()
            with d.client() as c:
                left = ids(c)
                assert set(left) <= set(before) and folders(d) == left
                for run in left:
                    assert len(c.call("artifacts", id=run)["files"]) == 302
                wait_for(lambda: trash(d) == [], "the trash is empty")
        with d.client() as c:
            assert c.wait(c.submit(spec("next")))["state"] == "done"


def kept(c, run):
    try:
        return c.call("keep", id=run)
    except RpcError as busy:
        assert busy.code == -32005
        return None


def test_settings(daemon):
    with daemon(options=["--retain-runs", "3"]) as d, d.client() as c:
        for i in range(8):  # the first may have gone before the last is there
            c.submit(spec(f"r{i}"))
        wait_for(lambda: ids(c) == [6, 7, 8], "the older ones are gone")
        assert c.wait(8)["state"] == "done" and ids(c) == [6, 7, 8] == folders(d)
        wait_for(lambda: kept(c, 6), "a moment at which nothing is selected")
        ended(c, "more")
        wait_for(lambda: len(ids(c)) == 4, "a look after the run")
        assert ids(c) == [6, 7, 8, 9]


DAY_NS = 86400 * 10 ** 9


def aged(d, days):
    """As if the runs had ended so many days ago: {run: days}."""
    with sqlite3.connect(d.state / "gpt2d.db") as db:
        for run, n in days.items():
            db.execute("update runs set ended_ns = ended_ns - ? where id = ?", (n * DAY_NS, run))
    db.close()


@pytest.mark.parametrize("options, left", [
    (("--retain-days", "7"), [1, 3, 4, 5]),
    (("--retain-days", "7", "--retain-runs", "2"), [1, 4, 5]),  # kept ones are not counted
    (("--retain-days", "2", "--retain-runs", "4"), [1, 4, 5]),
])
def test_days(daemon, options, left):
    """A run is removed as soon as one rule applies; the daemon checks at its start, without a request."""
    with daemon() as d:
        with d.client() as c:
            ended(c, "a", "b", "c", "d", "e")
            c.call("keep", id=1)
        d.stop()
        aged(d, {1: 30, 2: 8, 3: 3})
        d.command += options
        d.start()
        with d.client() as c:
            wait_for(lambda: ids(c) == left, f"runs {left} and no others")
            assert folders(d) == left
            assert c.wait(c.submit(spec("more")))["state"] == "done"


NOT_BY_AGE = "gpt2d removes no run for its age until it has run for 24 h"


def test_a_clock_that_jumps_ahead(tmp_path):
    """Runs that only look old stay, until the clock is right again, or for a day."""
    clocks = Clocks(tmp_path)
    with Daemon(home=tmp_path, environment=clocks.environment, options=("--retain-days", "30")) as d, d.client() as c:
        ended(c, "a", "b")
        clocks.set(utc_s=10 * YEAR_S)
        ended(c, "c")
        wait_for(lambda: NOT_BY_AGE in d.said(), "the clock is not believed")
        assert "(expected about " in d.said()
        assert ids(c) == [1, 2, 3]
        clocks.set(utc_s=0)
        ended(c, "d")
        wait_for(lambda: "trusts the clock again" in d.said(), "the clock is believed")
        assert ids(c) == [1, 2, 3, 4]
        clocks.set(utc_s=10 * YEAR_S)
        ended(c, "e")
        wait_for(lambda: d.said().count(NOT_BY_AGE) == 2, "the clock is not believed again")
        assert ids(c) == [1, 2, 3, 4, 5]
        clocks.set(utc_s=10 * YEAR_S + DAY_S, boot_s=DAY_S)
        ended(c, "f")
        wait_for(lambda: ids(c) == [3, 5, 6], "what ended before the years that passed has gone")


def test_a_clock_that_is_far_ahead_at_the_start(tmp_path):
    """As after years without power: the same, and a new start meanwhile changes nothing."""
    clocks = Clocks(tmp_path)
    with Daemon(home=tmp_path, environment=clocks.environment, options=("--retain-days", "30")) as d:
        with d.client() as c:
            ended(c, "a", "b")
        clocks.set(utc_s=10 * YEAR_S)
        for n in (1, 2):
            d.stop()
            d.start()
            with d.client() as c:
                ended(c, "c")
                wait_for(lambda: d.said().count(NOT_BY_AGE) == n, "the clock is not believed")
                assert ids(c) == [1, 2, 3, 4][:2 + n]
        assert "(expected about " in d.said()
        clocks.set(utc_s=10 * YEAR_S + DAY_S, boot_s=DAY_S)
        with d.client() as c:
            ended(c, "d")
            wait_for(lambda: ids(c) == [3, 4, 5], "what is old has gone")
        d.stop()
        d.start()
        with d.client() as c:
            ended(c, "e")
            assert ids(c) == [3, 4, 5, 6]


def test_ctl(daemon):
    with daemon() as d, d.client() as c:
        ended(c, "a", "fail.r0.s1", "b")
        assert ctl(d, "prune").returncode == 2
        assert ctl(d, "prune", "--older-than", "30").returncode == 2
        result = ctl(d, "prune", "--state", "failed")
        assert result.returncode == 2 and "1 run, " in result.stderr and "confirm with --yes" in result.stderr
        result = ctl(d, "prune", "--older-than", "1h", "-y")
        assert result.returncode == 0 and result.stdout == "no run to remove\n"
        result = ctl(d, "prune", "--state", "failed", "--dry-run")
        assert result.returncode == 0 and "1 run would be removed, " in result.stdout and "stay" not in result.stdout
        assert "\nkept" not in ctl(d, "show", 1).stdout
        assert ctl(d, "keep", 1).stdout == "run 1 is protected from pruning\n"
        assert "\nkept      protected from pruning\n" in ctl(d, "show", 1).stdout
        assert ctl(d, "prune", "--keep", 1, "--dry-run").stdout.endswith(
            "\n2 runs stay: 1 protected by gpt2ctl keep, 1 the newest (--keep)\n")
        assert ctl(d, "prune", "--keep", 5, "--dry-run").stdout == (
            "no run to remove\n3 runs stay: 1 protected by gpt2ctl keep, 2 the newest (--keep)\n")
        assert ctl(d, "prune", "--keep", 0, "--dry-run").stdout.endswith("\n1 run stays: 1 protected by gpt2ctl keep\n")
        assert ctl(d, "prune", "--state", "failed", "--keep", 1, "--dry-run").stdout == (
            "no run to remove\n1 run stays: 1 the newest (--keep)\n")
        result = json.loads(ctl(d, "prune", "--keep", 0, "--yes", "--json").stdout)
        assert result["kept"] == {"marked": 1, "newest": 0}
        assert [run["id"] for run in result["runs"]] == [2, 3] and result["dry_run"] is False
        assert json.loads(ctl(d, "show", 1, "--json").stdout)["run"]["kept"] is True
        assert ctl(d, "keep", 1, "--off").returncode == 0
        assert "\nkept" not in ctl(d, "show", 1).stdout
        assert ctl(d, "prune", "--older-than", "0s", "--yes").stdout.startswith("1 run removed, ")
        assert ids(c) == []
        assert ctl(d, "keep", 1).returncode == 7


def test_prune_leaves_runs_whose_folders_are_away(tmp_path):
    """What gpt2d knows of them is all that leads to them; one that never had a folder goes."""
    with Daemon(home=tmp_path) as d, d.client() as c:
        runs = d.state / "runs"
        for name in ("a", "b", "c", "fail.r0.s2"):
            ended(c, name)
        long, queued = c.submit(spec("long-ms20", 100000)), c.submit(spec("queued"))
        wait_for(lambda: c.state(long) == "running", "its folder")
        for run in (queued, long):
            c.call("cancel", id=run)
            c.wait(run)
        left = [{"id": run, "name": name, "dir": f"{runs}/{run}-{name}"}
            for run, name in enumerate(("a", "b", "c", "fail.r0.s2", "long-ms20"), 1)]
        runs.rename(tmp_path / "away")
        runs.mkdir()

        would = c.call("prune", keep=0, dry_run=True)
        assert [run["id"] for run in would["runs"]] == [queued] and would["left"] == left
        result = ctl(d, "prune", "--keep", 0, "--yes")
        assert (result.returncode, result.stdout) == (1, "1 run removed, 0 B freed\n")
        assert result.stderr == "".join(f"gpt2ctl: run {run['id']} {run['name']} is not removed: {run['dir']} does not exist "
            "(is a disk not mounted?)\nremove its record with --forget\n" for run in left)
        result = ctl(d, "prune", "--keep", 0, "--yes", "--json")
        assert result.returncode == 1 and json.loads(result.stdout)["left"] == left and ids(c) == [1, 2, 3, 4, 5]
        d.stop()
        shutil.rmtree(runs)
        (tmp_path / "away").rename(runs)
        shutil.rmtree(runs / "2-b")

    with Daemon(home=tmp_path) as d, d.client() as c:
        result = ctl(d, "prune", "--keep", 0, "--yes")
        assert result.returncode == 1 and "4 runs removed" in result.stdout and ids(c) == [2]
        assert ctl(d, "prune", "--keep", 0, "--yes", "--forget").stdout == "1 run removed, 0 B freed\n"
        assert ids(c) == [] and folders(d) == [] and ctl(d, "prune", "--keep", 0).returncode == 0
