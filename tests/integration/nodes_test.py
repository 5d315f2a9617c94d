"""Several nodes with real engines over tcp: tests/run nodes. Each node is a host of nodes_hosts.py.

Each fault is found within seconds, both sides give the reason, and the next run is done; twice each. test_nodes.py
has more faults, on the loopback interface.
"""

import json
import re
import signal

import pytest

import nodes_hosts
from cluster import Cluster
from helpers import BUILD, Daemon, experiment, refusal, spec, wait_for

pytestmark = pytest.mark.skipif(bool(nodes_hosts.impossible()), reason=nodes_hosts.impossible() or "no reason")
FOUND_S = 10  # a fault is noticed within this time
TWICE = (1, 2)


class OnHost(Daemon):
    def __init__(self, host, **more):
        self.host = host
        super().__init__(engine=BUILD / "engine/gpt2-engine-cpu", **more)

    def launch(self, **options):
        return self.host.start(self.command, **options)

    def engines_left(self):
        return self.host.running("gpt2-engine")


class World(Cluster):
    """A leader on the first of the hosts, and a member on each other one."""

    def __init__(self, hosts, **more):
        self.hosts = hosts
        super().__init__(len(hosts), interface="eth0", address=hosts[0].address, timeout=3, **more)

    def make(self, node, *options, host=None, suffix="", **more):
        home = self.home / f"node{node}{suffix}"
        home.mkdir(exist_ok=True)
        return OnHost(host or self.hosts[node], ranks=self.ranks, home=home, options=(*self.common, *map(str, options)), **more)

    @property
    def member_1(self):
        return self.nodes[1]

    def works(self):
        """The next run succeeds."""
        self.wait_ready()
        with self.leader.client() as c:
            end = c.wait(c.submit(spec("next", gpus=self.n * self.ranks)))
            assert end["state"] == "done", end

    def said(self, node, words, times):
        """The node has logged this so many times."""
        wait_for(lambda: self.nodes[node].said().count(words) >= times, f"{words!r} {times} times in the log of node {node}", FOUND_S)

    def fails(self, fault, reason):
        """The run in progress fails with that reason after the fault."""
        with self.leader.client() as c:
            run = c.submit(spec("long", 10**7, gpus=self.n * self.ranks))
            c.call("follow", id=run)
            while c.event()["method"] != "run.step":
                pass
            fault()
            wait_for(lambda: c.state(run) == "failed", f"the end of the run after: {reason}", FOUND_S)
            assert c.followed(run)[-1]["params"]["reason"].startswith(reason)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with nodes_hosts.Hosts(4, tmp_path_factory.mktemp("nodes", numbered=True)) as h:
        yield h


@pytest.fixture(autouse=True)
def nothing_is_left(hosts):
    yield
    left = [f"{host.name}: {line}" for host in hosts for line in host.running("gpt2")]
    for host in hosts:
        host.run(["pkill", "-KILL", "gpt2"])
    assert not left


@pytest.fixture
def two(hosts):
    with World(hosts[:2]) as world:
        yield world


def losses(daemon, run):
    """Of each segment; and all their metrics."""
    with daemon.client() as c:
        end = c.wait(c.submit(run))
        assert end["state"] == "done", end
    found = [json.loads(file.read_text()) for file in (daemon.state / "runs").rglob("training_metrics.json")]
    return sorted((m["gpt2d"]["segment"], m["gpt2d"]["loss_hash"], m["gpt2d"]["losses"]) for m in found), found


@pytest.mark.parametrize("nodes, ranks", [(2, 1), (2, 2), (4, 1)])
def test_losses_are_those_of_one_node(hosts, nodes, ranks):
    run = experiment("same", 5, gpus=nodes * ranks, work={"optimizer_steps": 5, "warmup_steps": 0})
    with World(hosts[:nodes], ranks=ranks) as world:
        several, found = losses(world.leader, run)
    assert {m["hardware"]["world_size"] for m in found} == {nodes * ranks}
    assert {m["hardware"]["nodes"] for m in found} == {nodes}
    with OnHost(hosts[0], ranks=nodes * ranks) as alone:
        one, _ = losses(alone, run)
    assert len(one) == 8 and several == one


def test_a_member_is_killed(two):
    for times in TWICE:
        two.fails(lambda: two.member_1.kill(), "peer_lost: node=1 rank=1: ")
        wait_for(lambda: not two.member_1.engines_left(), "no engine without its gpt2d", FOUND_S)
        two.member_1.start()
        two.works()
        two.said(0, "peer_lost: node=1", times)


def test_a_member_is_stopped(two):
    for times in TWICE:
        two.fails(lambda: two.member_1.process.send_signal(signal.SIGSTOP), "peer_lost: node=1 rank=1: no heartbeat")
        two.member_1.process.send_signal(signal.SIGCONT)
        two.works()
        two.said(1, "the engines end, and gpt2d joins again", times)


def test_a_member_is_cut_off(two):
    for times in TWICE:
        two.fails(two.hosts[1].cut, "peer_lost: node=1 rank=1: no heartbeat")
        wait_for(lambda: not two.member_1.engines_left(), "a member that fences itself", FOUND_S)
        two.said(1, "no heartbeat", times)
        two.hosts[1].mend()
        two.works()


def test_an_engine_of_a_member_is_killed(two):
    for times in TWICE:
        two.fails(lambda: two.hosts[1].output(["pkill", "-KILL", "gpt2-engine"]), "engine_lost: rank 1 killed by signal 9")
        two.works()
        two.said(1, "rank 1 killed by signal 9", times)


