"""A run's files through the socket: listed, copied, and never anything else."""

import base64
import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import engines
from helpers import experiment, refusal, spec, wait_for
from test_ctl_daemon import CTL, ctl

PIECE = 256 << 10


def finished(c, run):
    number = c.submit(run)
    assert c.wait(number)["state"] == "done"
    return number


def all_files(c, run, **params):
    page = c.call("artifacts", id=run, **params)
    files = page["files"]
    while page["next"] is not None:
        page = c.call("artifacts", id=run, **{**params, "after": page["next"]})
        files += page["files"]
    return files


def test_list(daemon):
    with daemon() as d, d.client() as c:
        run = finished(c, experiment())
        files = all_files(c, run, limit=3)
        assert files == all_files(c, run)
        assert {(f["path"].rsplit("/", 1)[0], f["segment"]) for f in files if f["segment"] is not None} == \
            {(f"segments/{f['segment']:03d}-{f['path'].split('-')[1][0]}", f["segment"])
                for f in files if f["segment"] is not None}
        assert [f["path"] for f in files if f["segment"] is None] == \
            ["RUN_COMPLETE.txt", "experiment.json", "spec.json", "summary.csv"]
        assert len([f for f in files if f["path"].endswith("/training_metrics.json")]) == 8
        for f in files:
            content = (d.state / "runs" / "1-exp" / f["path"]).read_bytes()
            assert (f["bytes"], f["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
        metrics = [f for f in files if f["path"].endswith("metrics.json")]
        assert all(f["announced"] == f["bytes"] for f in metrics)
        assert {f["segment"] for f in all_files(c, run, segment=3)} == {3}
        for params, code in (({"segment": 9}, -32602), ({"limit": 0}, -32602), ({"id": 9}, -32003)):
            assert refusal(c.call, "artifacts", **{"id": run, **params}).code == code
        assert "--segment 9: run 1 has 8 segments, the first is 1" in ctl(d, "artifacts", run, "--segment", 9).stderr
        assert "segments/008-" in ctl(d, "artifacts", run, "--segment", 8).stdout
        shown = c.call("show", id=run)["segments"][0]["artifacts"]
        assert shown == [{"path": "training_metrics.json", "bytes": 13}]


def test_what_a_queued_run_has(daemon):
    with daemon() as d, d.client() as c:
        first, second = c.submit(spec("ms50", 1000)), c.submit(spec("later"))
        assert c.call("artifacts", id=second)["files"] == []
        c.call("cancel", id=first)


def test_pieces(daemon):
    with daemon() as d, d.client() as c:
        run = finished(c, spec("one"))
        content = os.urandom(2 * PIECE + 5)
        (d.state / "runs" / "1-one" / "big.bin").write_bytes(content)
        got = b""
        while len(got) < len(content):
            piece = c.call("artifact-read", id=run, path="big.bin", offset=len(got))
            assert piece["size"] == len(content) and 0 < piece["bytes"] <= PIECE
            got += base64.b64decode(piece["data"], validate=True)
        assert got == content
        assert c.call("artifact-read", id=run, path="big.bin", offset=len(content))["bytes"] == 0
        assert c.call("artifact-read", id=run, path="big.bin", offset=3, bytes=4)["data"] == \
            base64.b64encode(content[3:7]).decode()


def test_no_way_out(daemon):
    """Links, dots, absolute paths, files on the way: nothing outside the run's directory is read."""
    with daemon() as d, d.client() as c:
        run = finished(c, spec("one"))
        here = d.state / "runs" / "1-one"
        (d.state / "runs" / "secret").write_text("secret")
        (here / "link").symlink_to("../secret")
        (here / "up").symlink_to("..")
        os.mkfifo(here / "pipe")
        (here / ".hidden").write_text("secret")
        names = {f["path"] for f in all_files(c, run)}
        assert names == {"RUN_COMPLETE.txt", "training_metrics.json"}
        for path, code in (("link", -32007), ("up/secret", -32007), ("up", -32007), ("pipe", -32007),
                ("none", -32007), ("RUN_COMPLETE.txt/x", -32007), (".hidden", -32602), ("../secret", -32602),
                ("/etc/passwd", -32602), ("x/../../secret", -32602), ("", -32602), (".", -32602),
                ("a//b", -32602), ("x" * 5000, -32602)):
            assert refusal(c.call, "artifact-read", id=run, path=path).code == code, path
        for params in ({"offset": 10 ** 6}, {"offset": -1}, {"bytes": 0}, {"bytes": PIECE + 1}):
            assert refusal(c.call, "artifact-read", id=run, path="RUN_COMPLETE.txt", **params).code == -32602
        assert refusal(c.call, "artifact-read", id=7, path="x").code == -32003


def test_a_folder_that_was_moved(daemon, tmp_path):
    """A link stays in place: the error names it and the next step; it is not followed."""
    with daemon() as d, d.client() as c:
        run = finished(c, spec("one"))
        exp = finished(c, experiment())
        segment = c.call("show", id=exp)["segments"][0]
        for number, folder in ((run, d.state / "runs" / "1-one"), (exp, Path(segment["dir"])),
                (exp, d.state / "runs" / "2-exp")):
            files = all_files(c, number)
            folder.rename(tmp_path / "moved")
            folder.symlink_to(tmp_path / "moved")
            said = f"run {number}: {folder} is a link, and gpt2d follows no links: put the folder in its place"
            result = ctl(d, "artifacts", number)
            assert (result.returncode, result.stderr) == (7, f"gpt2ctl: {said}\n"), result
            assert ctl(d, "artifacts", number, "--segment", 1).stderr == result.stderr
            if folder.parent.name == "runs":
                refused = refusal(c.call, "artifact-read", id=number, path="RUN_COMPLETE.txt")
                assert (refused.code, refused.message) == (-32007, said)
            folder.unlink()
            folder.write_text("")
            result = ctl(d, "artifacts", number)
            assert (result.returncode, result.stderr) == (
                11, f"gpt2ctl: artifacts: run {number}: {folder}: Not a directory\n"), result
            folder.unlink()
            (tmp_path / "moved").rename(folder)
            assert all_files(c, number) == files


def test_copy(daemon, tmp_path):
    with daemon() as d, d.client() as c:
        run = finished(c, experiment())
        source = d.state / "runs" / "1-exp"
        (source / "segments" / "002-b" / "big.bin").write_bytes(os.urandom(3 * PIECE + 1))
        to = tmp_path / "to"
        result = ctl(d, "artifacts", run, "--copy", to)
        assert result.returncode == 0 and result.stderr == "", result
        assert subprocess.run(["diff", "-r", source, to]).returncode == 0
        result = ctl(d, "artifacts", run, "--copy", to, "--json")
        assert {f["result"] for f in json.loads(result.stdout)["files"]} == {"present"}
        # a different file stays unless --force is given, and so does a special file
        (to / "spec.json").write_text("mine")
        (to / "segments" / "002-b" / "big.bin").unlink()
        (to / "segments" / "002-b" / "big.bin").mkdir()
        result = ctl(d, "artifacts", run, "--copy", to)
        assert result.returncode == 1 and (to / "spec.json").read_text() == "mine"
        assert "spec.json: exists with other content; --force replaces it" in result.stderr
        assert "big.bin: exists and is not a regular file" in result.stderr
        (to / "segments" / "002-b" / "big.bin").rmdir()
        assert ctl(d, "artifacts", run, "--copy", to, "--force").returncode == 0
        assert subprocess.run(["diff", "-r", source, to]).returncode == 0
        result = ctl(d, "artifacts", run, "--copy", tmp_path / "no" / "where")
        assert result.returncode == 2 and result.stderr == (f"gpt2ctl: --copy: {tmp_path}/no/where: "
            "parent directory does not exist\n")
        (tmp_path / "link").symlink_to(tmp_path / "no" / "where")
        result = ctl(d, "artifacts", run, "--copy", tmp_path / "link")
        assert (result.returncode, result.stderr) == (2, f"gpt2ctl: --copy: {tmp_path}/link: a link to nothing\n")


def test_copy_to_a_full_disk(daemon, tmp_path):
    """The copy ends with an error that names the folder, the file and the reason."""
    to = tmp_path / "to"
    to.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", str(to)], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        with daemon() as d, d.client() as c:
            run = finished(c, experiment("big-exp"))
            result = ctl(d, "artifacts", run, "--copy", to)
    finally:
        subprocess.run(["umount", str(to)], check=False)
    assert result.returncode == 1, result
    assert re.fullmatch(rf"gpt2ctl: --copy: {to}: \S+: No space left on device\n", result.stderr), result.stderr


def test_copy_stays_in_its_folder(daemon, tmp_path):
    """Links in the folder are not followed: as folder, as file or as partial file."""
    with daemon() as d, d.client() as c:
        run = finished(c, experiment())
        outside, to = tmp_path / "outside", tmp_path / "to"
        outside.mkdir()
        to.mkdir()
        (to / "segments").symlink_to(outside)
        (to / "spec.json").symlink_to(outside / "file")
        result = ctl(d, "artifacts", run, "--copy", to, "--force")
        assert result.returncode == 1 and list(outside.iterdir()) == []
        assert "spec.json: exists as a symbolic link, which gpt2ctl does not follow or replace: remove it" in result.stderr
        said = "segments: a symbolic link, which is not followed: remove it, or choose another directory\n"
        assert result.stderr.count(said) == 8
        assert not (to / "RUN_COMPLETE.txt").exists()


def test_copy_has_its_markers_last(daemon, tmp_path):
    """A folder with RUN_COMPLETE.txt is complete, also if a copy was killed or could not finish."""
    with daemon() as d, d.client() as c:
        run = finished(c, experiment())
        segments = sorted((d.state / "runs" / "1-exp" / "segments").iterdir())
        for at, segment in enumerate(segments):
            (segment / "zz.bin").write_bytes(os.urandom((1 + 5 * (at > 0)) * PIECE))
        cut, to = tmp_path / "cut", tmp_path / "to"
        copying = subprocess.Popen([CTL, "artifacts", str(run), "--copy", cut], stdout=subprocess.DEVNULL,
            env={**os.environ, "GPT2D_SOCKET": str(d.socket)})
        wait_for(lambda: (cut / "segments" / segments[0].name / "zz.bin").exists(), "the first segment's files")
        copying.kill()
        copying.wait()
        # the kill may come late: then there may be markers, with all their files
        if list(cut.rglob("RUN_COMPLETE.txt")):
            assert {path.parent.name for path in cut.rglob("zz.bin")} == {segment.name for segment in segments}
        # a file that cannot be copied costs the markers of its folder and of the run, no other
        (to / "segments" / segments[1].name).mkdir(parents=True)
        (to / "segments" / segments[1].name / "zz.bin").write_text("mine")
        result = ctl(d, "artifacts", run, "--copy", to)
        assert result.returncode == 1 and f"segments/{segments[1].name}/zz.bin is not copied" in result.stderr
        whole = {path.parent.name for path in to.rglob("RUN_COMPLETE.txt")}
        assert whole == {segment.name for segment in segments} - {segments[1].name}
        (to / "segments" / segments[1].name / "zz.bin").unlink()
        assert ctl(d, "artifacts", run, "--copy", to).returncode == 0
        assert (to / "RUN_COMPLETE.txt").exists()
        (segments[0] / "training_metrics.json").unlink()
        other = tmp_path / "other"
        assert ctl(d, "artifacts", run, "--copy", other).returncode == 1
        whole = {path.parent.name for path in other.rglob("RUN_COMPLETE.txt")}
        assert whole == {segment.name for segment in segments} - {segments[0].name}


ALTERED = "its hash is not the one in RUN_COMPLETE.txt"


def altered(result):
    """The messages on standard error about altered files."""
    return "".join(line for line in result.stderr.splitlines(True) if line.startswith("gpt2ctl: altered "))


def test_missing_and_altered(daemon, tmp_path):
    with daemon() as d, d.client() as c:
        run = finished(c, experiment())
        (d.state / "runs" / "1-exp" / "segments" / "001-a" / "training_metrics.json").unlink(missing_ok=True)
        first = c.call("show", id=run)["segments"][0]["arm"]
        here = d.state / "runs" / "1-exp" / "segments"
        (here / f"001-{first}" / "training_metrics.json").unlink(missing_ok=True)
        second = c.call("show", id=run)["segments"][1]["arm"]
        with open(here / f"002-{second}" / "training_metrics.json", "a") as f:
            f.write("more")
        missing = c.call("artifacts", id=run)["missing"]
        assert missing == [{"path": f"segments/001-{first}/training_metrics.json", "segment": 1, "bytes": 13}]
        result = ctl(d, "artifacts", run)
        assert result.returncode == 1
        assert f"missing segments/001-{first}/training_metrics.json: the engine wrote " in result.stderr
        assert altered(result) == f"gpt2ctl: altered segments/002-{second}/training_metrics.json: {ALTERED}\n"
        assert ctl(d, "artifacts", run, "--copy", tmp_path).returncode == 1
        folder = d.state / "runs" / "1-exp"
        folder.rename(tmp_path / "away")
        result = ctl(d, "artifacts", run)
        assert result.returncode == 1 and re.fullmatch(
            rf"gpt2ctl: missing: none of the \d+ files that the engine wrote exists; was {folder} removed, "
            r"or is its disk not mounted\?\n", result.stderr)


@pytest.mark.parametrize("figures", ['{"loss": 1.6}', '{"loss": 1.5, "more": 1}'], ids=["same-length", "other-length"])
def test_altered_metrics_have_no_marker(daemon, tmp_path, figures):
    """A marker is not copied with figures of another hash."""
    with daemon() as d, d.client() as c:
        run = finished(c, spec("one"))
        metrics = d.state / "runs" / "1-one" / "training_metrics.json"
        whole = tmp_path / "whole"
        result = ctl(d, "artifacts", run, "--copy", whole)
        assert (result.returncode, result.stderr) == (0, "") and (whole / "RUN_COMPLETE.txt").exists()
        assert "altered" not in json.loads(ctl(d, "artifacts", run, "--json").stdout)["files"][1]
        good = metrics.read_text()
        assert figures != good
        metrics.write_text(figures)
        said = f"gpt2ctl: altered training_metrics.json: {ALTERED}\n"
        result = ctl(d, "artifacts", run)
        assert (result.returncode, result.stderr) == (1, said)
        result = ctl(d, "artifacts", run, "--json")
        assert (result.returncode, result.stderr) == (1, said)
        assert {f["path"]: f.get("altered") for f in json.loads(result.stdout)["files"]} == \
            {"RUN_COMPLETE.txt": None, "training_metrics.json": ALTERED}
        to = tmp_path / "to"
        result = ctl(d, "artifacts", run, "--copy", to)
        assert (result.returncode, altered(result)) == (1, said)
        assert "RUN_COMPLETE.txt: not copied: training_metrics.json is altered" in result.stderr
        assert {path.name for path in to.iterdir()} == {"training_metrics.json"}
        assert (to / "training_metrics.json").read_text() == figures
        # a complete copy stays complete
        result = ctl(d, "artifacts", run, "--copy", whole, "--force", "--json")
        assert result.returncode == 1
        assert {f["path"]: f["result"] for f in json.loads(result.stdout)["files"]} == \
            {"RUN_COMPLETE.txt": "failed", "training_metrics.json": "differs"}
        assert (whole / "training_metrics.json").read_text() == good and (whole / "RUN_COMPLETE.txt").exists()
        # and an incomplete one becomes complete with the marker's file
        metrics.write_text(good)
        assert ctl(d, "artifacts", run, "--copy", to).returncode == 1
        assert ctl(d, "artifacts", run, "--copy", to, "--force").returncode == 0
        assert subprocess.run(["diff", "-r", whole, to]).returncode == 0


def test_what_the_engine_wrote_is_whole(daemon, tmp_path):
    """The hashes in the markers match the files: nothing is altered, every marker is copied."""
    arms = engines.spec(2, gpus=1, arms={"a": {}, "b": {}}, design={"repetitions": 1})
    with daemon(ranks=1, engine=engines.PROGRAM) as d, d.client() as c:
        for run, markers in ((engines.spec(2, gpus=1), 1), (arms, 5)):
            number = finished(c, run)
            to = tmp_path / str(number)
            for args in ((), ("--copy", to), ("--copy", to)):
                result = ctl(d, "artifacts", number, *args)
                assert (result.returncode, result.stderr) == (0, ""), result
            assert subprocess.run(["diff", "-r", c.call("show", id=number)["run"]["dir"], to]).returncode == 0
            assert len(list(to.rglob("RUN_COMPLETE.txt"))) == markers


def test_altered_specification_or_marker(daemon, tmp_path):
    """The marker of an experiment has the hash of its spec.json; a marker without hashes is invalid."""
    with daemon() as d, d.client() as c:
        run = finished(c, experiment())
        top = d.state / "runs" / "1-exp"
        marker = sorted((top / "segments").iterdir())[0] / "RUN_COMPLETE.txt"
        marker.write_text(marker.read_text().partition(" metrics_sha256=")[0] + "\n")
        text = (top / "spec.json").read_text()
        (top / "spec.json").write_text(text[:-2] + " " + text[-1:])
        result = ctl(d, "artifacts", run, "--copy", tmp_path)
        assert result.returncode == 1
        assert sorted(altered(result).splitlines()) == [
            f"gpt2ctl: altered segments/{marker.parent.name}/training_metrics.json: {ALTERED}",
            f"gpt2ctl: altered spec.json: {ALTERED}"]
        assert len(list(tmp_path.rglob("RUN_COMPLETE.txt"))) == 7 and not (tmp_path / "RUN_COMPLETE.txt").exists()


def test_a_marker_of_what_is_not_done_is_not_copied(daemon, tmp_path):
    """The state that a failing disk leaves at that moment until the next start."""
    with daemon() as d, d.client() as c:
        run = finished(c, spec("whole"))
        failed = c.submit(spec("long", steps=100000))
        wait_for(lambda: c.state(failed) == "running", "it runs")
        c.call("cancel", id=failed)
        assert c.wait(failed)["state"] == "cancelled"
        folder = d.state / "runs" / f"{failed}-long"
        whole = (d.state / "runs" / f"{run}-whole" / "RUN_COMPLETE.txt").read_text()
        for text in (whole, "x"):
            (folder / "RUN_COMPLETE.txt").write_text(text)
            result = ctl(d, "artifacts", failed)
            said = "gpt2ctl: altered RUN_COMPLETE.txt: it states that the segment is done, but the state is cancelled\n"
            assert (result.returncode, altered(result)) == (1, said)
            result = ctl(d, "artifacts", failed, "--copy", tmp_path)
            assert result.returncode == 1 and said in result.stderr
            assert "left out RUN_COMPLETE.txt: not copied" in result.stderr
            assert not (tmp_path / "RUN_COMPLETE.txt").exists()


def test_others_are_served_while_a_file_is_hashed(daemon):
    """Hashing 64 GiB of zeros takes longer than the test: other clients get replies, and the file is closed with its client."""
    with daemon() as d:
        with d.client() as c, d.client() as other:
            run = finished(c, spec("one"))
            with open(d.state / "runs" / "1-one" / "huge.bin", "wb") as f:
                f.truncate(64 << 30)
            asked = c.ask("artifacts", id=run)
            number = other.submit(spec("second"))
            assert other.wait(number)["state"] == "done"
            assert other.call("artifacts", id=number)["files"] != []
            before = d.descriptors()
            c.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                c.reply(asked)
        wait_for(lambda: d.descriptors() <= before - 3, "the clients and the file are closed")
        with d.client() as c:
            assert c.state(run) == "done"
