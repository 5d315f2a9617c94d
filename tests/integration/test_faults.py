"""Every write of gpt2d and of an engine: killed, refused, or done by half (cases F7, H6, H7, H8)."""

import errno
import os
import random
import shutil
import signal
import subprocess
import threading
import time

import pytest

from engines import PROGRAM
from faults import CLOSE, FAIL, KILL, MKDIR, NEEDS_ROOM, LIBRARY, LONG, SHORT, SYNC, TORN, Faults, check_all, check_next_run, ensure_ended, fill, sample, small_file_system, start_if_it_can, submit_and_wait
from helpers import BUILD, FAKE_ENGINE, PATIENCE_S, Daemon, RpcError, experiment, figure, refusal, spec, wait_for

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")


@pytest.fixture
def faults(tmp_path):
    return Faults(tmp_path)


def counted(d, program, known):
    """How often program writes from the start of gpt2d to its end, with runs in between."""
    before = program.count
    assert start_if_it_can(d)
    submit_and_wait(d, known)
    ensure_ended(d)
    return program.count - before


def through_a_full_disk(d, program, known):
    """Runs are refused, fail or wait; then there is room, and all continues without a restart."""
    client = threading.Thread(target=submit_and_wait, args=(d, known))
    client.start()

    def noticed():
        if not client.is_alive():
            return True
        with d.client() as c:
            status = c.call("status")
            return status["store"] or str(status["waiting"]).startswith("room: ")  # of the store, of a run's folder

    wait_for(noticed, "what a full disk does")
    program.disarm()
    client.join(5 * PATIENCE_S)
    assert not client.is_alive(), d.said()
    check_next_run(d)
    check_all(d, known)


@pytest.mark.parametrize("who", ["daemon", "engine"])
@pytest.mark.parametrize("how", ["killed", "killed after half", "refused", "refused from there on", "written by half"])
def test_at_every_write(tmp_path, faults, who, how):
    action, error, forever = {"killed": (KILL, 0, False), "killed after half": (TORN, 0, False),
        "refused": (FAIL, errno.EIO, False), "refused from there on": (FAIL, errno.ENOSPC, True),
        "written by half": (SHORT, 0, False)}[how]
    program = getattr(faults, who)
    known = {}
    with Daemon(home=tmp_path, environment=faults.environment, engine=PROGRAM if who == "engine" else FAKE_ENGINE) as d:
        d.stop()
        total = counted(d, program, known)
        assert total > 20
        for n in sample(total, 3):
            if forever:
                program.arm(action, error, first=n, ops=NEEDS_ROOM)
            else:
                program.arm(action, error, first=n, last=n)
            if start_if_it_can(d):
                if forever:
                    through_a_full_disk(d, program, known)
                else:
                    submit_and_wait(d, known)
            ensure_ended(d)
            program.disarm()
            d.start()
            check_all(d, known)
            check_next_run(d)
            assert d.stop() == 0
        d.start()


def test_the_names_of_new_folders_are_on_disk(tmp_path):
    """At the very first start: each folder's name before the next one is made in it."""
    faults = Faults(tmp_path, under=tmp_path)
    state = tmp_path / "new" / "state"
    with Daemon(home=tmp_path, environment=faults.environment) as d:
        assert d.stop() == 0
        d.command += ["--state-dir", str(state)]
        for first, there, not_yet in ((1, state.parent, state), (1, state, state / "runs"), (1, state / "runs", state / "gpt2d.db")):
            faults.daemon.arm(KILL, first=first, ops=SYNC)
            assert not start_if_it_can(d)
            ensure_ended(d)
            assert there.exists() and not not_yet.exists()
        faults.daemon.disarm(ops=SYNC)
        d.start()


def test_a_folder_is_on_disk_before_it_is_trained_in(tmp_path):
    """The sync of its name comes after it is made and before anything is in it; also of one that was there already."""
    faults = Faults(tmp_path, under=tmp_path / "state" / "runs")
    with Daemon(home=tmp_path, environment=faults.environment) as d:
        folder = d.state / "runs" / "1-kept"
        faults.daemon.arm(KILL, ops=SYNC)
        submit_and_wait(d, {}, [spec("kept")])
        wait_for(lambda: d.process.poll() is not None, "the sync of the folder")
        ensure_ended(d)
        assert os.listdir(folder) == []
        faults.daemon.disarm(ops=SYNC)
        before = faults.daemon.count
        d.start()
        with d.client() as c:
            assert c.wait(1)["state"] == "done"
        assert faults.daemon.count - before == 1


