"""Faults of the engines that start or train: status and runs have the reason, and other engines replace them."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from helpers import BUILD, FAKE_ENGINE, UNCHECKED, Daemon, experiment, has_ended, refusal, spec, wait_for


CPU = BUILD / "engine" / "gpt2-engine-cpu"
PEER_LOST = 70  # ENGINE_EXIT_PEER_LOST
SILENCE_S = 6
SOON = ("--alive-timeout", str(SILENCE_S))


def small(name, steps=3, **more):
    return spec(name, steps, model={"n_layer": 1, "n_head": 2, "n_embd": 32, "vocab_size": 96, "n_positions": 64},
        **more)


def endless(name="endless", **more):
    return small(name, 1_000_000, **more)


def trains(c, run):
    def progress():
        running = c.call("status")["running"]
        return running and running["run"]["id"] == run and running["progress"]

    wait_for(progress, f"a step of run {run}")


def stand_still(d):
    """gpt2d is suspended for longer than it lets others be silent, by its own clock."""
    pid = d.process.pid
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T", "gpt2d to be stopped")
    until = time.monotonic() + SILENCE_S + 0.5
    wait_for(lambda: time.monotonic() > until, "that time to be over")
    os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("number, reason", [
    (signal.SIGKILL, "engine_lost: rank {} killed by signal 9"),
    (signal.SIGABRT, "engine_lost: rank {} killed by signal 6"),
    (signal.SIGSTOP, "engine_hung: rank {}: silent for 6 s"),
])
def test_one_rank_of_three(daemon, rank, number, reason):
    options = SOON if number == signal.SIGSTOP else ()
    with daemon(ranks=3, engine=CPU, options=options) as d, d.client() as c, d.client() as follower:
        before = d.engines()
        bad, good = c.submit(endless()), c.submit(small("good"))
        follower.call("follow", id=bad)
        trains(c, bad)
        os.kill(before[rank], number)
        end = c.wait(bad)
        assert end["state"] == "failed" and end["reason"].startswith(reason.format(rank)), end
        assert c.wait(good)["state"] == "done"
        assert set(before) & set(d.engines()) == set()
        event = follower.event()  # it has kept its connection
        while event["method"] != "run.done":
            event = follower.event()
        assert event["params"]["reason"] == end["reason"]
        assert not os.path.exists(end["dir"] + "/RUN_COMPLETE.txt")


def test_gpt2d_stopped_is_no_silence_of_engines(daemon):
    """Suspended for longer than engines may be silent, it first reads their messages."""
    with daemon(ranks=2, engine=CPU, options=(*SOON, "--progress-timeout", str(SILENCE_S))) as d, d.client() as c:
        before, run = d.engines(), c.submit(endless())
        trains(c, run)
        step = c.call("status")["running"]["progress"]["step"]
        stand_still(d)
        wait_for(lambda: c.call("status")["running"]["progress"]["step"] > step, "another step")
        status = c.call("status")
        assert status["running"]["run"]["id"] == run and status["engine"]["restarts"] == 0
        assert d.engines() == before


def test_all_ranks_at_once(daemon):
    with daemon(ranks=2, engine=CPU) as d, d.client() as c:
        bad, good = c.submit(endless()), c.submit(small("good"))
        trains(c, bad)
        for pid in d.engines():
            with contextlib.suppress(ProcessLookupError):  # killed by gpt2d, which has seen the end of the other one
                os.kill(pid, signal.SIGKILL)
        assert c.wait(bad)["reason"].startswith("engine_lost: rank ")
        assert c.wait(good)["state"] == "done"


def test_killed_while_the_ranks_connect(daemon):
    """A rank ends during the start, again and again: no run is lost, and the queue continues."""
    with daemon(ranks=3, engine=CPU) as d, d.client() as c:
        run = c.submit(small("waits"))
        assert c.wait(run)["state"] == "done"
        for i in range(6):
            engine = c.call("status")["engine"]
            restarts = engine["restarts"]
            victim = engine["ranks"][i % 3]["pid"]
            if victim:
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                wait_for(lambda: c.call("status")["engine"]["restarts"] > restarts, "restart")
            wait_for(lambda: all(rank["pid"] for rank in c.call("status")["engine"]["ranks"]), "new engines")
        assert c.wait(c.submit(small("after")))["state"] == "done"


def test_a_rank_that_has_ended_is_down(daemon):
    """It has no pid, and is not called ready, while gpt2d waits for another one that may be the cause."""
    seen = []
    with daemon(ranks=2) as d, d.client() as c:
        run = c.submit(spec(f"exit{PEER_LOST}.r1.s2"))
        while c.state(run) in ("queued", "starting", "running"):
            seen += c.call("status")["engine"]["ranks"]
        assert c.state(run) == "failed"
        wait_for(lambda: c.call("status")["engine"]["state"] == "ready", "new engines")
    assert {rank["state"] for rank in seen if rank["pid"] == 0} <= {"down"}


def test_stopped_while_the_ranks_connect(daemon):
    with daemon(ranks=2, engine=CPU, options=("--start-timeout", "8")) as d, d.client() as c:
        def caught():
            """Whether one was stopped before it was ready; where all are, they are started again."""
            ranks = c.call("status")["engine"]["ranks"]
            if all(rank["pid"] and rank["state"] == "ready" for rank in ranks):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(ranks[0]["pid"], signal.SIGKILL)
            for rank in ranks:
                if rank["state"] != "ready" and rank["pid"]:
                    try:
                        os.kill(rank["pid"], signal.SIGSTOP)
                    except ProcessLookupError:
                        return False
                    return True
            return False

        wait_for(caught, "a rank that connects")
        wait_for(lambda: c.call("status")["engine"]["restarts"] >= 2, "restart")
        assert c.wait(c.submit(small("after")))["state"] == "done"


def test_deadline_of_a_run(daemon):
    with daemon(ranks=2, engine=CPU) as d, d.client() as c:
        before = d.engines()
        late, good = c.submit(endless("late", timeout=1)), c.submit(small("good"))
        assert c.wait(late)["reason"] == "timeout: not done within 1 s"
        assert c.wait(good)["state"] == "done"
        assert d.engines() == before


def test_the_same_engines_for_what_is_not_their_fault(daemon):
    """A cancelled run, or one that fails by itself, causes no restart."""
    with daemon(ranks=2, engine=CPU) as d, d.client() as c:
        before = d.engines()
        for _ in range(3):
            run = c.submit(endless())
            trains(c, run)
            c.call("cancel", id=run)
            assert c.wait(run)["state"] == "cancelled"
        assert c.wait(c.submit(experiment(repetitions=1, model=small("x")["model"])))["state"] == "done"
        assert d.engines() == before and c.call("status")["engine"]["restarts"] == 0


@pytest.mark.parametrize("harm, says", [
    (lambda path: path.unlink(), "No such file or directory"),
    (lambda path: path.chmod(0o600), "Permission denied"),
    (lambda path: path.write_text("no program\n"), "Exec format error"),
    (lambda path: path.write_text("#!/none/sh\n"), "No such file or directory"),
], ids=["gone", "rights", "format", "interpreter"])
def test_an_engine_that_cannot_be_started_is_named(daemon, tmp_path, harm, says):
    """In status, in the log, and for the client, with its path and the system's reason; all continues once it can."""
    engine = tmp_path / "engine.py"
    shutil.copy(FAKE_ENGINE, engine)
    with daemon(engine=engine) as d, d.client() as c:
        harm(engine)
        os.kill(d.engines()[0], signal.SIGKILL)
        reason = f"could not be started: {engine}: {says}"
        wait_for(lambda: c.call("status")["engine"]["reason"] == f"engine_lost: rank 0 {reason}", "the reason")
        assert f"error engines: engine_lost: rank 0 {reason}\n" in d.said()
        assert refusal(c.submit, spec("next")).message == f"{UNCHECKED}{reason}"
        shutil.copy(FAKE_ENGINE, tmp_path / "new")
        os.replace(tmp_path / "new", engine)
        wait_for(lambda: c.call("status")["engine"]["state"] == "ready", "engines")
        assert c.wait(c.submit(spec("again")))["state"] == "done"


