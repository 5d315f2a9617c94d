"""A state directory that gpt2d did not leave like this: its database removed, an older one restored, all of it moved."""

from pathlib import Path

import pytest

from helpers import Daemon, agrees, experiment, spec


@pytest.fixture
def home(tmp_path):
    return tmp_path


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_folders_that_the_database_does_not_know(home):
    """The database is removed or older than the folders in runs: those stay, and IDs continue above them."""
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
        d.start()
        assert "2 folders (the last is 2-s) of runs that gpt2d.db does not know" in d.said()
        with d.client() as c:
            run = c.submit(spec("s"))
            assert run == 3 and c.wait(run)["state"] == "done"
            assert c.call("prune", keep=0)["runs"]
        assert files(d.state / "runs") == before


def undone(d, work):
    """Its database from when the run was still queued is restored after it is done: the run, and its folder."""
    with d.client() as c:
        c.call("drain")
        run = c.submit(work)
    d.kill()
    copy = {path: path.read_bytes() for path in d.state.glob("gpt2d.db*")}
    d.start()
    with d.client() as c:
        c.call("resume")
        assert c.wait(run)["state"] == "done"
    d.stop()
    for path in d.state.glob("gpt2d.db*"):
        path.unlink()
    for path, content in copy.items():
        path.write_bytes(content)
    return run, d.state / "runs" / f"{run}-{work['name']}"


@pytest.mark.parametrize("work", [spec("s"), experiment("s", repetitions=1)], ids=["single", "experiment"])
def test_a_queued_run_that_has_a_folder(home, work):
    """It is trained again in another folder, and the older folder stays unchanged."""
    with Daemon(home=home) as d:
        run, folder = undone(d, work)
        before = files(folder)
        d.start()
        with d.client() as c:
            assert c.state(run) == "queued"
            c.call("resume")
            end = c.wait(run)
            assert end["state"] == "done" and end["dir"] == f"{folder}.2"
            listed = c.call("artifacts", id=run)
            assert listed["dir"] == end["dir"] and listed["files"] and not listed["missing"]
        assert "its directory has artifacts already" in d.said()
        assert files(folder) == before and agrees(d) == 1


def test_moved_state_directory(home):
    """Earlier runs are found in the new place."""
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