def test_the_leader_is_killed(two):
    for times in TWICE:
        with two.leader.client() as c:
            run, queued = (c.submit(spec(name, steps, gpus=2)) for name, steps in (("long", 10**7), ("queued", 3)))
            wait_for(lambda: c.state(run) == "running", "a run")
        two.leader.kill()
        wait_for(lambda: not two.member_1.engines_left(), "a member that fences itself", FOUND_S)
        two.said(1, "the engines end, and gpt2d joins again", times)
        two.leader.start()
        with two.leader.client() as c:
            assert c.state(run) == "interrupted" and c.wait(queued)["state"] == "done"


def test_a_name_with_two_addresses(hosts, two):
    """The leader listens on one of the addresses. Each reason is logged once, although attempts alternate."""
    with open(hosts.folder / "hosts", "a", encoding="utf-8") as names:
        names.write(f"{hosts[0].address} both\n127.0.0.1 both\n")
    other = two.make(1, "--join", f"both:{two.port}", "--node-id", 1, host=hosts[2], suffix="-both")
    try:
        two.said(0, "duplicate: node 1", 3)
        said = [line for line in other.said().splitlines() if "link: leader" in line]
        assert len(said) == 2 and "Connection refused; gpt2d retries each second" in "".join(said), said
    finally:
        other.__exit__(None)


def test_nul_bytes_to_every_open_port(two):
    """An engine may end, and its run with it (UCX 1.13 aborts); a daemon may not."""
    for _ in TWICE:
        with two.leader.client() as c:
            run = c.submit(spec("long", 10**7, gpus=2))
            wait_for(lambda: c.state(run) == "running", "a run")
            for host in two.hosts:
                ports = re.findall(r":(\d+)\s", host.output(["ss", "-ltnH"]))
                assert ports
                for port in set(ports):
                    two.hosts[0].switch.run(["bash", "-c", f"head -c 64 /dev/zero >/dev/tcp/{host.address}/{port}"])
            if c.state(run) == "running":
                c.call("cancel", id=run)
            assert c.wait(run)["state"] in ("cancelled", "failed")
        assert [daemon.process.poll() for daemon in two.nodes] == [None, None]
        two.works()


def test_the_disk_of_the_leader_is_full(hosts):
    class Small(World):
        def make(self, node, *options, **more):
            if node == 0:  # in the mounts of that host alone
                runs = self.home / "node0" / "state" / "runs"
                runs.mkdir(parents=True)
                hosts[0].output(["mount", "-t", "tmpfs", "-o", "size=4M", "none", runs])
            return super().make(node, *options, **more)

    with Small(hosts[:2]) as world:
        for _ in TWICE:
            fill = world.leader.state / "runs" / "fill"
            hosts[0].run(["dd", "if=/dev/zero", f"of={fill}", "bs=4k", "count=4096"])
            with world.leader.client() as c:
                run = c.submit(spec("held", gpus=2))
                wait_for(lambda: any(t["reason"] and t["reason"].startswith("room: ")
                    for t in c.call("show", id=run)["transitions"]), "a run that waits for room", FOUND_S)
                hosts[0].output(["rm", fill])
                assert c.wait(run)["state"] == "done"
            world.works()


def checkpointed(name, steps, **more):
    return spec(name, gpus=2, work={"optimizer_steps": steps, "warmup_steps": 0}, **more)


def test_checkpoints_in_a_folder_that_the_nodes_share(two):
    with two.leader.client() as c:
        def finish(run):
            number = c.submit(run)
            end = c.wait(number)
            assert end["state"] == "done", end
            return number, c.call("show", id=number)["segments"][0]["summary"]

        _, whole = finish(checkpointed("whole", 6))
        half, first = finish(checkpointed("half", 3, checkpoint={"at_end": True}))
        assert first["checkpoints"]["written"] == 1
        folder = two.leader.state / "runs" / f"{half}-half" / "checkpoints" / "step-3"
        assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "shard-0-of-2.bin", "shard-1-of-2.bin"]
        _, rest = finish(checkpointed("rest", 6, resume_from=half))
        assert first["losses"] + rest["losses"] == whole["losses"]


def test_checkpoints_in_a_folder_of_each_node(hosts, two, tmp_path):
    """Each node has a folder with that name, but they are different folders."""
    with two.leader.client() as c:
        def wrong(folder):
            refused = refusal(c.submit, checkpointed("apart", 3, checkpoint={"at_end": True, "dir": str(folder)}))
            return refused.data["errors"]

        (error,) = wrong(hosts.local)
        assert error["key"] == "checkpoint.dir"
        assert error["message"].startswith(f"node 1: {hosts.local}: is not the folder of that name on node 0, "), error
        assert "Set checkpoint.dir to a folder that all nodes share" in error["message"]
        assert not hosts[0].output(["find", hosts.local, "-name", ".gpt2d-probe*"])
        (error,) = wrong(hosts.local / "missing")
        assert error["key"] == "checkpoint.dir"
        shared = tmp_path / "shared"
        shared.mkdir()
        end = c.wait(c.submit(checkpointed("shared", 3, checkpoint={"at_end": True, "dir": str(shared)})))
        assert end["state"] == "done"
        assert not list(shared.glob(".gpt2d*"))
    two.works()
