"""Several gpt2d on the loopback interface that form one world."""

import json
import os
import signal
import socket
import subprocess
import time

import pytest

from cluster import Cluster, Stranger, make_key, members
from engines import PROGRAM
from helpers import BUILD, Daemon, RpcError, experiment, figure, has_ended, spec, wait_for


@pytest.fixture
def nodes():
    """Two nodes with a rank each, of the fake engine."""
    with Cluster(2) as cluster:
        yield cluster


def ranks_of(c):
    return [(rank["rank"], rank["node"], rank["state"]) for rank in c.call("status")["engine"]["ranks"]]


def trains(nodes):
    """The next run on all ranks is done."""
    nodes.wait_ready()
    with nodes.leader.client() as c:
        assert c.wait(c.submit(spec("next", gpus=nodes.n * nodes.ranks)))["state"] == "done"


def connect(nodes):
    return socket.create_connection(("127.0.0.1", nodes.port), timeout=10)


def is_closed(connection):
    """The leader has closed it, whatever it said before."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def listening_port(pid):
    """Of the process's one TCP socket that listens; None before."""
    sockets = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            sockets.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except FileNotFoundError:
            pass
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}", encoding="ascii") as rows:
            for row in list(rows)[1:]:
                words = row.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                    return int(words[1].rpartition(":")[2], 16)
    return None


# ---- a world that works ----