def test_full_disk_is_told(tmp_path, faults):
    """show, list and status agree; the file, the errno and advice are reported; a submission tries the store itself."""
    with Daemon(home=tmp_path, environment=faults.environment) as d, d.client() as c, d.client() as other:
        run = c.submit(experiment("long-ms20", repetitions=1000))
        waits = c.submit(spec("waits"))
        wait_for(lambda: c.state(run) == "running", "running")
        wait_for((d.state / "runs" / f"{waits}-waits").exists, "the next run's folder")
        faults.daemon.arm(FAIL, errno.ENOSPC, ops=NEEDS_ROOM)
        store = wait_for(lambda: other.call("status")["store"], "the news of the full disk")
        assert store["path"] == str(d.state / "gpt2d.db")
        assert store["errno"] == "ENOSPC" and store["error"] == "No space left on device"
        assert store["advice"].startswith("make room on /") and store["since"].endswith("Z")
        reported = refusal(c.call, "cancel", id=run)
        assert reported.code == -32006
        assert f"run {run}: is cancelled, but that is not on disk: {d.state}/gpt2d.db: No space" in reported.message
        status = other.call("status")
        assert status["counts"]["cancelled"] == 0 and status["counts"]["running"] == 1 and status["running"] is None
        assert status["waiting"].startswith(
            f"store: {d.state}/gpt2d.db cannot be written: No space left on device; make room on /")
        shown = other.call("show", id=run)
        assert shown["run"]["state"] == "running" and shown["run"]["ended_at"] is None and shown["progress"] is None
        assert shown["run"]["reason"] is None
        assert other.call("list")["runs"][0] == shown["run"] and other.call("list")["runs"][1]["state"] == "queued"
        text = subprocess.run([BUILD / "ctl" / "gpt2ctl", "status"], capture_output=True, text=True, timeout=60,
            check=True, env={**os.environ, "GPT2D_SOCKET": str(d.socket)}).stdout
        assert "gpt2d.db has been failing since " in text and "make room on /" in text
        refused = refusal(other.submit, spec("refused"))
        assert refused.code == -32006 and "No space left on device" in refused.message
        faults.daemon.disarm()
        accepted = other.submit(spec("accepted"))  # at once, not when the next try is due
        assert other.call("status")["store"] is None
        assert other.wait(waits)["state"] == "done"
        assert other.wait(accepted)["state"] == "done"
        assert other.state(run) == "cancelled"


def test_sync_without_room_is_no_io_error(tmp_path, faults):
    """Some file systems report it at fsync only. The next write replaces the refused data."""
    with Daemon(home=tmp_path, environment=faults.environment) as d, d.client() as c:
        faults.daemon.arm(FAIL, errno.ENOSPC, ops=2)
        refused = refusal(c.submit, spec("refused"))
        assert refused.message.startswith("the run is not queued: gpt2d could not store it: "
            f"{d.state}/gpt2d.db: No space left on device; make room on /")
        assert refused.data == {"queued": False}
        faults.daemon.disarm()
        wait_for(lambda: c.call("status")["store"] is None, "the end of it")
        assert c.wait(c.submit(spec("next")))["state"] == "done"
        d.kill()
        d.start()
        with d.client() as again:
            assert [run["name"] for run in again.call("list")["runs"]] == ["next"]


def failing(c):
    """The store in status and in the metrics, which agree."""
    store = c.call("status")["store"]
    said = figure(c, "gpt2d_store_failing") == 1
    return store if said == (store is not None) else None


def test_the_folder_of_runs_is_taken_away(tmp_path):
    """gpt2d creates it again; runs continue without a restart."""
    with Daemon(home=tmp_path) as d, d.client() as c:
        assert c.wait(c.submit(spec("before")))["state"] == "done"
        shutil.rmtree(d.state / "runs")
        for run in (spec("single"), experiment("arms", repetitions=1), spec("last")):
            assert c.wait(c.submit(run))["state"] == "done"


