"""Nodes on one machine. Each has its own network, process IDs, IPC, mounts and /dev/shm; a bridge in a namespace of its own
joins them, so nothing of the host's network is touched, and the end of the processes here removes it all."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

NETWORK = "10.78.0"
HOLD = "mount -t tmpfs none /dev/shm && ip link set lo up && exec sleep infinity"


def why_not():
    """Why this machine cannot make such nodes; "" if it can."""
    if os.geteuid() != 0:
        return "namespaces of several nodes need root"
    for program in ("ip", "nsenter", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is not installed (packaging/setup test)"
    tried = subprocess.run(["unshare", "--net", "--pid", "--ipc", "--mount", "--fork", "--mount-proc", "sh", "-c",
        "mount -t tmpfs none /dev/shm && ip link add br0 type bridge && ip link add veth0 type veth peer name veth1"],
        capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"no namespaces of several nodes here: {tried.stderr.strip()[:200]}"


def run(pid, *command):
    subprocess.run(["nsenter", "-t", str(pid), "--net", *map(str, command)], check=True, capture_output=True)


class Node:
    """A node: commands run inside it with `inside` before them."""

    def __init__(self, index):
        self.index = index
        self.address = f"{NETWORK}.{index + 1}"
        self.holder = subprocess.Popen(["unshare", "--net", "--pid", "--ipc", "--mount", "--fork", "--mount-proc",
            "--kill-child", "sh", "-c", HOLD], stdin=subprocess.DEVNULL)
        self.pid = self.first_process()
        self.inside = ["nsenter", "-t", str(self.pid), "--net", "--pid", "--ipc", "--mount"]

    def first_process(self):
        """The host's number of the process that holds the namespaces, once it has made them."""
        children = Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children")
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for child in children.read_text().split():
                if Path(f"/proc/{child}/comm").read_text().strip() == "sleep":
                    return int(child)
            time.sleep(0.01)
        raise AssertionError(f"node {self.index}: its namespaces were not made")

    def processes(self):
        """The host's numbers of all processes inside but the one that holds the namespaces."""
        space = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and int(entry.name) != self.pid and os.readlink(entry / "ns/pid") == space:
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def end(self):
        """As a machine that loses power: every process inside is killed."""
        self.holder.kill()
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.holder.wait()


class Nodes:
    """n nodes on one network: interface eth0, addresses NETWORK.1 and up."""

    def __init__(self, n):
        self.switch = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL)
        self.nodes = []
        try:
            self.make_switch()
            for index in range(n):
                self.add(index)
        except BaseException:
            self.close()
            raise

    def make_switch(self):
        own, deadline = os.readlink("/proc/self/ns/net"), time.monotonic() + 20
        while os.readlink(f"/proc/{self.switch.pid}/ns/net") == own:
            assert time.monotonic() < deadline, "no network namespace was made"
            time.sleep(0.01)
        run(self.switch.pid, "ip", "link", "add", "br0", "type", "bridge")
        run(self.switch.pid, "ip", "link", "set", "br0", "up")

    def add(self, index):
        """One more node, or one again that was ended."""
        node = Node(index)
        self.nodes[index:index + 1] = [node]
        port = f"port{index}"
        run(self.switch.pid, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", node.pid)
        run(self.switch.pid, "ip", "link", "set", port, "master", "br0", "up")
        run(node.pid, "ip", "address", "add", f"{node.address}/24", "dev", "eth0")
        run(node.pid, "ip", "link", "set", "eth0", "up")
        return node

    def cut(self, index):
        """Pulls the node's cable; both ends stay up as far as they can see."""
        run(self.switch.pid, "ip", "link", "set", f"port{index}", "nomaster")

    def join(self, index):
        run(self.switch.pid, "ip", "link", "set", f"port{index}", "master", "br0")

    def __getitem__(self, index):
        return self.nodes[index]

    def __len__(self):
        return len(self.nodes)

    def close(self):
        for node in self.nodes:
            node.end()
        self.switch.kill()
        self.switch.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
