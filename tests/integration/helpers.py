"""A gpt2d of one's own for a test: private socket and state directory, and a client of it.

    def test_something(daemon):
        with daemon(ranks=2) as d, d.client() as c:
            run = c.submit(spec("some-name"))
            events = c.follow(run)

The engine is fake_engine.py unless engine= names another. The programs are taken from $GPT2D_BUILD,
else from build/ of the source tree.
"""

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path

import shapes

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GPT2D_BUILD", ROOT / "build"))
FAKE_ENGINE = Path(__file__).resolve().parent / "fake_engine.py"
PATIENCE_S = 60  # for operations that should be quick: a loaded machine and sanitizers are slow

UNCHECKED = "the spec could not be checked: the engine that checks specs "  # what follows says why


class RpcError(Exception):
    def __init__(self, error):
        super().__init__(error["message"])
        self.code, self.message, self.data = error["code"], error["message"], error.get("data")



def refusal(call, *args, **params):
    """The error of a request."""
    try:
        call(*args, **params)
    except RpcError as error:
        return error
    raise AssertionError(f"{args} {params}: not refused")


def spec(name="run", steps=3, **more):
    """The spec of a small run; more replaces or adds keys."""
    return {
        "name": name, "model": "nano", "data": {"kind": "synthetic"}, "seq_len": 64,
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
        "work": {"optimizer_steps": steps, "warmup_steps": 0}, **more,
    }


def experiment(name="exp", steps=3, repetitions=2, **more):
    """Two arms, each block mirrored: 4 segments a repetition."""
    return spec(name, steps, arms={
        "a": {"zero_optimization": {"reduce_bucket_size": 1000000}},
        "b": {"zero_optimization": {"reduce_bucket_size": 2000000}},
    }, design={"repetitions": repetitions, "mirrored": True, "seed": 1, "aa_control": False}, **{"restart": False, **more})


def wait_for(condition, what, patience=PATIENCE_S):
    """The first true value of condition()."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {patience} s")


def agrees(d):
    """Every done run and segment has its completion marker, and no other has one; returns how many are done."""
    with sqlite3.connect(d.state / "gpt2d.db") as db:
        runs = db.execute("select id, name, attempt, state from runs").fetchall()
        segments = db.execute("select run, segment, dir, state from segments where dir <> ''").fetchall()
    for run, name, attempt, state in runs:
        folder = d.state / "runs" / (f"{run}-{name}" + (f".{attempt}" if attempt > 1 else ""))
        if state in ("done", "failed", "cancelled", "interrupted"):
            assert (folder / "RUN_COMPLETE.txt").exists() == (state == "done"), f"run {run} is {state}"
    for run, segment, folder, state in segments:
        if state != "trained":  # its files may still be being written
            assert (Path(folder) / "RUN_COMPLETE.txt").exists() == (state == "done"), f"run {run} segment {segment} is {state}"
    return sum(run[3] == "done" for run in runs)


def figure(c, name):
    """The figure with that name in gpt2d's metrics, without labels except the socket."""
    return float(re.search(rf'^{name}\{{socket="[^"]*"\}} (\S+)$', c.call("metrics")["text"], re.M)[1])


def ids(c):
    """IDs of all known runs."""
    return [run["id"] for run in c.call("list", limit=10000)["runs"]]


def folders(d):
    """IDs of the runs that have files."""
    return sorted(int(path.name.split("-")[0]) for path in (d.state / "runs").glob("[0-9]*"))


def trash(d):
    """IDs of the runs that are being removed."""
    path = d.state / "runs" / ".trash"
    return sorted(path.iterdir()) if path.exists() else []