def test_the_state_directory_is_replaced(tmp_path):
    """Writes to files without a name are lost: nothing is accepted, and the message has advice."""
    with Daemon(home=tmp_path) as d, d.client() as c:
        first = c.submit(spec("first"))
        assert c.wait(first)["state"] == "done"
        c.call("drain")
        queued = c.submit(spec("queued"))
        wait_for(lambda: (d.state / "runs" / "2-queued").exists(), "that it is made ready")
        os.rename(d.state, tmp_path / "moved")
        d.state.mkdir()
        refused = refusal(c.submit, spec("lost"))
        assert refused.code == -32006
        assert (f"{d.state}/gpt2d.db: the file was removed, moved or replaced while gpt2d had it open; restore the file, or restart gpt2d"
            in refused.message)
        assert refused.data == {"queued": False} and c.call("status")["store"]["errno"] == "ESTALE"
        assert refusal(c.call, "cancel", id=queued).message.endswith(
            "; gpt2d retries as long as it runs")
        d.state.rmdir()
        os.rename(tmp_path / "moved", d.state)
        wait_for(lambda: c.call("status")["store"] is None, "the end of it")
        assert c.call("show", id=queued)["run"]["reason"].startswith("cancelled: ")
        c.call("resume")
        assert c.wait(c.submit(spec("next")))["state"] == "done"


@pytest.mark.parametrize("other", [False, True], ids=["away", "replaced"])
def test_a_run_waits_for_the_state_directory(tmp_path, faults, other):
    """A missing folder is not a fault of the next run; nothing is created in its replacement."""
    with Daemon(home=tmp_path, environment=faults.environment) as d, d.client() as c:
        faults.daemon.arm(FAIL, errno.ENOSPC, ops=MKDIR)
        run = c.submit(spec("waits"))
        wait_for(lambda: str(c.call("status")["waiting"]).startswith("room: "), "the run waits for room")
        os.rename(d.state, tmp_path / "moved")
        if other:
            d.state.mkdir()
        faults.daemon.disarm()
        time.sleep(2.5)  # the directory is probed meanwhile
        assert c.call("status")["waiting"].startswith("room: ")
        assert not other or not list(d.state.iterdir())
        if other:
            d.state.rmdir()
        os.rename(tmp_path / "moved", d.state)
        assert c.wait(run)["state"] == "done"


def test_a_killed_engine_leaves_no_half_file(tmp_path, faults):
    """Its temporary file is removed when there are new engines, also while gpt2d lives on."""
    with Daemon(home=tmp_path, environment=faults.environment, engine=PROGRAM) as d, d.client() as c:
        faults.engine.arm(KILL, ops=4, last=1)  # the first rename: a whole temporary file is there
        run = c.submit(spec("one"))
        assert c.wait(run)["state"] == "failed"
        folder = c.call("show", id=run)["run"]["dir"]
        faults.engine.disarm()
        assert c.wait(c.submit(spec("next")))["state"] == "done"
        wait_for(lambda: not [name for name in os.listdir(folder) if name.startswith(".")], "the sweep")


def test_a_disk_without_room_for_what_was_trained(tmp_path, faults):
    """The run goes back to the queue without a marker, and no other run starts; the same engines train it when there is room."""
    with Daemon(home=tmp_path, environment=faults.environment, engine=PROGRAM) as d, d.client() as c:
        before = d.engines()
        for ops in (1, 2, 64, CLOSE):  # writes, syncs, new files
            faults.engine.arm(FAIL, errno.ENOSPC, ops=ops)
            runs = [c.submit(spec("full", 20)), c.submit(spec("next"))]
            waiting = wait_for(lambda: next((text for text in [c.call("status")["waiting"]]
                if str(text).startswith("room: ")), None), "the hold")
            assert f": run {runs[0]}: enospc: rank 0: " in waiting
            shown = c.call("show", id=runs[0])
            assert "No space left on device" in str(shown["transitions"]), shown
            assert {c.state(run) for run in runs} <= {"queued", "starting", "running", "finishing"}
            faults.engine.disarm()
            for run in runs:
                end = c.wait(run)
                assert end["state"] == "done", end
            ended = c.call("show", id=runs[0])["run"]
            assert ended["attempt"] > 1
            first = ended["dir"].removesuffix(f".{ended['attempt']}")
            assert not [name for name in os.listdir(first) if name.startswith((".", "RUN_COMPLETE"))]
        assert d.engines() == before and c.call("status")["engine"]["restarts"] == 0


