"""A state directory that is not as gpt2d left it: its database removed, an older one restored, all of it moved."""

import subprocess
from pathlib import Path

import pytest

from helpers import Daemon, experiment, spec


@pytest.fixture
def home(tmp_path):
    return tmp_path


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_folders_that_the_database_does_not_know(home):
    """The database is removed or older than what lies in runs: that is left alone, ids go on above it."""
    with Daemon(home=home) as d:
        with d.client() as c:
            for name in ("old", "s"):
                run = c.submit(spec(name))
                assert c.wait(run)["state"] == "done"
        before = files(d.state / "runs")
        assert before
        d.stop()
        for path in d.state.glob("gpt2d.db*"):
            if not path.name.endswith(".lock"):
                path.unlink()
        checked = subprocess.run([*d.command, "--check"], capture_output=True, text=True, timeout=60)
        assert "2 folders (the last is 2-s) of runs that gpt2d.db does not know" in checked.stdout
        d.start()
        assert "2 folders (the last is 2-s) of runs that gpt2d.db does not know" in d.said()
        with d.client() as c:
            run = c.submit(spec("s"))
            assert run == 3 and c.wait(run)["state"] == "done"
            assert c.call("prune", keep=0)["runs"]
        assert files(d.state / "runs") == before


@pytest.mark.parametrize("kind", ["single", "experiment"])
def test_artifacts_of_a_time_that_was_undone(home, kind):
    """A copy of the database, with the run still queued in it, is restored after the run is done."""
    with Daemon(home=home) as d:
        with d.client() as c:
            c.call("drain")
            run = c.submit(spec("s") if kind == "single" else experiment("s", repetitions=1))
        d.kill()
        copy = {path: path.read_bytes() for path in d.state.glob("gpt2d.db*")}
        d.start()
        with d.client() as c:
            c.call("resume")
            assert c.wait(run)["state"] == "done"
        d.stop()
        before = files(d.state / "runs" / f"{run}-s")
        for path in d.state.glob("gpt2d.db*"):
            path.unlink()
        for path, content in copy.items():
            path.write_bytes(content)
        d.start()
        with d.client() as c:
            c.call("resume")
            end = c.wait(run)
            assert end["state"] == "done" and end["dir"].endswith(f"/{run}-s.2") and c.call("show", id=run)["run"]["attempt"] == 2
            listed = c.call("artifacts", id=run)
            assert listed["dir"] == end["dir"] and listed["files"] and not listed["missing"]
        assert files(d.state / "runs" / f"{run}-s") == before
        assert "its folder has artifacts already" in d.said()


def test_one_folder_is_told_as_one(home):
    with Daemon(home=home) as d:
        assert d.stop() == 0
        (d.state / "runs/9-x").mkdir()
        checked = subprocess.run([*d.command, "--check"], capture_output=True, text=True, timeout=60)
        said = "1 folder (the last is 9-x) of runs that gpt2d.db does not know"
        assert said in checked.stdout
        d.start()
        assert said in d.said()
        with d.client() as c:
            assert c.submit(spec("next")) == 10


def test_moved_state_directory(home):
    """Runs of before are found where they are now."""
    with Daemon(home=home) as d:
        with d.client() as c:
            run = c.submit(experiment("moved", repetitions=1))
            assert c.wait(run)["state"] == "done"
            before = c.call("artifacts", id=run)
        d.stop()
        moved = d.state.parent / "runs" / "1-elsewhere"
        moved.parent.mkdir()
        d.state.rename(moved)
        d.command[d.command.index("--state-dir") + 1] = str(moved)
        d.start()
        with d.client() as c:
            now = c.call("artifacts", id=run)
            assert now["dir"] == f"{moved}/runs/{run}-moved" != before["dir"]
            assert now["files"] == before["files"] and not now["missing"]
            for segment in c.call("show", id=run)["segments"]:
                assert segment["dir"].startswith(now["dir"] + "/segments/") and Path(segment["dir"]).is_dir()
