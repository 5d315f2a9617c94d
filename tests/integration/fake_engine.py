#!/usr/bin/python3
"""An engine that trains nothing: it speaks gpt2d's side of fd 3 and misbehaves when asked to.

As in a collective, rank 0 goes no further than the step in which another rank misbehaves.

How it behaves stands in the run's name, words joined by '-', as in "crash.r1.s2-x1":

    ms20          20 ms a step (1 without)
    crash.rR.sS   rank R kills itself with SIGKILL at step S
    exitN.rR.sS   rank R exits with status N at step S
    stop.rR.sS    rank R stops itself (SIGSTOP) at step S
    hang.rR.sS    rank R only sends heartbeats
    fail.rR.sS    rank R reports the failure "made_up"
    poison.rR.sS  the same, poisoned, and exits with 71
    closes.rR.sS  rank R closes its link and takes 2 s to exit, with 3
    last.rR.sS    the same as fail, after many log messages, and exits with 3 at once
    lost.rR.sS    rank R reports that a peer was lost
    garbage.rR.sS rank R sends an invalid message
    long.rR.sS    rank R sends 100 MB without a newline
    flood.rR.sS   rank R sends log messages for ever, as fast as it can
    hog.rR.sS     rank R allocates memory until that fails
    early.rR      rank R kills itself as soon as it gets the segment, the first time only
    never.rR      the same, each time
    deaf          segment.cancel is ignored
    heldN         the last step (of segment N, or of any) waits for the file "unhold" beside the state directory
    endheld       everything after segment.trained, files too, waits for that file or for engine.exit
    slowend       a second between segment.trained and segment.done
    noend         segment.done never comes
    nosay         the same, although all files exist
    silent        the end is not reported, although all files exist
    wide          the summary of a segment has 5,000 step times
    badmark       the marker has another hash than that of the metrics
    laststepN     the last step (of segment N, or of any) lasts until engine.exit
    endfail       the artifacts of a segment cannot be written
    endfail1      those of the first segment cannot
    logs          a log message with each step
    jitter        the reported time of each step is an hour

Environment: GPT2D_FAKE_START "dead", "mute", "old" or "other" for engines that do not get ready, "stay" for
engines that ignore engine.exit, "half" for one (rank 1) that dies while the ranks connect;
GPT2D_FAKE_CHECK "dead" or "mute" for a checker that does not answer, "slow" for one that takes two seconds, "closes"
for one that closes its link and exits with 3 that much later;
GPT2D_FAKE_SUMMARY a list (JSON) of {"when": members of segment.start, "set": members of its summary};
GPT2D_FAKE_CRASH members (JSON) of segment.start: rank 0 kills itself in the first step of such a segment;
GPT2D_FAKE_FAIL the same, but it reports the failure "made_up";
GPT2D_FAKE_GPU a list (JSON) of with the figures that the ranks report of their GPUs. A spec whose seed is 666 is refused by the
checker; one whose data.train is a stuck.bin is never answered, an endless.bin is never read to its end.
"""

import hashlib
import json
import os
import re
import select
import signal
import socket
import sys
import time
from pathlib import Path

import shapes


