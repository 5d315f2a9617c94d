"""Limits on address space and memory: engines name them and nothing hangs; gpt2d ends and loses nothing."""

import json
import os
import resource
import subprocess
from pathlib import Path

import pytest

from helpers import PATIENCE_S, UNCHECKED, Daemon, RpcError, refusal, spec, wait_for
from test_supervision import CPU, NEW, check_reason, small, under

unsanitized = pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="a sanitizer takes terabytes of address space")


def limited_engine(tmp_path, kib):
    """The CPU engine, with this much address space."""
    engine = tmp_path / "engine.sh"
    engine.write_text(f'#!/bin/sh\nulimit -v {kib}\nexec {CPU} "$@"\n')
    engine.chmod(0o700)
    return engine


@unsanitized
def test_an_engine_without_address_space(daemon, tmp_path):
    """The engine reports it and ends, although OpenBLAS would retry for ever; the client gets the error too, not only the log."""
    why = "exited with status 71 (a new process is needed): "
    no_space = "no address space for the matrix products of 1 thread, 128 MiB for each (ulimit -v)"
    with daemon(engine=limited_engine(tmp_path, 160000), ready=False) as d, d.client() as c:
        reason = f"engine_lost: rank 0 {why}device: {no_space}"
        wait_for(lambda: c.call("status")["engine"]["reason"] == reason, "the reason")
        assert refusal(c.submit, small("refused")).message == f"{UNCHECKED}{why}check: no device found: {no_space}"
        limited_engine(tmp_path, "unlimited")
        wait_for(lambda: c.call("status")["engine"]["state"] == "ready", "engines")
        assert c.wait(c.submit(small("next")))["state"] == "done"


@unsanitized
@pytest.mark.parametrize("kib", [120000, 200000, 240000, 280000])
def test_little_address_space_hangs_nothing(daemon, tmp_path, kib):
    """Whatever allocation fails first: the run is refused, fails or is done."""
    with daemon(ranks=2, engine=limited_engine(tmp_path, kib), ready=False) as d, d.client() as c:
        try:
            run = c.submit(small("tight"))
        except RpcError as refused:
            assert refused.message.startswith(UNCHECKED)
            return

        def over():
            return c.call("show", id=run)["run"]["state"] in ("done", "failed") or \
                c.call("status")["engine"]["restarts"] > 1

        wait_for(over, "an end")


@unsanitized
def test_an_engine_started_by_hand_without_address_space_ends(tmp_path):
    """Threads that OpenBLAS starts before main wait for memory for ever: nobody waits for them."""
    engine, one = limited_engine(tmp_path, 160000), {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    reported = subprocess.run([engine, "--version"], capture_output=True, text=True, timeout=60, check=False, env=one)
    assert reported.returncode == 0 and reported.stdout.startswith("gpt2-engine ")
    odd = subprocess.run([engine, "--role", "odd"], capture_output=True, timeout=60, check=False, env=one)
    assert odd.returncode == 2


@unsanitized
@pytest.mark.parametrize("limit", ["v", "d"])
def test_a_limit_on_address_space_is_named(daemon, limit):
    with daemon(engine=CPU, prefix=["/bin/sh", "-c", f'ulimit -{limit} 1200000 && exec "$@"', "sh"]) as d, d.client() as c:
        run = c.wait(c.submit(spec(model={"preset": "gpt2", "n_layer": 8}, seq_len=64)))
        assert run["state"] == "failed" and " more were refused: " in run["reason"] and f"(ulimit -{limit}, " in run["reason"], run


@unsanitized
def test_a_limit_on_data():
    check_reason([NEW + "device: no address space", "128 MiB for each (ulimit -d)"], prefix=under("ulimit -d 100000"))


def address_space(process):
    with open(f"/proc/{process.pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[0]) * resource.getpagesize()


@unsanitized
def test_nothing_accepted_is_lost(tmp_path):
    accepted = []
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            c.call("drain")
            accepted.append(c.submit(spec("before")))
            room = address_space(d.process) + (1 << 20)
            resource.prlimit(d.process.pid, resource.RLIMIT_AS, (room, room))
            clients = []
            try:
                for i in range(200):  # each keeps a large request that has no end yet
                    clients.append(d.client())
                    clients[-1].socket.sendall(b'{"jsonrpc": "2.0", "padding": "' + bytes(ord("x") for _ in range(200000)))
                    accepted.append(c.submit(spec(f"r{i}")))
            except (OSError, EOFError, RpcError):
                pass
            assert d.process.wait(PATIENCE_S) != 0
            assert "out of memory" in d.process.stderr.read()
        d.process.stdout.close()
        d.process.stderr.close()
        d.start()
        with d.client() as c:
            runs = [run["id"] for run in c.call("list", limit=1000)["runs"]]
            assert set(accepted) <= set(runs) and c.call("status")["drained"]


LIMIT = 400 << 20


def own_group():
    """The folder of this process's group for memory and the file of its limit, or None."""
    mounts = [line.split(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for kind, file in (("cgroup", "memory.limit_in_bytes"), ("cgroup2", "memory.max")):
        for _, controllers, path in groups:
            if "memory" not in controllers.split(",") if kind == "cgroup" else controllers:
                continue
            for mount, rest in mounts:
                words = rest.split()
                if words[0] == kind and (kind == "cgroup2" or "memory" in words[2].split(",")) and mount.split()[3] == "/":
                    return Path(mount.split()[4] + path.rstrip("/")), file
    return None


@pytest.fixture
def group():
    """A group of one's own with that limit: (how to start a program in it, the file that says the limit)."""
    if Path("/proc/swaps").read_text().count("\n") > 1:
        pytest.skip("there is swap: the limit does not end anything")
    found = own_group()
    if not found:
        pytest.skip("no control groups")
    parent, limit = found
    path = parent / f"gpt2d-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no group can be made: {error}")
    try:
        try:
            (path / limit).write_text(str(LIMIT))
        except OSError as error:
            pytest.skip(f"the group's memory cannot be limited: {error}")
        yield ["/bin/sh", "-c", f'echo $$ >{path}/cgroup.procs && exec "$@"', "sh"], path / limit
    finally:
        wait_for(lambda: not (path / "cgroup.procs").read_text(), "the group to be empty")
        path.rmdir()


def test_the_plan_knows_it(daemon, group):
    prefix, file = group
    with daemon(engine=CPU, prefix=prefix) as d, d.client() as c:
        large = spec(model="gpt2", seq_len=256)
        assert f"{LIMIT / 1e6:.0f} MB available (by {file})" in json.dumps(refusal(c.call, "dry-run", spec=large).data)
        memory = c.call("dry-run", spec=spec())["arms"][0]["check"]["memory"]
        assert memory["available_bytes"] == LIMIT and 0 < memory["free_bytes"] < LIMIT
        assert c.call("status")["host"]["memory_limit_bytes"] == LIMIT


def test_it_is_named_where_it_ends_an_engine(daemon, group):
    prefix, file = group
    with daemon(prefix=prefix) as d, d.client() as c:
        end = c.wait(c.submit(spec("hog.r0.s1")))
        assert end["state"] == "failed"
        assert end["reason"].startswith("engine_lost: rank 0 killed by signal 9 (out of memory: oom_kill in "), end
        assert end["reason"].endswith(f"was 0, is 1; limit {LIMIT} bytes)"), end
        assert c.wait(c.submit(spec("crash.r0.s1")))["reason"] == "engine_lost: rank 0 killed by signal 9"
        assert c.wait(c.submit(spec("after")))["state"] == "done"
