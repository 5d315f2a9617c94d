"""gpt2d's start: stale and live sockets, open runs (cases H1, H2, H4, H6, H7)."""

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from engines import PROGRAM
from helpers import BUILD, PATIENCE_S, Daemon, agrees, experiment, has_ended, spec, wait_for


def second(d, **changes):
    """Another gpt2d with the same command line, except for changes; (status, stderr)."""
    command = list(d.command)
    for option, value in changes.items():
        command[command.index("--" + option) + 1] = str(value)
    process = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return process.returncode, process.stderr


def test_killed_and_started_again(tmp_path):
    """Submit 5, kill -9 during the first: it is interrupted, the others run in order, ids unchanged."""
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            runs = [c.submit(spec("first-ms20", 1000))] + [c.submit(spec(f"r{i}")) for i in range(4)]
            wait_for(lambda: c.state(runs[0]) == "running", "running")
            begun = c.greeting["started_at"]
        engines = d.engines()
        d.kill()
        for pid in engines:
            wait_for(lambda: has_ended(pid), "the engines' end")
        d.start()
        with d.client() as c, d.client() as other:
            assert begun != c.greeting["started_at"] == other.greeting["started_at"]
            for run in runs[1:]:
                assert c.wait(run)["state"] == "done"
            shown = c.call("show", id=runs[0])
            assert shown["run"]["state"] == "interrupted"
            assert shown["run"]["reason"] == "daemon_restart: gpt2d ended while the run was running"
            assert shown["segments"][0]["state"] == "interrupted"
            starts = [run["started_at"] for run in c.call("list")["runs"]]
            assert starts == sorted(starts)
            assert c.submit(spec("next")) == 6


def test_restart_when_asked_for(tmp_path):
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            run = c.submit(experiment("again-held4", repetitions=1, restart=True))
            wait_for(lambda: c.call("show", id=run)["run"]["segments_done"] >= 1, "a segment")
        d.kill()
        d.unhold()
        d.start()
        with d.client() as c:
            end = c.wait(run)
            assert end["state"] == "done"
            assert end["dir"].endswith(f"/{run}-again-held4")
            shown = c.call("show", id=run)
            assert shown["run"]["attempt"] == 1 and [s["state"] for s in shown["segments"][4:]] == ["done"] * 4
            assert [s["void"] for s in shown["segments"]] == ["daemon_restart"] * 4 + [None] * 4
            assert [t["state"] for t in shown["transitions"]] == ["queued", "starting", "running",
                "interrupted", "queued", "starting", "running", "finishing", "done"]


def test_a_run_that_gpt2d_keeps_dying_in(tmp_path):
    """gpt2d gives up the run after three deaths, and trains the next one. An orderly stop does not count."""
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            run, waits = c.submit(spec("long-ms20", 100000) | {"restart": True}), c.submit(spec("waits"))
        for death in range(4):
            with d.client() as c:
                wait_for(lambda: c.state(run) == "running", "running")
                assert c.call("show", id=run)["run"]["attempt"] == death + 1 and c.state(waits) == "queued"
            if death == 1:
                d.stop()
            else:
                d.kill()
            d.start()
        with d.client() as c:
            shown = c.call("show", id=run)["run"]
            assert shown["state"] == "failed"
            assert shown["reason"] == "daemon_restart: gpt2d died 3 times during the run"
            assert c.wait(waits)["state"] == "done"


@pytest.mark.parametrize("kind", ["single", "experiment"])
@pytest.mark.parametrize("marker", ["valid", "absent", "of another run", "of another spec", "of other metrics", "cut", "a pipe",
    "with metrics in a pipe"])