class Link:
    def __init__(self):
        self.socket = socket.socket(fileno=3)
        self.buffer = b""

    def send(self, method, **params):
        line = json.dumps({"jsonrpc": "2.0", "method": method, "params": params}) + "\n"
        self.socket.sendall(line.encode())

    def close(self):
        """The process lives on for a while, like one that has much memory to free."""
        self.socket.close()
        time.sleep(2)
        os._exit(3)

    def await_exit(self):
        """Like a long step: nothing is read from the link."""
        while b'"engine.exit"' not in (waits := self.buffer + self.peek()):
            self.send("engine.alive")
            if b'"segment.cancel"' in waits:
                self.send("engine.log", level="debug", message="a cancel waits")
            time.sleep(0.05)

    def peek(self):
        try:
            return self.socket.recv(65536, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""

    def receive(self, timeout):
        """(method, params) or None; ends the process when gpt2d has ended."""
        until = time.monotonic() + timeout
        while b"\n" not in self.buffer:
            left = until - time.monotonic()
            if not select.select([self.socket], [], [], max(left, 0))[0]:
                return None
            data = self.socket.recv(65536)
            if not data:
                sys.exit(72)
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        message = json.loads(line)
        shapes.check("messages", f"{message['method']} params", message["params"])
        return message["method"], message["params"]


def merge(base, more):
    """The keys of base, overridden by those of more, which may be dotted."""
    for key, value in more.items():
        first, _, rest = key.partition(".")
        value = {rest: value} if rest else value
        base[first] = merge(dict(base.get(first) or {}), value) if isinstance(value, dict) else value
    return base


def arm_of(params):
    """The configuration of the arm in segment.start or check."""
    spec = json.loads(params["spec"])
    return merge(spec, (spec.get("arms") or {}).get(params["arm"], {}))


class Engine:
    def __init__(self, link, rank, ranks):
        self.link, self.rank, self.ranks = link, rank, ranks
        self.segment = None
        self.finishing = []  # (time, segment)
        self.alive_at = 0
        gpus = json.loads(os.environ.get("GPT2D_FAKE_GPU", "null"))
        self.gpu = gpus and gpus[rank]
        self.rules = json.loads(os.environ.get("GPT2D_FAKE_SUMMARY", "[]"))
        self.crash = json.loads(os.environ.get("GPT2D_FAKE_CRASH", "null"))
        self.fail = json.loads(os.environ.get("GPT2D_FAKE_FAIL", "null"))

    def hello(self):
        start = os.environ.get("GPT2D_FAKE_START", "")
        if start == "dead":
            sys.exit(9)
        if start == "mute":
            time.sleep(3600)
        device = {"backend": "cpu", "name": "fake", "library": "none", "memory_total_bytes": 1, "memory_free_bytes": 1}
        if self.gpu:
            device["backend"] = "cuda"
        self.link.send("engine.hello", protocol=99 if start == "old" else 1, role="rank", rank=self.rank,
            pid=os.getpid(), address=f"fake-{self.rank}", device=device,
            **({"build": "another-build"} if start == "other" else {}))

    def notify(self, method, segment=None, **params):
        s = segment or self.segment
        self.link.send(method, run=s["run"], segment=s["segment"], **params)

    def option(self, word):
        """The step at which this rank performs word, or None; for crash.r1.s2 it is 2 on rank 1."""
        match = re.search(rf"\b{word}(\d*)\.r(\d+)\.s(\d+)", self.segment["name"])
        if match and int(match[2]) == self.rank and int(match[3]) == self.step:
            return match[1] or "0"
        return None

    def held(self):
        """Whether another rank has stopped taking part."""
        faults = re.findall(r"\b[a-z]+\d*\.r(\d+)\.s(\d+)", self.segment["name"])
        return any(int(rank) not in (self.rank, 0) and self.step + 1 >= int(step) for rank, step in faults)

    def has(self, word, segment=None):
        return word in re.split(r"-", (segment or self.segment)["name"])

    def waits(self, word, segment):
        """Whether it waits for the test's file. The segment's folder is below that of all runs."""
        state = segment["dir"].rpartition("/runs/")[0]
        return (self.has(word, segment) or self.has(f"{word}{segment['segment']}", segment)) and not os.path.exists(
            os.path.join(os.path.dirname(state), "unhold"))

    def start(self, params):
        spec = arm_of(params)
        params["name"] = spec["name"]
        self.segment, self.step = params, 0
        os.makedirs(params["dir"], exist_ok=True)
        once = os.path.join(params["dir"], "died-early")
        if self.has(f"never.r{self.rank}") or self.has(f"early.r{self.rank}") and not os.path.exists(once):
            Path(once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps = spec["work"]["optimizer_steps"]
        match = re.search(r"\bms(\d+)\b", params["name"])
        self.pause = int(match[1]) / 1000 if match else 0.001
        if self.rank == 0:
            path = os.path.join(params["dir"], "RUN_COMPLETE.txt")
            if os.path.exists(path):
                os.unlink(path)
            self.notify("segment.started", init_ns=1000)
        self.next_step = time.monotonic() + self.pause

    def misbehave(self):
        """True when the segment is over for this rank."""
        if self.option("crash") or self.crash and self.rank == 0 and self.crash.items() <= self.segment.items():
            os.kill(os.getpid(), signal.SIGKILL)
        if self.option("exit"):
            os._exit(int(self.option("exit")))
        if self.option("hog"):
            held = []
            while True:
                held.append(b"x" * (1 << 20))
        if self.option("stop"):
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.option("hang"):
            while True:
                self.link.send("engine.alive")
                time.sleep(0.3)
        if self.option("closes"):
            self.link.close()
        if self.option("garbage"):
            self.link.socket.sendall(b"what?\n")
            time.sleep(60)
        if self.option("long"):
            self.link.socket.sendall(b"x" * 100_000_000)
            time.sleep(3600)
        while self.option("flood"):
            self.link.send("engine.log", level="debug", message="and another one")
        if self.option("fail") or self.fail and self.rank == 0 and self.fail.items() <= self.segment.items():
            self.notify("segment.failed", reason="made_up", message="as asked", poisoned=False)
        elif self.option("poison"):
            self.notify("segment.failed", reason="made_up", message="as asked", poisoned=True)
            os._exit(71)
        elif self.option("last"):
            # more than gpt2d's loop handles in one iteration, so that it notices the exit in between
            for _ in range(1000):
                self.link.send("engine.log", level="debug", message="about to fail")
            self.notify("segment.failed", reason="made_up", message="as asked", poisoned=False)
            os._exit(3)
        elif self.option("lost"):
            self.notify("segment.failed", reason="peer_lost", message="no message for a while",
                poisoned=False)
        else:
            return False
        self.segment = None
        return True

    def train(self):
        if time.monotonic() < self.next_step or self.rank == 0 and self.held():
            return
        if self.rank == 0 and self.step + 1 == self.steps and self.waits("held", self.segment):
            self.next_step = time.monotonic() + 0.01
            return
        self.next_step = time.monotonic() + self.pause
        self.step += 1
        if self.misbehave() or self.rank != 0 and self.step < self.steps:
            return
        if self.rank == 0:
            self.notify("segment.step", step=self.step, steps=self.steps, loss=10.0 / self.step,
                tokens_per_sec=1000.0, step_time_ns=int((3600 if self.has("jitter") else self.pause) * 1e9))
            if self.has("logs"):
                self.link.send("engine.log", level="info", message=f"step {self.step}")
        if self.step < self.steps:
            return
        if self.has("laststep") or self.has(f"laststep{self.segment['segment']}"):
            self.link.await_exit()
        if self.rank == 0:
            if not self.has("silent"):
                self.notify("segment.trained")
            self.finishing.append((time.monotonic() + self.has("slowend"), self.segment))
        self.segment = None

    def finish(self, segment):
        if self.has("noend", segment):
            return
        if self.has("endfail", segment) or self.has("endfail1", segment) and segment["segment"] == 1:
            self.notify("segment.failed", segment, reason="artifacts", message="step_log.csv: is a folder",
                poisoned=False)
            return
        text = json.dumps({"loss": 1.5})
        with open(os.path.join(segment["dir"], "training_metrics.json"), "w") as f:
            f.write(text)
        self.notify("segment.artifact", segment, path="training_metrics.json", bytes=len(text))
        summary = {**shapes.example("messages", "summary"), "loss_last": 1.5, "tokens_total": segment["segment"], "seconds_measured": 1.0}
        if self.has("wide", segment):
            summary["step_time_ns"] = [1] * 5000
        for rule in self.rules:
            if rule["when"].items() <= segment.items():
                summary.update(rule["set"])
        kept = ("nosay", "silent", "endheld", "laststep", f"laststep{segment['segment']}")
        if self.rules or any(self.has(word, segment) for word in kept):
            with open(os.path.join(segment["dir"], "summary.json"), "w") as f:
                json.dump({"summary": summary}, f)
        # whole once it is there, as the real one's: gpt2d, and this with it, may be killed as soon as it is seen
        part = os.path.join(segment["dir"], ".RUN_COMPLETE.txt.tmp")
        with open(part, "w") as f:
            f.write(f"[Rank 0] RUN_COMPLETE checkpoint_path={segment['dir']} run_id={segment['run']}"
                f" segment={segment['segment']} spec_sha256={segment['spec_sha256']}"
                f" metrics_sha256={hashlib.sha256(b'' if self.has('badmark', segment) else text.encode()).hexdigest()}\n")
        os.rename(part, os.path.join(segment["dir"], "RUN_COMPLETE.txt"))
        if not self.has("nosay", segment) and not self.has("silent", segment):
            self.notify("segment.done", segment, summary=summary)

    def handle(self, method, params):
        start = os.environ.get("GPT2D_FAKE_START", "")
        if method == "engine.connect":
            assert len(params["addresses"]) == self.ranks
            if start == "half" and self.rank == 1:
                os._exit(73)
            self.link.send("engine.ready")
        elif method == "engine.exit":
            while self.finishing:
                self.finish(self.finishing.pop(0)[1])
            while start == "stay":
                self.link.send("engine.alive")
                time.sleep(0.3)
            sys.exit(0)
        elif method == "segment.start":
            assert params["world"] > self.rank
            self.start(params)
        elif method == "segment.cancel" and self.segment and not self.has("deaf"):
            if (params["run"], params["segment"]) == (self.segment["run"], self.segment["segment"]):
                if self.rank == 0:
                    self.notify("segment.cancelled", step=self.step)
                self.segment = None

    def run(self):
        self.hello()
        while True:
            now = time.monotonic()
            if now >= self.alive_at:
                self.link.send("engine.alive", **({"gpu": self.gpu} if self.gpu else {}))
                self.alive_at = now + 0.5
            while self.finishing and self.finishing[0][0] <= now and not self.waits("endheld", self.finishing[0][1]):
                self.finish(self.finishing.pop(0)[1])
            if self.segment:
                self.train()
            wait = 0.5
            if self.segment and not (self.rank == 0 and self.held()):
                wait = max(self.next_step - time.monotonic(), 0)
            elif self.finishing:
                wait = 0.02
            message = self.link.receive(min(wait, 0.5))
            if message:
                self.handle(*message)


def check(link):
    how = os.environ.get("GPT2D_FAKE_CHECK", "")
    link.send("engine.hello", protocol=1, role="check", pid=os.getpid(), device={"name": "fake"})
    link.send("engine.ready")
    while True:
        message = link.receive(0.5)
        if message is None:
            link.send("engine.alive")
            continue
        method, params = message
        if method == "engine.exit":
            sys.exit(0)
        if how == "dead":
            os.kill(os.getpid(), signal.SIGSEGV)
        if how == "mute":
            continue
        if how == "closes":
            link.close()
        if how == "slow":
            time.sleep(2)
        spec = arm_of(params)
        file = (spec["data"].get("train") or "").split("/")[-1]
        if file == "stuck.bin":
            continue
        if spec.get("seed") == 666:
            link.send("check.reply", token=params["token"], ok=False,
                errors=[{"key": "data.train", "message": "train.bin: 5 tokens, 6 needed"}])
        else:
            link.send("check.reply", token=params["token"], ok=True, errors=[],
                check=shapes.example("messages", "check"))


def connect(link, rank):
    link.send("engine.hello", protocol=1, role="connect", rank=rank, pid=os.getpid(), address=f"fake-{rank}")
    while True:
        message = link.receive(0.5)
        if message and message[0] == "engine.connect":
            link.send("engine.ready")


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    if arguments["--role"] == "check":
        check(Link())
    elif arguments["--role"] == "connect":
        connect(Link(), int(arguments["--rank"]))
    else:
        assert int(arguments["--threads"]) >= 1
        Engine(Link(), int(arguments["--rank"]), int(arguments["--ranks"])).run()


main()
