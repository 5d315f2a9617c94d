"""The ranks of an engine, driven over descriptor 3 as gpt2d does it."""

import json
import os
import select
import socket
import subprocess
import time
from pathlib import Path

import shapes

BUILD = Path(os.environ.get("GPT2D_BUILD", Path(__file__).resolve().parents[2] / "build"))
PROGRAM = BUILD / "engine/gpt2-engine-cpu"


def metrics(directory):
    return json.loads((directory / "training_metrics.json").read_text())


class Rank:
    """One engine process and its messages so far."""

    def __init__(self, *args, env=None, inside=()):
        self.sock, theirs = socket.socketpair()
        fd = theirs.fileno()
        move = 'exec "$@"' if fd == 3 else f'exec 3<&{fd} {fd}<&-; exec "$@"'
        self.process = subprocess.Popen(["/bin/bash", "-c", move, "bash", *inside, str(PROGRAM), *map(str, args)],
            stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env={**os.environ, **(env or {})})
        theirs.close()
        self.buffer = b""
        self.messages = []
        self.taken = 0

    def send(self, method, **params):
        self.sock.sendall(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")

    def read(self, seconds):
        """Waits this long for more messages; False at the end of file."""
        if not select.select([self.sock], [], [], seconds)[0]:
            return True
        data = self.sock.recv(1 << 16)
        self.buffer += data
        *lines, self.buffer = self.buffer.split(b"\n")
        for line in lines:
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0" and "id" not in message
            shapes.check("messages", f"{message['method']} params", message["params"])
            self.messages.append((message["method"], message["params"]))
        return bool(data)

    def wait(self, *methods, seconds=120, **wanted):
        """The next message of one of the methods whose params contain wanted, after the last one that was returned."""
        deadline = time.monotonic() + seconds
        while True:
            while self.taken < len(self.messages):
                method, params = self.messages[self.taken]
                self.taken += 1
                if method in methods and all(params.get(k) == v for k, v in wanted.items()):
                    return method, params
            left = deadline - time.monotonic()
            assert left > 0, f"no {' or '.join(methods)} came, but {self.messages[-5:]}"
            assert self.read(min(left, 1)), f"ended before {' or '.join(methods)}: {self.messages[-5:]}"

    def drain(self, seconds=0.2):
        """All messages within this time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.read(max(0, deadline - time.monotonic())):
            pass

    def all(self, method):
        return [params for name, params in self.messages if name == method]

    def end(self, seconds=60):
        """Its exit status, once its link is closed."""
        while self.read(seconds):
            pass
        return self.process.wait(seconds)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.sock.close()


class Ranks:
    """A world of engines, connected and ready. nodes: the node of each rank; inside: the command prefix of a rank."""

    def __init__(self, world=1, threads=1, env=None, options=(), nodes=None, inside=None):
        self.world = world
        self.ranks = [Rank("--role", "rank", "--rank", r, "--ranks", world, "--threads", threads, *options, env=env,
            inside=inside[r] if inside else ()) for r in range(world)]
        hellos = [rank.wait("engine.hello")[1] for rank in self.ranks]
        connect = {"addresses": [hello.get("address") for hello in hellos]}
        if nodes:
            connect["nodes"] = nodes
        for rank in self.ranks:
            rank.send("engine.connect", **connect)
        for rank in self.ranks:
            rank.wait("engine.ready")
        self.hellos = hellos
        self.segment = 1

    def __getitem__(self, rank):
        return self.ranks[rank]

    def start(self, spec, directory, world=None, run=1, **more):
        """segment.start to the first `world` ranks; its number."""
        world = world or self.world
        segment = self.segment
        self.segment += 1
        for rank in self.ranks[:world]:
            rank.send("segment.start", run=run, segment=segment, segments=100, arm="run", block=1, position=1,
                attempt=1, world=world, dir=str(directory), spec=json.dumps(spec), **more)
        return segment

    def train(self, spec, directory, world=None, **more):
        """A whole segment: (summary, messages of its steps)."""
        segment = self.start(spec, directory, world=world, **more)
        method, params = self[0].wait("segment.done", "segment.failed", segment=segment)
        assert method == "segment.done", params
        return params["summary"], [p for p in self[0].all("segment.step") if p["segment"] == segment]

    def close(self):
        for rank in self.ranks:
            rank.kill()

    def __iter__(self):
        return iter(self.ranks)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def spec(world=1, **keys):
    """A spec of a model that trains in milliseconds; keys replace its own."""
    base = {
        "name": "tiny",
        "model": {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 96, "n_positions": 32},
        "data": {"kind": "synthetic", "synthetic_tokens": 8192},
        "seq_len": 16,
        "gpus": world,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 1, "reduce_bucket_size": 4096, "overlap_comm": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}},
        "work": {"optimizer_steps": 12, "warmup_steps": 2, "validation_steps": 2},
    }
    base.update(keys)
    return base
