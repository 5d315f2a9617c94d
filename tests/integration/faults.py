"""Faults at a chosen write of gpt2d or of an engine (faults.c), and what has to be true after any of them.

    faults = Faults(tmp_path)
    with Daemon(home=tmp_path, environment=faults.environment) as d:
        faults.daemon.arm(FAIL, errno.ENOSPC)        # from now on
        faults.daemon.arm(KILL, first=3, last=3)     # at the third write from now on
        faults.daemon.disarm()

GPT2D_LONG=1 in the environment: every write instead of a sample, and many more rounds.
"""

import errno
import hashlib
import mmap
import os
import re
import signal
import socket
import struct
import subprocess
from pathlib import Path

from helpers import BUILD, PATIENCE_S, RpcError, experiment, spec, wait_for

LONG = bool(os.environ.get("GPT2D_LONG"))
LIBRARY = BUILD / "tests" / "faults.so"
FOREVER = (1 << 63) - 1
KILL, TORN, FAIL, SHORT, STALL = 1, 2, 3, 4, 5
SYNC, UNLINK, MKDIR, FILES, LISTEN, OWNER, CLOSE = 2, 16, 32, 127, 256, 512, 1024
NEEDS_ROOM = FILES - UNLINK
ENDED = ("done", "failed", "cancelled", "interrupted")


class Program:
    """The control block of one program; see struct control in faults.c."""

    def __init__(self, path):
        path.write_bytes(bytes(48))
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 48)
        self.disarm()

    def put(self, *fields):
        # first enables it, so the others are set before
        self.map[16:48] = struct.pack("4q", *fields[1:])
        self.map[8:16] = struct.pack("q", fields[0])

    @property
    def count(self):
        return struct.unpack("q", self.map[:8])[0]

    def arm(self, action, error=0, first=1, last=FOREVER, ops=FILES):
        """first, last: numbers of calls from now on."""
        now = self.count
        self.map[8:16] = bytes(8)
        self.put(now + first, last if last == FOREVER else now + last, action, error, ops)

    def disarm(self, ops=FILES):
        self.map[8:16] = bytes(8)
        self.put(0, 0, 0, 0, ops)


class Faults:
    def __init__(self, home, under=None):
        folder = home / "faults"
        folder.mkdir()
        self.daemon = Program(folder / "gpt2d")
        self.engine = Program(folder / "gpt2-engine-cpu")
        self.client = Program(folder / "gpt2ctl")
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1:verify_asan_link_order=0"
        self.environment = {"LD_PRELOAD": str(LIBRARY), "GPT2D_FAULTS": str(folder),
            "GPT2D_FAULTS_UNDER": str(under or home / "state"), "ASAN_OPTIONS": sanitizer}


def sample(total, n):
    """The numbers 1 to total, or n of them."""
    if LONG or total <= n:
        return range(1, total + 1)
    return sorted({1 + i * (total - 1) // (n - 1) for i in range(n)})


def submit_and_wait(d, known, runs=None):
    """Submits runs and waits for them while the daemon lives; adds acknowledged runs to known."""
    try:
        with d.client() as c:
            for run in runs or (spec("one"), experiment("two", repetitions=1)):
                try:
                    number = c.submit(run)
                except RpcError:
                    continue
                known[number] = run["name"]
                c.wait(number)
    except (OSError, EOFError, AssertionError) as gone:
        if isinstance(gone, socket.timeout) or not isinstance(gone, OSError) and "connection" not in str(gone):
            raise


def ensure_ended(d):
    """The process has ended, killed by its fault or stopped now."""
    if d.process.poll() is None:
        d.process.terminate()
    status = d.process.wait(60)
    d.process.stdout.close()
    d.process.stderr.close()
    assert status in (0, 1, -signal.SIGKILL), d.said()


def start_if_it_can(d):
    """Whether it listens; else its fault has hit it at the start."""
    d.process = subprocess.Popen(d.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=d.environment)
    wait_for(lambda: d.process.poll() is not None or d.accepts(), "gpt2d's socket or end")
    return d.process.poll() is None


def check_whole(run, segments):
    """A done run: every segment is done except those of void blocks, and its marker names the run and matches its metrics."""
    done = [segment for segment in segments if segment["state"] == "done"]
    assert run["segments_done"] == len(done) and run["segments"] == len(segments), run
    assert all(segment["state"] == "done" or segment["void"] for segment in segments), segments
    assert any(segment["void"] is None for segment in segments), segments
    for segment in done:
        with open(segment["dir"] + "/RUN_COMPLETE.txt") as f:
            marker = f.read()
        with open(segment["dir"] + "/training_metrics.json", "rb") as f:
            metrics = hashlib.sha256(f.read()).hexdigest()
        assert marker.endswith("\n") and f" run_id={run['id']} " in marker
        assert re.search(r" metrics_sha256=(\w+)", marker)[1] == metrics
    if run["segments"] > 1:
        with open(run["dir"] + "/RUN_COMPLETE.txt") as f:
            assert f" segments={len(done)} " in f.read()


def check_all(d, known):
    """Acknowledged runs exist and have ended, done runs are complete, and there are no partial files."""
    with d.client() as c:
        wait_for(lambda: (s := c.call("status"))["queued"] == 0 and not s["running"] and not s["store"],
            "the queue's end", patience=5 * PATIENCE_S)
        runs = {run["id"]: run for run in c.call("list", limit=10000)["runs"]}
        for number, name in known.items():
            assert number in runs, f"run {number} {name} was acknowledged and is lost"
            assert runs[number]["name"] == name
        for run in runs.values():
            assert run["state"] in ENDED, run
            segments = c.call("show", id=run["id"], limit=10000)["segments"]
            if run["state"] == "done":
                check_whole(run, segments)
            for one in [run, *segments]:
                assert one["state"] == "done" or not (Path(one["dir"]) / "RUN_COMPLETE.txt").exists(), one
    assert not [path for path in (d.state / "runs").rglob(".*") if path.name != ".trash"], "temporary files are left"


def check_next_run(d):
    with d.client() as c:
        number = c.submit(spec("next"))
        assert c.wait(number)["state"] == "done", d.said()


def small_file_system(path):
    """None, or why it is impossible."""
    if os.geteuid() != 0:
        return "only root mounts a file system"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(path)], capture_output=True,
        text=True, check=False)
    return mounted.stderr.strip() or "mount failed" if mounted.returncode else None


def fill(path):
    """No byte is free."""
    with open(path, "wb", buffering=0) as f:
        for size in (1 << 16, 4096, 1):
            try:
                while f.write(bytes(size)):
                    pass
            except OSError as full:
                assert full.errno == errno.ENOSPC