def has_ended(pid):
    """Whether the process has ended, or is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between open and read
        return True


def read_until(process, words):
    """Lines of its output up to the first with words; fails if the output ends before."""
    line = process.stdout.readline()
    while words not in line:
        assert line, f"no {words}: {process.stderr.read()}"
        line = process.stdout.readline()


class Client:
    """A connection after hello. Every message must have the shape that proto/schema gives it."""

    def __init__(self, path, hello=True):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(str(path))
        self.buffer = b""
        self.last_id = 0
        self.asked = {}  # the method of each request, by its id
        self.events = []
        if hello:
            self.greeting = self.call("hello", protocol=1, client="test")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send_raw(self, data):
        self.socket.sendall(data)

    def receive(self):
        """The next message, or None at the end of the stream."""
        while b"\n" not in self.buffer:
            data = self.socket.recv(1 << 20)
            if not data:
                return None
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        message = json.loads(line)
        if "method" in message:
            shapes.check("messages", message["method"], message)
        elif message.get("id") in self.asked:
            shapes.check_reply(self.asked[message["id"]], message)
        return message

    def ask(self, method, **params):
        """A spec may be an object; gpt2d gets its text."""
        self.last_id += 1
        self.asked[self.last_id] = method
        if isinstance(params.get("spec"), dict):
            params["spec"] = json.dumps(params["spec"])
        self.send_raw(json.dumps({"jsonrpc": "2.0", "id": self.last_id, "method": method,
            "params": params}).encode() + b"\n")
        return self.last_id

    def reply(self, to):
        while True:
            message = self.receive()
            if message is None:
                raise EOFError("gpt2d closed the connection")
            if "method" in message:
                self.events.append(message)
            elif "error" in message:
                raise RpcError(message["error"])
            else:
                assert message["id"] == to
                return message["result"]

    def call(self, method, **params):
        return self.reply(self.ask(method, **params))

    def submit(self, run):
        return self.call("submit", spec=run)["id"]

    def event(self):
        if self.events:
            return self.events.pop(0)
        message = self.receive()
        assert message is None or "method" in message, message
        return message

    def follow(self, run, **params):
        """All events of a run up to its last one."""
        self.call("follow", id=run, **params)
        return self.followed(run)

    def followed(self, run):
        """The remaining events of a followed run."""
        events = []
        while not events or events[-1]["method"] != "run.done":
            event = self.event()
            assert event is not None, f"the connection ended after {events}"
            if event["params"]["id"] == run:
                events.append(event)
        return events

    def wait(self, run):
        """The last event's params."""
        return self.follow(run)[-1]["params"]

    def state(self, run):
        return self.call("show", id=run)["run"]["state"]


class Daemon:
    def __init__(self, ranks=1, engine=FAKE_ENGINE, home=None, ready=True, environment=None, options=(),
            config=None, prefix=()):
        self.own_home = home is None
        self.home = Path(home or tempfile.mkdtemp(prefix="gpt2d-"))
        self.socket = self.home / "run" / "gpt2d.sock"
        self.state = self.home / "state"
        self.log = self.home / "log"
        self.command = [*prefix, str(BUILD / "daemon" / "gpt2d"), "-c", str(config or "/dev/null"), "--socket", str(self.socket), "--state-dir",
            str(self.state), "--engine", str(engine), "--ranks", str(ranks), "--threads", "1",
            "--log-file", str(self.log), "--verbose", *options]
        # freed memory that a sanitizer keeps would count as the daemon's
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
        # copies of the fake engine need shapes.py
        self.environment = {**os.environ, "ASAN_OPTIONS": sanitizer, "PYTHONPATH": str(FAKE_ENGINE.parent),
            **(environment or {})}
        self.process = None
        self.start(ready)

    def launch(self, **options):
        return subprocess.Popen(self.command, **options)

    def start(self, ready=True):
        self.process = self.launch(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment)
        if ready:
            line = self.process.stdout.readline()
            assert line.startswith("gpt2d: ready, "), line + self.process.stderr.read() + self.said()
        else:
            wait_for(lambda: self.process.poll() is not None or self.accepts(), "gpt2d's socket")

    def accepts(self):
        try:
            Client(self.socket).close()
        except (OSError, EOFError, RpcError):
            return False
        return True

    def client(self, **options):
        return Client(self.socket, **options)

    def log_rests(self):
        """The thread that writes the log sleeps: it has no line, or nobody takes one."""
        for task in Path(f"/proc/{self.process.pid}/task").glob("*"):
            if (task / "comm").read_text() == "log\n":
                return (task / "stat").read_text().rpartition(") ")[2][0] in "SD"
        return True

    def said(self):
        """The log, with every line that gpt2d has written up to now."""
        if self.process is not None and self.process.poll() is None:
            wait_for(self.log_rests, "the thread of the log")
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        self.process.stderr.close()

    def stop(self):
        """SIGTERM; the exit status."""
        self.process.terminate()
        status = self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        self.process.stderr.close()
        return status

    def engines(self):
        """pid of every rank, once all are ready: one that has just died is still listed for a moment."""
        with self.client() as c:
            def ready():
                engine = c.call("status")["engine"]
                return engine if engine["state"] == "ready" else None

            return [rank["pid"] for rank in wait_for(ready, "engines that are ready")["ranks"]]

    def unhold(self):
        """Creates the file that the fake engine waits for if the run's name has "held"."""
        (self.home / "unhold").touch()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if self.process.poll() is None:
                status = self.stop()
                if kind is None:
                    assert status == 0, self.said()
        finally:
            if self.process.poll() is None:
                self.kill()
            if kind is not None:
                print(self.said(), f"gpt2d's exit status: {self.process.returncode}", sep="\n")
                print("" if self.process.stderr.closed else self.process.stderr.read())
            if self.own_home:
                shutil.rmtree(self.home, ignore_errors=True)
