"""Hosts of one network, as namespaces of this machine.

Each host has a name, processes, a network interface, shared memory, mounts and a boot ID of its own. They share
the file system, except for /dev/shm and the folder local.

    with Hosts(2, tmp_path) as hosts:
        process = hosts[0].start(["gpt2d", ...])
        hosts[1].cut()
        hosts.switch.output(["ping", "-c1", "n1"])

The processes of a host end with it, also if this process is killed: they lose their PID namespace's process 1.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import uuid
from pathlib import Path

from helpers import PATIENCE_S, wait_for

NAMESPACES = ["--net", "--pid", "--ipc", "--uts", "--mount"]
NETWORK = "10.77.0."
SWITCH = 254

# Process 1 of a host: it reaps orphans, and ends at the end of its standard input.
HOLD = """
hostname "$1" && mount --bind "$2" /etc/hosts && mount --bind "$3" /proc/sys/kernel/random/boot_id &&
mount -t tmpfs none /dev/shm && mount -t tmpfs none "$4" && ip link set lo up && echo ready && read -r _
"""


def impossible():
    """Why there can be no hosts here; empty: there can."""
    if os.geteuid() != 0:
        return "needs root, for namespaces"
    for program in ("unshare", "nsenter", "ip"):
        if not shutil.which(program):
            return f"needs {program}"
    tried = subprocess.run(["unshare", *NAMESPACES, "--fork", "--mount-proc", "sh", "-c",
        "ip link add br0 type bridge && ip link add v0 type veth peer name v1 && mount -t tmpfs none /dev/shm"],
        capture_output=True, text=True, check=False)
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else ""


def children(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


class Process:
    """A command on a host, as a subprocess.Popen. pid is that of the command, as seen by this process."""

    def __init__(self, host, command, **options):
        # nsenter forks, for the PID namespace
        self.popen = subprocess.Popen([*host.enter, *map(str, command)], **options)
        wait_for(lambda: self.popen.poll() is not None or children(self.popen.pid), "nsenter's child")
        self.pid = (children(self.popen.pid) or [self.popen.pid])[0]
        self.stdout, self.stderr = self.popen.stdout, self.popen.stderr

    @property
    def returncode(self):
        return self.popen.returncode

    def poll(self):
        return self.popen.poll()

    def wait(self, timeout=PATIENCE_S):
        return self.popen.wait(timeout)

    def send_signal(self, number):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and nsenter has not yet
                os.kill(self.pid, number)
                if number == signal.SIGCONT:  # nsenter stops when its child stops
                    os.kill(self.popen.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


class Host:
    def __init__(self, name, number, hosts):
        self.name, self.number, self.address = name, number, f"{NETWORK}{number}"
        self.switch = hosts.switch
        boot_id = hosts.folder / f"boot_id.{name}"
        boot_id.write_text(f"{uuid.uuid4()}\n")
        self.holder = subprocess.Popen(["unshare", *NAMESPACES, "--fork", "--mount-proc", "--kill-child", "bash", "-c", HOLD, "bash",
            name, str(hosts.folder / "hosts"), str(boot_id), str(hosts.local)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "ready\n", f"host {name} did not start"
        self.first = children(self.holder.pid)[0]
        self.enter = ["nsenter", "--target", str(self.first), *NAMESPACES, "--"]

    def ip(self, *words):
        """In the host's network, and with this process's PIDs."""
        subprocess.run(["nsenter", "--target", str(self.first), "--net", "ip", *map(str, words)], check=True)

    def connect(self):
        """The interface eth0, at the other end of the switch's port."""
        port = f"port{self.number}"
        self.switch.ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", self.first)
        self.switch.ip("link", "set", port, "master", "br0", "up")
        self.ip("addr", "add", f"{self.address}/24", "dev", "eth0")
        self.ip("link", "set", "eth0", "up")

    def cut(self):
        """Drops all packets to and from this host, which cannot notice that."""
        self.switch.ip("link", "set", f"port{self.number}", "nomaster")

    def mend(self):
        self.switch.ip("link", "set", f"port{self.number}", "master", "br0")

    def start(self, command, **options):
        return Process(self, command, **options)

    def run(self, command, **options):
        return subprocess.run([*self.enter, *map(str, command)], **{"check": False, "capture_output": True, "text": True,
            "timeout": 2 * PATIENCE_S, **options})

    def output(self, command, **options):
        done = self.run(command, **options)
        assert done.returncode == 0, f"{self.name}: {command}: {done.stdout}{done.stderr}"
        return done.stdout

    def running(self, name):
        """The processes of this host whose program's name has name in it, as "PID NAME" each."""
        return self.run(["pgrep", "-l", name]).stdout.splitlines()

    def close(self):
        self.holder.stdin.close()
        self.holder.wait(PATIENCE_S)
        self.holder.stdout.close()


class Hosts(list):
    """n1, n2, ... and the switch between them, which is a host too: login."""

    def __init__(self, count, folder):
        super().__init__()
        self.folder, self.local = Path(folder), Path(folder) / "local"
        self.local.mkdir(parents=True)
        names = {"login": SWITCH, **{f"n{i + 1}": i + 1 for i in range(count)}}
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n"
            + "".join(f"{NETWORK}{number} {name}\n" for name, number in names.items()))
        self.switch = None
        try:
            self.switch = Host("login", SWITCH, self)
            self.switch.ip("link", "add", "br0", "type", "bridge")
            self.switch.ip("addr", "add", f"{self.switch.address}/24", "dev", "br0")
            self.switch.ip("link", "set", "br0", "up")
            for i in range(count):
                self.append(Host(f"n{i + 1}", i + 1, self))
                self[-1].connect()
        except BaseException:
            self.close()
            raise

    def close(self):
        for host in [*self, *filter(None, [self.switch])]:
            host.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
