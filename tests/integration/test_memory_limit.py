"""gpt2d in a control group with limited memory: plans use the limit, and the end of an engine names it."""

import json
import os
from pathlib import Path

import pytest

from helpers import BUILD, RpcError, spec, wait_for

LIMIT = 400 << 20
ENGINE = BUILD / "engine/gpt2-engine-cpu"


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
    with daemon(engine=ENGINE, prefix=prefix) as d, d.client() as c:
        large = spec(model="gpt2", seq_len=256)
        with pytest.raises(RpcError) as refused:
            c.call("dry-run", spec=large)
        assert f"{LIMIT / 1e6:.0f} MB available (by {file})" in json.dumps(refused.value.data)
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