@pytest.mark.parametrize("first", [46, 50, 54])
def test_a_disk_without_room_for_an_experiment(tmp_path, faults, first):
    """Several trained segments cannot be written: the run waits for all of their ends, and its next block counts."""
    with Daemon(home=tmp_path, environment=faults.environment, engine=PROGRAM) as d, d.client() as c:
        faults.engine.arm(FAIL, errno.ENOSPC, first=first, ops=NEEDS_ROOM)
        run = c.submit(experiment("full", repetitions=1))
        wait_for(lambda: str(c.call("status")["waiting"]).startswith("room: "), "the hold")
        faults.engine.disarm()
        assert c.wait(run)["state"] == "done"
        segments = c.call("show", id=run)["segments"]
        assert {one["state"] for one in segments[:4]} <= {"done", "failed", "cancelled", "skipped"}
        assert [one["state"] for one in segments[4:]] == ["done"] * 4


# ---- a real file system without room ----

def test_a_full_file_system(tmp_path):
    """Filled and emptied again and again: no acknowledged run is lost, and no restart is needed."""
    home = tmp_path / "small"
    reason = small_file_system(home)
    if reason:
        pytest.skip(f"no small file system: {reason}")
    known = {}
    try:
        with Daemon(home=home, engine=PROGRAM, options=("--log-file", str(tmp_path / "log"))) as d:
            for i in range(20 if LONG else 4):
                submit_and_wait(d, known, [spec(f"before{i}")])
                fill(home / "filler")
                client = threading.Thread(target=submit_and_wait, args=(d, known, [spec(f"full{i}")]))
                client.start()
                with d.client() as c:
                    try:
                        known[c.submit(experiment(f"arms{i}", repetitions=1))] = f"arms{i}"
                    except RpcError as no:
                        assert no.code == -32006, no.message
                    c.call("status")
                (home / "filler").unlink()
                client.join(5 * PATIENCE_S)
                assert not client.is_alive()
                check_all(d, known)
                check_next_run(d)
    finally:
        subprocess.run(["umount", "-l", str(home)], check=False)


# ---- kills at any moment ----

def processes(d):
    """gpt2d and its children."""
    with open(f"/proc/{d.process.pid}/task/{d.process.pid}/children") as f:
        return [int(pid) for pid in f.read().split()]


def kill_one(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def clients(d, known, stop, ctl):
    """Submit, follow and cancel like users, until requested to stop, while processes are killed."""
    i = 0
    while not stop.is_set():
        i += 1
        name = f"r{threading.get_ident()}.{i}"
        try:
            with d.client() as c:
                number = c.submit(spec(name, steps=random.choice((1, 5, 50)), restart=random.random() < 0.2)
                    if random.random() < 0.7 else experiment(name, repetitions=1))
                known[number] = name
                if random.random() < 0.5:
                    follower = subprocess.Popen([BUILD / "ctl" / "gpt2ctl", "follow", str(number)],
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                        env={**os.environ, "GPT2D_SOCKET": str(d.socket)})
                    ctl.append(follower)
                if random.random() < 0.2:
                    c.call("cancel", id=number)
                elif random.random() < 0.5:
                    c.wait(number)
        except (OSError, EOFError, RpcError, AssertionError):
            time.sleep(0.02)


@pytest.mark.parametrize("world", [1, 2])
def test_kills_at_any_moment(tmp_path, world):
    """kill -9 of gpt2d, of an engine, of a client, of all at once: nothing is lost, and no run is done that is not."""
    kills = 100 if LONG else 6
    known, ctl, stop = {}, [], threading.Event()
    seed = random.randrange(1 << 32)
    print("seed", seed)
    random.seed(seed)
    with Daemon(home=tmp_path, ranks=world, engine=PROGRAM) as d:
        workers = [threading.Thread(target=clients, args=(d, known, stop, ctl)) for _ in range(2)]
        for worker in workers:
            worker.start()
        try:
            for _ in range(kills):
                time.sleep(random.random() * 0.4)
                what = random.choice(("daemon", "engine", "client", "all"))
                children = processes(d)
                if what in ("engine", "all") and children:
                    for pid in children if what == "all" else [random.choice(children)]:
                        kill_one(pid)
                if what in ("client", "all"):
                    for follower in ctl[-2:]:
                        follower.kill()
                if what in ("daemon", "all"):
                    d.kill()
                    d.start()
        finally:
            stop.set()
            for worker in workers:
                worker.join(120)
            for follower in ctl:
                follower.kill()
                follower.wait()
        assert not any(worker.is_alive() for worker in workers)
        check_all(d, known)
        check_next_run(d)
        print(len(known), "runs acknowledged")
