"""Several gpt2d that form one world: on the loopback interface, or each in a node of nodes_hosts.py.

    with Cluster(2, ranks=2) as nodes, nodes.leader.client() as c:
        assert c.wait(c.submit(spec(gpus=4)))["state"] == "done"
"""

import hashlib
import hmac
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from helpers import Daemon, wait_for

NAME = "test"


def make_key(path, content=None):
    path.write_bytes(content or os.urandom(32))
    path.chmod(0o600)
    return path


def members(client):
    return client.call("status")["world"]["members"]


class Cluster:
    """n gpt2d with this many ranks each. inside: prefix of each node's command, from nodes_hosts.py. alone: only the leader."""

    def __init__(self, n=2, ranks=1, inside=None, interface="lo", address="127.0.0.1", engine=None, timeout=3, ready=True,
            environment=None, alone=False):
        self.home = Path(tempfile.mkdtemp(prefix="gpt2d-nodes-"))
        self.key = make_key(self.home / "key")
        self.n, self.ranks, self.inside, self.environment = n, ranks, inside or [()] * n, environment or {}
        self.address = f"{address}:0"
        self.common = ("--key-file", str(self.key), "--cluster", NAME, "--interface", interface, "--node-timeout", f"{timeout}s")
        self.engine = {} if engine is None else {"engine": engine}
        self.nodes = []
        try:
            self.nodes.append(self.make(0, "--listen", self.address, "--nodes", n, ready=False))
            # a leader that starts again has the same port
            self.address = (self.leader.state / "listening").read_text().strip()
            self.leader.command[self.leader.command.index("--listen") + 1] = self.address
            for node in range(1, 1 if alone else n):
                self.nodes.append(self.member(node))
            if ready:
                self.wait_ready()
        except BaseException:
            self.__exit__(True)
            raise

    @property
    def leader(self):
        return self.nodes[0]

    @property
    def port(self):
        return int(self.address.rpartition(":")[2])

    def make(self, node, *options, **more):
        home = self.home / f"node{node}{more.pop('suffix', '')}"
        home.mkdir(exist_ok=True)
        return Daemon(ranks=more.pop("ranks", self.ranks), home=home, prefix=self.inside[node], options=(*self.common, *map(str, options)),
            environment={**self.environment, **more.pop("environment", {})}, **{**self.engine, **more})

    def member(self, node, *options, **more):
        return self.make(node, "--join", self.address, "--node-id", node, *options, **more)

    def wait_ready(self):
        with self.leader.client() as c:
            wait_for(lambda: c.call("status")["engine"]["state"] == "ready", "the engines of all nodes")

    def wait_said(self, node, words):
        """The line of the node's log with the words."""
        daemon = node if isinstance(node, Daemon) else self.nodes[node]
        return wait_for(lambda: next((line for line in daemon.said().splitlines() if words in line), None), f"{words!r} in a log")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        """Members first: each waits for its leader, which ends meanwhile."""
        for daemon in self.nodes:
            if daemon.process.poll() is None:
                daemon.process.send_signal(signal.SIGCONT)
                daemon.process.terminate()
        for node, daemon in enumerate(self.nodes):
            daemon.__exit__(kind)
            if kind is not None:
                print(f"---- that was node {node}")
        shutil.rmtree(self.home, ignore_errors=True)


class Stranger:
    """A member made of openssl(1): the messages that it sends and receives."""

    def __init__(self, nodes, node=1, key=None, cluster=NAME, enter=()):
        secret = hmac.new(b"\0" * 32, key or nodes.key.read_bytes(), hashlib.sha256).digest()
        psk = hmac.new(secret, f"gpt2d/1/{cluster}".encode() + b"\x01", hashlib.sha256).hexdigest()
        self.process = subprocess.Popen([*enter, "openssl", "s_client", "-connect", nodes.address, "-tls1_3", "-quiet", "-psk", psk,
            "-psk_identity", f"gpt2d/1/{cluster}/{node}/0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def send(self, method, /, **params):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self):
        """The next message; None at the end."""
        line = self.process.stdout.readline()
        return json.loads(line) if line.strip() else None

    def close(self):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