def test_a_run_trains_on_the_ranks_of_all_nodes():
    with Cluster(3, ranks=2) as nodes, nodes.leader.client() as c:
        assert ranks_of(c) == [(rank, rank // 2, "ready") for rank in range(6)]
        assert c.greeting["ranks"] == 6
        assert c.wait(c.submit(spec(gpus=6)))["state"] == "done"
        assert c.wait(c.submit(experiment(gpus=6)))["state"] == "done"
        # one that needs the leader's ranks only
        assert c.wait(c.submit(spec("small", gpus=2)))["state"] == "done"


def test_status_says_what_is_known_of_the_nodes(nodes):
    with nodes.leader.client() as c:
        world = wait_for(lambda: (w := c.call("status")["world"])["members"][0]["rtt_s"] is not None and w, "a heartbeat")
        assert (world["node"], world["part"], world["nodes"], world["listen"]) == (0, "leader", 2, nodes.address)
        member = world["members"][0]
        assert (member["node"], member["state"], member["host"]) == (1, "joined", socket.gethostname())
        assert abs(member["clock_offset_s"]) <= member["rtt_s"]
        assert member["pid"] == nodes.nodes[1].process.pid
    with nodes.nodes[1].client() as c:
        status = c.call("status")
        assert (status["world"]["part"], status["world"]["leader"]["state"]) == ("member", "joined")
        assert [(rank["rank"], rank["state"]) for rank in status["engine"]["ranks"]] == [(1, "ready")]
        assert status["engine"]["state"] == "ready"
        with pytest.raises(RpcError, match=f"submit: this gpt2d is node 1, a member; ask .*{nodes.address}"):
            c.submit(spec())
    for daemon in nodes.nodes:
        text = subprocess.run([BUILD / "ctl/gpt2ctl", "--socket", daemon.socket, "status"], capture_output=True, text=True, check=True).stdout
        assert "nodes   " in text and ("node 1" in text)
    for verb in ("wait", "follow", "show", "logs --follow"):
        done = subprocess.run([BUILD / "ctl/gpt2ctl", "--socket", nodes.nodes[1].socket, *verb.split(), "1"], capture_output=True, text=True, check=False)
        refused = f"this gpt2d is node 1, a member; ask the gpt2d of the leader, {socket.gethostname()} ({nodes.address})\n"
        assert done.returncode == 2 and done.stderr.endswith(refused), done.stderr


def test_the_leader_by_its_name(nodes):
    """A name is looked up at each attempt; one that is unknown is not the end."""
    nodes.nodes.pop().kill()
    lost = nodes.make(1, "--join", f"no-such-host.invalid:{nodes.port}", "--node-id", 1, suffix="n")
    try:
        nodes.wait_said(lost, f"leader no-such-host.invalid:{nodes.port}: ")
        assert lost.process.poll() is None
    finally:
        lost.__exit__(None)
    nodes.nodes.append(nodes.make(1, "--join", f"localhost:{nodes.port}", "--node-id", 1))
    trains(nodes)


def test_a_run_waits_for_the_node_that_is_missing():
    with Cluster(2, ready=False) as nodes, nodes.leader.client() as c:
        nodes.nodes.pop().kill()
        wait_for(lambda: members(c)[0]["state"] != "joined", "the loss of the member")
        reply = c.call("submit", spec=spec(gpus=2))
        assert "nodes: waiting for node 1" in reply["waiting"]
        nodes.nodes.append(nodes.member(1))
        assert c.wait(reply["id"])["state"] == "done"


def test_engines_of_all_nodes_are_released_and_taken_again(nodes):
    with nodes.leader.client() as c, nodes.nodes[1].client() as m:
        pid = m.call("status")["engine"]["ranks"][0]["pid"]
        c.call("release", wait=True)
        assert has_ended(pid) and m.call("status")["engine"]["ranks"][0]["state"] == "down"
        c.call("warm", wait=True)
        assert figure(c, "gpt2d_nodes") == figure(c, "gpt2d_nodes_joined") == 2
    trains(nodes)


# ---- faults ----


def run_and_break(nodes, fault, reason, name="ms20"):
    """A run that fails with the reason when the fault happens in it. The engines of other nodes end too."""
    with nodes.leader.client() as c:
        run = c.submit(spec(name, steps=2000, gpus=nodes.n))
        c.call("follow", id=run)
        while c.event()["method"] != "run.step":
            pass
        began = time.monotonic()
        fault()
        end = c.followed(run)[-1]["params"]
        assert time.monotonic() - began < 10
        assert (end["state"], end["reason"][:len(reason)]) == ("failed", reason)
        return end["reason"]


def test_a_member_that_is_killed(nodes):
    run_and_break(nodes, nodes.nodes[1].kill, "peer_lost: node=1 rank=1: ")
    nodes.nodes[1].start()
    trains(nodes)


def test_a_member_that_is_restarted_many_times(nodes):
    """The engines start at once each time: their start is not delayed, as it is after failures."""
    with nodes.leader.client() as c:
        for _ in range(8):
            nodes.nodes[1].kill()
            wait_for(lambda: members(c)[0]["state"] == "lost" and c.call("status")["engine"]["state"] == "down", "the end of the engines")
            assert c.call("status")["engine"]["retry_in_s"] == 0
            nodes.nodes[1].start()
            nodes.wait_ready()


def test_a_member_that_is_stopped(nodes):
    member = nodes.nodes[1]
    run_and_break(nodes, lambda: member.process.send_signal(signal.SIGSTOP), "peer_lost: node=1 rank=1: no heartbeat for 3 s")
    member.process.send_signal(signal.SIGCONT)
    trains(nodes)
    nodes.wait_said(1, "the engines end")


def test_an_engine_of_a_member_that_is_killed(nodes):
    with nodes.nodes[1].client() as c:
        pid = c.call("status")["engine"]["ranks"][0]["pid"]
    run_and_break(nodes, lambda: os.kill(pid, signal.SIGKILL), "engine_lost: rank 1 killed by signal 9")
    trains(nodes)


def test_engines_of_a_member_that_misbehave(nodes):
    """As on one node: the same reasons, through the member."""
    with nodes.leader.client() as c:
        for name, reason in (("garbage.r1.s2", "engine_lost: rank 1 sent an invalid message"),
                ("long.r1.s2", "engine_lost: rank 1 sent a line that is too long"), ("exit5.r1.s2", "engine_lost: rank 1 exited with status 5"),
                ("closes.r1.s2", "engine_lost: rank 1 exited with status 3"), ("fail.r1.s2", "made_up: rank 1: as asked"),
                ("poison.r1.s2", "made_up: rank 1: as asked")):
            nodes.wait_ready()
            end = c.wait(c.submit(spec(f"{name}-ms20", steps=20, gpus=2)))
            assert (end["state"], end["reason"][:len(reason)]) == ("failed", reason)
        nodes.wait_ready()
        run = c.submit(spec("flood.r1.s2-ms20", steps=20, gpus=2))
        wait_for(lambda: c.state(run) == "running", "a run")
        assert members(c)[0]["state"] == "joined"
        c.call("cancel", id=run)
        assert c.wait(run)["state"] == "cancelled"
    trains(nodes)


def test_messages_of_an_earlier_world_are_ignored(nodes):
    nodes.nodes.pop().kill()
    with nodes.leader.client() as c, Stranger(nodes) as member:
        build = c.greeting["build"]
        wait_for(lambda: members(c)[0]["state"] == "lost", "the loss of the member")
        member.send("node.hello", protocol=1, version="0", build=build, node=1, ranks=1, host="b", boot_id="", pid=1, ucx={})
        message = member.receive()
        while message["method"] != "node.start":
            message = member.receive()
        now = message["params"]["epoch"]

        def says(epoch, rank, method, params):
            member.send("node.said", epoch=epoch, rank=rank, method=method, params=params)

        def hello(epoch, rank):
            device = {"backend": "cpu", "name": "b", "library": "", "memory_total_bytes": 1, "memory_free_bytes": 1}
            says(epoch, rank, "engine.hello", {"protocol": 1, "role": "rank", "rank": rank, "pid": 1, "address": "a", "device": device})

        def state():
            return next(rank["state"] for rank in c.call("status")["engine"]["ranks"] if rank["rank"] == 1)

        hello(now - 1, 1)
        says(now - 1, 1, "engine.ready", {})
        hello(now, 0)
        nodes.wait_said(0, "node 1: node.said: not a rank of that node")
        assert state() == "starting"
        hello(now, 1)
        while message["method"] != "node.send":
            message = member.receive()
        assert message["params"]["method"] == "engine.connect" and message["params"]["params"]["nodes"] == [0, 1]
        says(now, 1, "engine.ready", {})
        wait_for(lambda: state() == "ready", "the rank")
    nodes.nodes.append(nodes.member(1))
    trains(nodes)


def test_a_leader_that_is_killed(nodes):
    with nodes.leader.client() as c, nodes.nodes[1].client() as m:
        queued = c.submit(spec("ms20-x", steps=2000, gpus=2, restart=True))
        pid = m.call("status")["engine"]["ranks"][0]["pid"]
        wait_for(lambda: c.state(queued) == "running", "a run")
        nodes.leader.kill()
        wait_for(lambda: has_ended(pid), "the end of the member's engines")
    nodes.wait_said(1, "the engines end, and gpt2d joins again")
    nodes.leader.start()
    with nodes.leader.client() as c:
        wait_for(lambda: c.state(queued) == "running", "the run that was in progress")
        c.call("cancel", id=queued)
    trains(nodes)


def test_a_leader_that_is_stopped(nodes):
    with nodes.nodes[1].client() as m:
        pid = m.call("status")["engine"]["ranks"][0]["pid"]
        nodes.leader.process.send_signal(signal.SIGSTOP)
        nodes.wait_said(1, "no heartbeat for 3 s")
        wait_for(lambda: has_ended(pid), "the end of the member's engines")
        nodes.leader.process.send_signal(signal.SIGCONT)
    trains(nodes)


def test_an_experiment_runs_a_block_again(nodes):
    with nodes.leader.client() as c:
        run = c.submit(experiment("ms20-e", steps=20, gpus=2))
        c.call("follow", id=run)
        while c.event()["method"] != "run.step":
            pass
        nodes.nodes[1].kill()
        nodes.nodes[1].start()
        assert c.followed(run)[-1]["params"]["state"] == "done"
        segments = c.call("show", id=run)["segments"]
        assert any((s["reason"] or "").startswith("peer_lost: node=1") for s in segments), segments


def test_both_are_stopped_at_once(nodes):
    """As Slurm does it: the run is interrupted, not failed."""
    with nodes.leader.client() as c:
        run = c.submit(spec("ms20-both", steps=2000, gpus=2))
        c.call("follow", id=run)
        while c.event()["method"] != "run.step":
            pass
        for daemon in reversed(nodes.nodes):
            daemon.process.terminate()
        assert c.followed(run)[-1]["params"]["state"] == "interrupted"
    assert [daemon.process.wait(20) for daemon in nodes.nodes] == [0, 0]


def test_a_member_that_is_stopped_in_good_order(nodes):
    """It waits for the run in progress, and for nothing else. Nobody waits for its check of a spec."""
    member = nodes.nodes[1]
    with nodes.leader.client() as c:
        run = c.submit(spec("held", gpus=2))
        wait_for(lambda: c.state(run) == "running", "a run")
        member.process.terminate()
        wait_for(lambda: "stopping" in member.said(), "the stop of the member")
        c.call("cancel", id=c.submit(spec("queued", gpus=2)))
        assert members(c)[0]["state"] == "joined" and c.state(run) == "running"
        c.call("cancel", id=run)
        wait_for(lambda: members(c)[0]["state"] == "lost", "the end of the membership")
        assert c.state(run) == "cancelled" and members(c)[0]["reason"] == "its gpt2d is stopped"
        assert member.process.wait(20) == 0
        member.start()
    trains(nodes)


# ---- refused members ----


def test_uneven_and_duplicate_nodes(nodes):
    other = nodes.member(1, suffix="b")
    try:
        for daemon in (nodes.leader, other):
            nodes.wait_said(daemon, "duplicate: node 1 is connected already")
        trains(nodes)
    finally:
        other.__exit__(None)
    nodes.nodes.pop().kill()
    uneven = nodes.member(1, ranks=2, suffix="c")
    try:
        for daemon in (nodes.leader, uneven):
            nodes.wait_said(daemon, "uneven: node 1")
        with nodes.leader.client() as c:
            assert members(c)[0]["state"] == "lost" and members(c)[0]["reason"].startswith("refused: uneven: node 1")
    finally:
        uneven.__exit__(None)
    nodes.nodes.append(nodes.member(1))
    trains(nodes)


def test_a_member_of_another_build(nodes):
    nodes.nodes.pop().kill()
    with Stranger(nodes) as stranger:
        stranger.send("node.hello", protocol=1, version="0.0.1", build="old", node=1, ranks=1, host="b", boot_id="", pid=1, ucx={})
        message = stranger.receive()
        assert message["method"] == "node.refused" and message["params"]["reason"].startswith("wrong version: node 1 (b) is build old")
        assert stranger.receive() is None
    nodes.wait_said(0, "wrong version: node 1 (b) is build old")
    nodes.nodes.append(nodes.member(1))
    trains(nodes)


@pytest.mark.parametrize("change, leader_says, member_says", [
    ("key", "wrong key", "the leader refused the key"),
    ("cluster", "no key of this cluster", "the leader knows no such node"),
])
def test_a_member_with_another_key_or_cluster(nodes, change, leader_says, member_says):
    nodes.nodes.pop().kill()
    wrong = {"key": ("--key-file", make_key(nodes.home / "other")), "cluster": ("--cluster", "elsewhere")}[change]
    other = nodes.member(1, *wrong, suffix="d")
    try:
        nodes.wait_said(0, leader_says)
        nodes.wait_said(other, member_says)
    finally:
        other.__exit__(None)
    nodes.nodes.append(nodes.member(1))
    trains(nodes)


@pytest.mark.parametrize("data", [b"\0" * 64, b"GET / HTTP/1.1\r\n\r\n", b'{"jsonrpc":"2.0","method":"node.hello"}\n', os.urandom(1 << 20)],
    ids=["nul", "http", "plain", "random"])
def test_what_is_no_tls_is_refused_at_once(nodes, data):
    with connect(nodes) as connection:
        try:
            connection.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            pass
        assert is_closed(connection)
    nodes.wait_said(0, "refused: ")
    trains(nodes)


def test_slow_connections_are_closed_and_do_not_lock_out_members():
    """They are the leader's oldest: a member that comes later gets in."""
    with Cluster(2, ready=False) as nodes:
        nodes.nodes.pop().kill()
        slow = [connect(nodes) for _ in range(66)]
        nodes.wait_said(0, "more than 64 connections are not authenticated")
        nodes.nodes.append(nodes.member(1))
        trains(nodes)
        nodes.wait_said(0, "no TLS handshake within 5 s")
        for connection in slow:
            assert is_closed(connection)
            connection.close()


def test_all_members_of_many_may_connect_at_once():
    with Cluster(100, ready=False, alone=True) as nodes:
        connections = [connect(nodes) for _ in range(110)]
        nodes.wait_said(0, "more than 100 connections are not authenticated")
        for connection in connections:
            connection.close()


def test_refused_connections_fill_no_log(nodes):
    for _ in range(100):
        with connect(nodes) as connection:
            connection.sendall(b"\0" * 64)
            assert is_closed(connection)
    assert nodes.leader.said().count("refused: ") <= 20
    trains(nodes)


def test_a_leader_with_a_certificate_is_refused(tmp_path):
    """A program that took its address has no key."""
    certificate = tmp_path / "both.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=a",
        "-days", "2", "-keyout", certificate, "-out", tmp_path / "cert.pem"], check=True, capture_output=True)
    certificate.write_bytes(certificate.read_bytes() + (tmp_path / "cert.pem").read_bytes())
    server = subprocess.Popen(["openssl", "s_server", "-accept", "0", "-cert", certificate, "-naccept", "1000", "-quiet"],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port = wait_for(lambda: listening_port(server.pid), "the server's port")
        options = ("--join", f"127.0.0.1:{port}", "--node-id", "1", "--key-file", make_key(tmp_path / "key"), "--interface", "lo")
        with Daemon(options=options) as d:
            wait_for(lambda: "certificate verify failed" in d.said() or "no pre-shared key" in d.said(), "the refusal")
            assert "joined the leader" not in d.said()
    finally:
        server.kill()
        server.wait()
        server.stdin.close()


# ---- what members check ----


def test_a_member_checks_what_is_submitted():
    """With its own checker: here one that dies."""
    with Cluster(3, ready=False) as nodes, nodes.leader.client() as c:
        nodes.nodes.pop().kill()
        nodes.nodes.append(nodes.member(2, environment={"GPT2D_FAKE_CHECK": "dead"}))
        nodes.wait_ready()
        with pytest.raises(RpcError, match="spec refused: node 2: the spec could not be checked"):
            c.submit(spec(gpus=3))
        # a run without that node's ranks does not concern it
        assert c.wait(c.submit(spec(gpus=2)))["state"] == "done"


def test_a_member_checks_a_text_of_the_largest_size():
    """Members check the text that the client sent, with its comment and its sweep. A message doubles each backslash."""
    with Cluster(2, engine=PROGRAM) as nodes, nodes.leader.client() as c:
        run = spec(gpus=2, sweep={"seed": [1, 2, 3]}, design={"repetitions": 1}, comment="")
        run["comment"] = "\\" * (((1 << 20) - len(json.dumps(run))) // 2)
        found = c.call("dry-run", spec=run)
        assert [arm["arm"] for arm in found["arms"]] == ["base", "2", "3", "base-aa"]
        assert [member["state"] for member in members(c)] == ["joined"]
        assert c.wait(c.submit(run))["state"] == "done"


# ---- settings ----


@pytest.mark.parametrize("options, error", [
    (("--listen", "127.0.0.1:0"), "key_file: needed with listen and join"),
    (("--nodes", "2"), "nodes: several nodes need listen"),
    (("--listen", "127.0.0.1"), "listen: 127.0.0.1: ADDR:PORT is expected, with a port from 0 to 65535"),
    (("--listen", "127.0.0.1:70000"), "listen: 127.0.0.1:70000: ADDR:PORT is expected"),
    (("--join", "a"), "join: a: HOST:PORT is expected, with a port from 1 to 65535"),
    (("--join", "a:0"), "join: a:0: HOST:PORT is expected"),
    (("--join", "a:1", "--key-file", "KEY", "--interface", "lo"), "node_id: a member's ID is 1 or above"),
    (("--listen", "127.0.0.1:0", "--nodes", "2", "--key-file", "KEY"), "interface: needed with several nodes"),
    (("--listen", "127.0.0.1:0", "--key-file", "OPEN"), "mode 0644, others can read it"),
    (("--listen", "127.0.0.1:0", "--key-file", "SHORT"), "31 bytes (expected 32 to 4096)"),
])
def test_wrong_settings(tmp_path, options, error):
    make_key(tmp_path / "KEY")
    make_key(tmp_path / "OPEN").chmod(0o644)
    make_key(tmp_path / "SHORT", b"x" * 31)
    words = [str(tmp_path / word) if word.isupper() else word for word in options]
    done = subprocess.run([BUILD / "daemon/gpt2d", "-c", "/dev/null", "-n", *words], capture_output=True, text=True)
    assert done.returncode == 2 and error in done.stderr


def test_slurm_says_which_node_this_is(tmp_path):
    """Only if listen or join is set: any other gpt2d in a job is alone."""
    key = make_key(tmp_path / "key")
    both = ("--listen", "127.0.0.1:0", "--join", "127.0.0.1:1", "--key-file", key, "--interface", "lo")
    for environment, options, shown in (({"SLURM_NODEID": "3", "SLURM_JOB_NUM_NODES": "4"}, both, ["node_id = 3", "nodes = 4"]),
            ({"SLURM_NODEID": "3"}, (), ["# node_id"]), ({"SLURM_NODEID": "3"}, (*both, "--node-id", "1"), ["node_id = 1"])):
        done = subprocess.run([BUILD / "daemon/gpt2d", "-c", "/dev/null", "-nv", *options], capture_output=True, text=True, check=True,
            env={**os.environ, **environment})
        assert all(text in done.stdout for text in shown), done.stdout


def test_a_world_of_one_node(tmp_path):
    """As the same job script starts it: ready without members."""
    key = make_key(tmp_path / "key")
    with Daemon(options=("--listen", "127.0.0.1:0", "--nodes", "1", "--key-file", key)) as d, d.client() as c:
        assert c.wait(c.submit(spec()))["state"] == "done"
        assert c.call("status")["world"]["members"] == []