def test_engines_start_no_threads_of_blas(daemon):
    """They would take address space, and wait for ever if there is none."""
    with daemon(engine=CPU, environment={"OPENBLAS_NUM_THREADS": "7", "OMP_NUM_THREADS": "7"}) as d:
        pid = d.engines()[0]
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert b"OPENBLAS_NUM_THREADS=1" in environment and b"OMP_NUM_THREADS=7" in environment


@pytest.mark.parametrize("engine", [CPU, FAKE_ENGINE], ids=["real", "fake"])
def test_stopped_engines_end_with_gpt2d(daemon, engine):
    """They cannot notice that it has died: the kernel kills them, and the next gpt2d has the machine to itself."""
    with daemon(ranks=2, engine=engine) as d:
        with d.client() as c:
            assert c.wait(c.submit(small("starts-the-checker")))["state"] == "done"
        with open(f"/proc/{d.process.pid}/task/{d.process.pid}/children") as f:
            pids = [int(pid) for pid in f.read().split()]
        assert len(pids) == 3  # the checker too
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        d.kill()
        for pid in pids:
            wait_for(lambda: has_ended(pid), f"the end of process {pid}")
        d.start()


def test_what_an_engine_starts_ends_with_it(daemon, tmp_path):
    """An engine that is started by a script: all of it goes, when it is killed as when it ends."""
    engine, pids = tmp_path / "engine.sh", tmp_path / "pids"
    engine.write_text(f'#!/bin/sh\nsleep 100000 &\necho $! >>{pids}\nexec {FAKE_ENGINE} "$@"\n')
    engine.chmod(0o700)
    with daemon(engine=engine) as d, d.client() as c:
        assert c.wait(c.submit(spec("one")))["state"] == "done"  # a checker and a rank
        os.kill(d.engines()[0], signal.SIGKILL)
        assert c.wait(c.submit(spec("two")))["state"] == "done"
    for pid in pids.read_text().split():
        wait_for(lambda: has_ended(pid), f"the end of process {pid}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_no_room_for_shared_memory(daemon, tmp_path):
    """The reason names the folder and its room; UCX only reports that memory is short."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", str(tmp_path)], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    short = f"collectives: {tmp_path}/gpt2d-0: "
    try:
        with daemon(ranks=2, engine=CPU, ready=False, environment={"UCX_POSIX_DIR": str(tmp_path)}) as d, d.client() as c:
            wait_for(lambda: short in json.dumps(c.call("status")), "engines that found no room")
            lost = wait_for(lambda: [line for line in d.said().splitlines() if "engine_lost" in line], "the log to say so")[0]
            assert "exited with status 73" in lost and " of 6 MiB free, 10 MiB needed by 2 ranks" in lost
            subprocess.run(["mount", "-o", "remount,size=64m", str(tmp_path)], check=True)
            assert c.wait(c.submit(small("fits")))["state"] == "done"
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=False)


NEW = "exited with status 71 (a new process is needed): "


def under(what):
    """gpt2d after that line of a shell."""
    return ("/bin/sh", "-c", what + ' && exec "$0" "$@"')


def in_mount(what):
    prefix = ("unshare", "-m", *under(what))
    if os.geteuid() != 0 or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    return prefix


def check_reason(words, **more):
    with Daemon(ranks=2, engine=CPU, ready=False, **more) as d, d.client() as c:
        def reported():
            reason = c.call("status")["engine"].get("reason") or ""
            return reason if "exited" in reason or "killed" in reason else None
        reason = wait_for(reported, "the reason")
        for word in words:
            assert word in reason, reason


def test_a_limit_on_files():
    """A file of shared memory is limited too."""
    check_reason([NEW + "collectives: UCX with UCX_TLS=self,posix,cma: ", "File too large"], prefix=under("ulimit -f 2000"))


def test_a_transport_that_is_not_there():
    check_reason([NEW + "collectives: UCX with UCX_TLS=junk: transport 'junk' is not available"], environment={"UCX_TLS": "junk"})


def test_no_folder_for_shared_memory():
    check_reason([NEW + "collectives: /nonexist/gpt2d-", ": cannot create a directory for shared memory: No such file or directory"],
        environment={"UCX_POSIX_DIR": "/nonexist"})


def test_no_files_left_in_shared_memory(tmp_path):
    """There is room, but no inode: "No space left on device" would not say so."""
    prefix = in_mount("mount -t tmpfs -o nr_inodes=3 none /dev/shm")
    check_reason(["collectives: /dev/shm/gpt2d-0: ", " of 3 files (inodes) free, 4 needed by 2 ranks"], prefix=prefix)
