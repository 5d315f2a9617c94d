"""A Debian system with a real systemd, booted from a tree with systemd-nspawn, for tests that install packages."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

# What the packages depend on, and what the tests use: inside there is no network.
PACKAGES = ("systemd", "systemd-sysv", "dbus", "libpam-systemd", "adduser", "apt", "procps", "sqlite3", "libevent-core-2.1-7", "libevent-openssl-2.1-7",
    "libjansson4", "libpcre2-8-0", "libsqlite3-0", "libssl3", "libsystemd0", "libucx0", "libopenblas0", "libopenblas0-pthread")
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
    "TERM": "dumb", "SYSTEMD_PAGER": "", "DEBIAN_FRONTEND": "noninteractive"}
UP_S, DOWN_S = 120, 30


def control_groups():
    """The folder of control groups version 2; None: not mounted for writing."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup2" and "rw" in options.split(","):
            return Path(folder)
    return None


def obstacle():
    """Why no system can be booted here, or None."""
    if os.geteuid() != 0:
        return "needs root, to boot a system"
    for program in ("systemd-nspawn", "mmdebstrap", "dpkg-buildpackage", "dh"):
        if not shutil.which(program):
            return f"no {program}: packaging/setup package installs it"
    if control_groups() is None:
        return "no control groups (version 2) that can be written"
    return None


def make_base(tar):
    """The tree as a tar file: what is there stays, as it takes a minute and the network. The error, or None."""
    names = tar.with_suffix(".packages")
    if tar.exists() and names.exists() and names.read_text() == " ".join(PACKAGES):
        return None
    release = dict(line.rstrip().split("=", 1) for line in open("/etc/os-release", encoding="utf-8") if "=" in line)
    sources = [path for path in ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list") if os.path.exists(path)]
    done = subprocess.run(["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--format=tar", f"--include={','.join(PACKAGES)}",
        "--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
        "--customize-hook=rm -f $1/etc/dpkg/dpkg.cfg.d/99mmdebstrap", release["VERSION_CODENAME"].strip('"'),
        f"{tar}.part", *sources[:1]], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return done.stderr[-2000:]
    os.rename(f"{tar}.part", tar)
    names.write_text(" ".join(PACKAGES))
    return None


class System:
    """tree is its root folder; inside, /tmp and /run are empty file systems in memory."""

    def __init__(self, base):
        self.folder = Path(tempfile.mkdtemp(prefix="gpt2d-system-"))
        self.tree = self.folder / "tree"
        self.tree.mkdir()
        self.group = Path(tempfile.mkdtemp(prefix="gpt2d-test-", dir=control_groups()))
        subprocess.run(["tar", "-C", self.tree, "--numeric-owner", "--xattrs", "--xattrs-include=*", "-xpf", base], check=True)
        (self.tree / "etc/hostname").write_text("testbed\n")
        (self.tree / "etc/resolv.conf").unlink(missing_ok=True)
        self.console = self.folder / "console"
        self.nspawn = None

    def start(self):
        # nspawn must find version 2 in /sys/fs/cgroup, and not touch this machine's /run
        script = f"""
            echo $$ >{self.group}/cgroup.procs
            [ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ] || mount --bind {control_groups()} /sys/fs/cgroup
            mount -t tmpfs -o mode=755 tmpfs /run
            exec systemd-nspawn --quiet --boot -D {self.tree} --machine=testbed --register=no --keep-unit \\
                --private-network --system-call-filter=bpf --console=pipe
        """
        with open(self.console, "w", encoding="utf-8") as console:
            self.nspawn = subprocess.Popen(["unshare", "--mount", "--propagation", "slave", "sh", "-ec", script],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True)
        end = time.monotonic() + UP_S
        while not self.is_up():
            if self.nspawn.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the system did not come up:\n" + self.console.read_text(errors="replace")[-2000:])
            time.sleep(0.1)

    def is_up(self):
        if self.leader() is None:
            return False
        state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        return state in ("running", "degraded")

    def leader(self):
        """The process that is number 1 inside; None: not yet, or no longer."""
        for line in self.members():
            with contextlib.suppress(OSError, IndexError):
                status = Path(f"/proc/{line}/status").read_text()
                numbers = next(row for row in status.splitlines() if row.startswith("NSpid:")).split()[1:]
                if len(numbers) > 1 and numbers[-1] == "1" and Path(f"/proc/{line}/comm").read_text() == "systemd\n":
                    return int(line)
        return None

    def members(self):
        found = []
        for path in [self.group, *self.group.rglob("*/")]:
            with contextlib.suppress(OSError):
                found += (path / "cgroup.procs").read_text().split()
        return found

    def run(self, *words, check=True, stdin=None, timeout=120):
        """A command inside, as root."""
        leader, group = self.leader(), self.group / "payload/commands"

        def join():
            group.mkdir(exist_ok=True)
            (group / "cgroup.procs").write_text(str(os.getpid()))

        done = subprocess.run(["nsenter", "-t", str(leader), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "env", "-i",
            *(f"{name}={value}" for name, value in ENVIRONMENT.items()), *map(str, words)], capture_output=True, text=True,
            input=stdin, timeout=timeout, check=False, preexec_fn=join)
        assert not check or done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def shell(self, script, check=True, user=None, timeout=120):
        """A script inside, as root or as a user with all groups of that user."""
        words = ["sh", "-c", script] if user is None else ["su", "-s", "/bin/sh", "-", user, "-c", script]
        return self.run(*words, check=check, timeout=timeout)

    def stop(self):
        """Without a shutdown: nothing of it is kept."""
        (self.group / "cgroup.kill").write_text("1")
        if self.nspawn is not None:
            self.nspawn.wait(DOWN_S)
        end = time.monotonic() + DOWN_S
        while self.members() and time.monotonic() < end:
            time.sleep(0.05)
        for path in sorted(self.group.rglob("*/"), key=lambda path: -len(path.parts)):
            with contextlib.suppress(OSError):
                path.rmdir()
        with contextlib.suppress(OSError):
            self.group.rmdir()
        shutil.rmtree(self.folder, ignore_errors=True)