def test_killed_while_finishing(tmp_path, kind, marker):
    """Everything is on disk, and gpt2d is killed before the report: done only if all of it matches."""
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            run = c.submit(spec("nosay") if kind == "single" else experiment("nosay", repetitions=1))
            wait_for(lambda: c.call("show", id=run)["segments"][-1]["state"] == "trained", "the last segment")
            shown = c.call("show", id=run)
        folder = Path(shown["run"]["dir"])
        segments = [Path(segment["dir"]) for segment in shown["segments"]]
        for segment in segments:
            wait_for((segment / "RUN_COMPLETE.txt").exists, "the segment's marker")
        d.kill()
        top = folder / "RUN_COMPLETE.txt"
        if kind == "experiment":
            top.write_text(f"[Rank 0] RUN_COMPLETE checkpoint_path={folder} run_id={run} segments={len(segments)}"
                f" spec_sha256={shown['run']['spec_sha256']}\n")
        text = top.read_text()
        if marker == "absent":
            top.unlink()
        elif marker == "of another run":
            top.write_text(text.replace(f"run_id={run} ", f"run_id={run + 1} "))
        elif marker == "of another spec":
            top.write_text(text.replace(shown["run"]["spec_sha256"], "0" * 64))
        elif marker == "of other metrics":
            (segments[-1] / "training_metrics.json").write_text("{}")
        elif marker == "cut":
            top.write_text(text[:len(text) // 2])
        elif marker.endswith("a pipe"): # nobody will ever write to it
            pipe = top if marker == "a pipe" else segments[-1] / "training_metrics.json"
            pipe.unlink()
            os.mkfifo(pipe)
        for where in (folder, *segments):
            (where / ".step_log.csv.tmp").write_text("half of it")
        d.start()
        with d.client() as c:
            shown = c.call("show", id=run)
            assert shown["run"]["state"] == ("done" if marker == "valid" else "interrupted")
            if marker == "valid":
                assert shown["run"]["segments_done"] == len(segments)
                assert {segment["state"] for segment in shown["segments"]} == {"done"}
            else:  # none of them is on its way for ever
                assert {segment["state"] for segment in shown["segments"]} <= {"done", "interrupted", "skipped"}
        agrees(d)
        assert not list(folder.rglob("*.tmp"))


@pytest.mark.parametrize("how, ends", [("nosay", "done"), ("noend", "cancelled")])
def test_a_segment_that_was_being_written_when_its_run_was_cancelled(tmp_path, how, ends):
    """It has ended after the next start, as its folder shows; the marker of a segment does not complete its run."""
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            run = c.submit(experiment(f"{how}-ms20", 200, repetitions=1))

            def segments():
                return c.call("show", id=run)["segments"]
            wait_for(lambda: [segment["state"] for segment in segments()][:2] == ["trained", "training"], "the second segment")
            marker = Path(segments()[0]["dir"]) / "RUN_COMPLETE.txt"
            if ends == "done":
                wait_for(marker.exists, "the segment's marker")
            assert c.call("cancel", id=run)["state"] == "cancelled"
            assert segments()[0]["state"] == "trained"
        d.kill()
        d.start()
        with d.client() as c:
            first, second = c.call("show", id=run)["segments"][:2]
            assert c.state(run) == "cancelled" and first["state"] == ends and first["ended_at"]
            assert second["state"] == "cancelled"
            assert marker.exists() == (ends == "done")
            if ends != "done":
                assert first["reason"] == "cancelled: asked for"
        agrees(d)


def test_segments_that_the_store_had_not_come_to(tmp_path):
    """gpt2d is killed while the store lags: folders show what was done, and what had started."""
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            run = c.submit(experiment("exp-ms20", 20, repetitions=10))
            wait_for(lambda: c.call("show", id=run)["run"]["segments_done"] >= 4, "four segments")
            top = Path(c.call("show", id=run)["run"]["dir"]) / "segments"
        d.kill()
        with closing(sqlite3.connect(d.state / "gpt2d.db")) as db:
            db.execute("update segments set state = 'waiting', dir = '', summary = null, artifacts = null,"
                " started_ns = 0, ended_ns = 0 where segment > 0")
            db.execute("update runs set segments_done = 1")
            db.commit()
        next(top.glob("004-*/RUN_COMPLETE.txt")).unlink()
        d.start()
        with d.client() as c:
            shown = c.call("show", id=run, limit=100)
            listed = {path["path"] for path in c.call("artifacts", id=run)["files"]}
        whole = {int(path.parent.name[:3]) for path in top.glob("*/RUN_COMPLETE.txt")}
        assert {1, 2, 3} <= whole and 4 not in whole and shown["run"]["state"] == "interrupted"
        for segment in shown["segments"]:
            folder = next(top.glob(f"{segment['segment']:03}-*"), None)
            expected = "done" if segment["segment"] in whole else "interrupted" if folder else "skipped"
            assert segment["state"] == expected, segment
            assert not folder or segment["dir"] == str(folder)
        assert shown["run"]["segments_done"] == len(whole)
        assert {f"segments/{path.relative_to(top)}" for path in top.glob("*/*")} <= listed


@pytest.mark.parametrize("state", ["interrupted", "cancelled", "failed"])
def test_trained_segments_of_a_run_that_has_ended(tmp_path, state):
    """They end as their run did, or are done if their folder is complete."""
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            old = c.submit(experiment("old", repetitions=1))
            assert c.wait(old)["state"] == "done"
            c.wait(c.submit(spec("fail.r0.s1")))
            last = c.submit(spec("last"))
            assert c.wait(last)["state"] == "done"
            folder = Path(c.call("show", id=old)["segments"][2]["dir"])
        d.stop()
        (folder / "RUN_COMPLETE.txt").unlink()
        (folder.parents[1] / "RUN_COMPLETE.txt").unlink()
        with closing(sqlite3.connect(d.state / "gpt2d.db")) as db:
            db.execute("update runs set state = ?, reason = 'made: up', segments_done = 1 where id = ?", (state, old))
            db.execute("update segments set state = 'trained', ended_ns = 0 where run = ? and segment in (1, 2)", (old,))
            db.execute("update segments set state = 'skipped' where run = ? and segment = 3", (old,))
            db.commit()
        (folder.parent / "004-a" / "RUN_COMPLETE.txt").unlink()
        d.start()
        with d.client() as c:
            shown = c.call("show", id=old)
            assert shown["run"]["state"] == state and shown["run"]["segments_done"] == 2
            assert [s["state"] for s in shown["segments"]] == ["done", "done", state, "skipped"]
            assert shown["segments"][2]["reason"] == "made: up" and shown["segments"][2]["ended_at"]
        agrees(d)


@pytest.mark.skipif(not PROGRAM.exists(), reason="no engine was built")
@pytest.mark.parametrize("work", [{"optimizer_steps": 25, "warmup_steps": 2}, {"optimizer_steps": 3, "warmup_steps": 0}])
@pytest.mark.parametrize("kind, ranks", [(spec, 1), (experiment, 2)])
def test_found_done_with_its_figures(tmp_path, kind, ranks, work):
    """As if gpt2d had been killed between the marker and segment.done: the report is read from the files."""
    with Daemon(ranks=ranks, home=tmp_path, engine=PROGRAM) as d:
        with d.client() as c:
            assert c.wait(c.submit(kind("done", work=work)))["state"] == "done"
            before = c.call("show", id=1)
        assert d.stop() == 0
        db = sqlite3.connect(d.state / "gpt2d.db")
        db.execute("update runs set state = 'finishing', segments_done = 0, ended_ns = 0")
        db.execute("update segments set state = 'trained', ended_ns = 0, summary = null, artifacts = null")
        db.commit()
        db.close()
        d.start()
        with d.client() as c:
            after = c.call("show", id=1)
        assert after["run"]["state"] == "done" and len(after["segments"]) == len(before["segments"])
        for was, found in zip(before["segments"], after["segments"]):
            for which in (was, found, was["summary"], found["summary"]):
                which["artifacts"] = {file["path"]: file["bytes"] for file in which["artifacts"]}
            assert found["summary"] == was["summary"]
            assert found["artifacts"] == was["artifacts"] and found["state"] == "done"


def long_names(work):
    """Arms with the longest names there can be."""
    return {**work, "arms": {(name * 64)[:64]: arm for name, arm in work["arms"].items()}}


@pytest.mark.parametrize("work, begun", [
    (experiment("exp-held8"), 1), (long_names(experiment("long-held8")), 1), (spec("held"), 0)],
    ids=["experiment", "long names", "single"])
def test_a_database_from_before_the_end(tmp_path, work, begun):
    """Restored from a backup: a run with a complete folder is done with all of its segments, also those that the database does not have."""
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            run = c.submit(work)
            wait_for(lambda: c.state(run) == "running" and c.call("show", id=run)["run"]["segments_done"] >= begun, "a segment")
            with closing(sqlite3.connect(d.state / "gpt2d.db")) as db, closing(sqlite3.connect(tmp_path / "backup.db")) as to:
                db.backup(to)
            d.unhold()
            assert c.wait(run)["state"] == "done"
            whole = c.call("show", id=run)
            files = c.call("artifacts", id=run)["files"]
        d.stop()
        for name in ("gpt2d.db-wal", "gpt2d.db-shm"):
            (d.state / name).unlink(missing_ok=True)
        shutil.copy(tmp_path / "backup.db", d.state / "gpt2d.db")
        d.start()
        with d.client() as c:
            shown = c.call("show", id=run)
            assert shown["run"]["state"] == "done"
            assert shown["run"]["segments_done"] == shown["run"]["segments"] == whole["run"]["segments"]
            for now, then in zip(shown["segments"], whole["segments"]):
                assert (now["state"], now["dir"]) == ("done", then["dir"])
            assert [file["path"] for file in c.call("artifacts", id=run)["files"]] == [file["path"] for file in files]
        assert agrees(d) == 1


def test_what_killed_engines_leave_goes(tmp_path):
    """Also of a run that had ended, and of the attempt before; other files stay."""
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            failed = c.submit(experiment("fail.r0.s1", repetitions=1))
            assert c.wait(failed)["state"] == "failed"
            c.call("drain")
            waits = c.submit(experiment("waits-ms20", 100000, repetitions=1, restart=True))
            c.call("resume")
            wait_for(lambda: c.state(waits) == "running", "running")
            folders = [Path(c.call("show", id=run)["run"]["dir"]) for run in (failed, waits)]
        d.kill()
        d.start()
        with d.client() as c:
            wait_for(lambda: c.state(waits) == "running", "running again")
            c.call("drain")
        d.kill()
        for folder in folders:
            for where in (folder, *(folder / "segments").iterdir()):
                (where / ".step_log.csv.tmp").write_text("half of it")
                (where / ".other").write_text("whose?")
        d.start()
        for folder in folders:
            assert not list(folder.rglob("*.tmp")) and list(folder.rglob(".other"))


def test_many_kills_lose_nothing(tmp_path):
    """kill -9 at random moments of submitting: acknowledged runs exist, in order, and end once."""
    with Daemon(home=tmp_path) as d:
        known = {}
        for round in range(8):
            with d.client() as c:
                until = time.monotonic() + 0.05 * (round + 1)
                while time.monotonic() < until:
                    name = f"r{round}.{len(known)}"
                    known[c.submit(spec(name))] = name
            d.kill()
            d.start()
        with d.client() as c:
            wait_for(lambda: (s := c.call("status"))["queued"] == 0 and not s["running"], "the end", patience=300)
            runs = {run["id"]: run for run in c.call("list", limit=10000)["runs"]}
            for run, name in known.items():
                assert runs[run]["name"] == name
                assert runs[run]["state"] in ("done", "interrupted")
                if runs[run]["state"] == "done":
                    assert os.path.exists(runs[run]["dir"] + "/RUN_COMPLETE.txt")


def test_wal_cut_at_any_byte(tmp_path):
    """A torn write of the database: it opens, with a prefix of the committed data."""
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            c.submit(spec("long-ms20", 100000))
            for i in range(5):
                c.submit(spec(f"r{i}"))
        d.kill()
        saved = tmp_path / "saved"
        shutil.copytree(d.state, saved)
        wal = (saved / "gpt2d.db-wal").read_bytes()
        counts = []
        used = len(wal.rstrip(b"\0"))  # it may have been made longer beforehand
        for cut in list(range(0, used, max(1, used // 12))) + [len(wal)]:
            shutil.rmtree(d.state)
            shutil.copytree(saved, d.state)
            (d.state / "gpt2d.db-wal").write_bytes(wal[:cut])
            (d.state / "gpt2d.db-shm").unlink(missing_ok=True)
            d.start()
            with d.client() as c:
                runs = c.call("list")["runs"]
                assert [run["id"] for run in runs] == list(range(1, len(runs) + 1))
                counts.append(len(runs))
            d.kill()
        assert counts == sorted(counts) and counts[-1] == 6
        d.start()


# ---- the socket ----

def test_stale_socket_is_replaced(tmp_path):
    with Daemon(home=tmp_path) as d:
        d.kill()
        assert d.socket.exists()
        d.start()
        with d.client() as c:
            c.call("status")


def test_live_socket_is_not(tmp_path):
    with Daemon(home=tmp_path) as d:
        inode = d.socket.stat().st_ino
        for stopped in (False, True):
            if stopped:
                d.process.send_signal(signal.SIGSTOP)
            # the same socket and state; the same socket; the same state
            for changes in ({}, {"state-dir": tmp_path / "other"}, {"socket": tmp_path / "other.sock"}):
                status, said = second(d, **changes)
                assert status == 3
                assert f"in use by another gpt2d (process {d.process.pid})" in said
        d.process.send_signal(signal.SIGCONT)
        assert d.socket.stat().st_ino == inode
        with d.client() as c:
            assert c.wait(c.submit(spec()))["state"] == "done"


def test_fewer_ranks_than_the_queue_was_made_for(tmp_path):
    """A run stays accepted if gpt2d restarts with fewer ranks: it waits, others run, and it starts later."""
    with Daemon(ranks=2, home=tmp_path) as d:
        with d.client() as c:
            c.call("drain")
            asked, unasked = c.submit(spec("asked", gpus=2)), c.submit({k: v for k, v in spec("all").items() if k != "gpus"})
            narrow = c.submit(spec("narrow", gpus=1))
        d.stop()
        ranks = d.command.index("--ranks") + 1
        d.command[ranks] = "1"
        d.start()
        with d.client() as c:
            c.call("resume")
            assert c.wait(narrow)["state"] == "done"
            assert [c.state(run) for run in (asked, unasked)] == ["queued", "queued"]
            assert c.call("status")["waiting"] == "ranks: it trains on 2, gpt2d has 1; start it with --ranks 2"
            assert c.call("show", id=asked)["outlook"]["starts_in_s"] is None
        environment = {**os.environ, "GPT2D_SOCKET": str(d.socket), "LC_ALL": "C.UTF-8"}

        def ctl(*words):
            return subprocess.run([BUILD / "ctl/gpt2ctl", *map(str, words)], capture_output=True, text=True, timeout=60,
                env=environment)
        rows = [line for line in ctl("status").stdout.splitlines() if "priority 0" in line]
        assert [row.split("priority 0  ")[1] for row in rows][0] == "waits for more ranks" and "next" not in "".join(rows)
        refused = ctl("rerun", unasked)
        assert refused.returncode == 2
        assert f"run {unasked}: gpus: 2 ranks asked, the daemon has 1; use all ranks that exist: --set gpus=0, with --set train_" in refused.stderr
        for fits in ("train_batch_size=1", "gradient_accumulation_steps=2"):
            assert ctl("rerun", unasked, "--set", "gpus=0", "--set", fits, "--dry-run").returncode == 0
        d.stop()
        d.command[ranks] = "2"
        d.start()
        with d.client() as c:
            assert [c.wait(run)["state"] for run in (asked, unasked)] == ["done", "done"]


def test_a_socket_taken_by_another_is_left_alone(tmp_path):
    """At exit only the own socket is removed."""
    with Daemon(home=tmp_path) as d:
        d.socket.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(d.socket))
            assert d.stop() == 0
            assert d.socket.exists()
        d.socket.unlink()
        d.start()


def test_started_without_standard_streams(tmp_path):
    """The log goes nowhere, and not into a file or socket that got the number of standard error."""
    with Daemon(home=tmp_path) as d:
        command = [word for word in d.command if word != "--log-file" and word != str(d.log)]
        assert d.stop() == 0
        d.process = subprocess.Popen(["/bin/sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', *command], env=d.environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_for(d.accepts, "gpt2d's socket")
        for fd in range(3):
            assert os.readlink(f"/proc/{d.process.pid}/fd/{fd}") == "/dev/null"
        with d.client() as c:
            assert c.wait(c.submit(spec("quiet")))["state"] == "done"
        for lock in (d.state / "gpt2d.db.lock", d.socket.with_name("gpt2d.sock.lock")):
            assert lock.read_text().strip() == str(d.process.pid)
