"""Misbehaving clients of gpt2d: frames, greetings, followers that go or do not read (cases H5, H9, H11)."""

import contextlib
import json
import os
import random
import re
import select
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from helpers import BUILD, PATIENCE_S, RpcError, experiment, refusal, spec, wait_for

HELLO = b'{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1}}\n'


def test_large_answers_to_many(daemon):
    """gpt2d loses none of them, even if they are read late."""
    pieces, sockets = 16, 8
    with daemon() as d, d.client() as c:
        folder = Path(c.wait(c.submit(spec()))["dir"])
        (folder / "large.bin").write_bytes(os.urandom(256 << 10))
        clients = [d.client() for _ in range(sockets)]
        for client in clients:
            for _ in range(pieces):
                last = client.ask("artifact-read", id=1, path="large.bin")
        assert c.call("status")["counts"]["done"] == 1  # which is not large
        with ThreadPoolExecutor(sockets) as readers:
            every = list(readers.map(lambda client: [client.receive() for _ in range(pieces)], clients))
        for replies in every:
            assert [reply["id"] for reply in replies] == list(range(last - pieces + 1, last + 1))
            assert all(reply["result"]["bytes"] == 256 << 10 for reply in replies)
        assert c.call("list")["runs"]
        for client in clients:
            client.close()


def rss_bytes(d):
    with d.client() as c:
        return c.call("status")["daemon"]["rss_bytes"]


def alive(d):
    """It answers, trains and has lost nothing."""
    with d.client() as c:
        assert c.wait(c.submit(spec("alive")))["state"] == "done"


def test_hello_comes_first(daemon):
    with daemon() as d:
        for line in (b'{"jsonrpc":"2.0","id":5,"method":"status"}\n',
                b'{"jsonrpc":"2.0","id":5,"method":"no-such","params":{}}\n'):
            with d.client(hello=False) as c:
                c.send_raw(line)
                error = c.receive()
                assert error["id"] == 5 and error["error"]["code"] == -32600
                assert error["error"]["message"] == "hello is expected first"
                assert c.receive() is None
        alive(d)


def test_versions_are_compared(daemon):
    with daemon() as d:
        who = (f"(client: {os.path.realpath('/proc/self/exe')}, pid {os.getpid()};"
            f" gpt2d: {(BUILD / 'daemon/gpt2d').resolve()}, pid {d.process.pid})")
        for params, says in (({"protocol": 2}, "client speaks protocol 2, gpt2d "),
                ({"protocol": 1, "build": "old-build"}, "client is build old-build, gpt2d is build ")):
            with d.client(hello=False) as c:
                refused = refusal(c.call, "hello", **params)
                assert refused.code == -32001 and refused.message.startswith(says)
                assert who in refused.message
                assert c.receive() is None
        with d.client() as c:
            build = c.greeting["build"]
        with d.client(hello=False) as c:
            assert c.call("hello", protocol=1, build=build)["ranks"] == 1


def test_what_is_no_request(daemon):
    with daemon() as d, d.client() as c:
        for line, code in (
                (b"garbage", -32700), (b"{", -32700), (b"\xff\xfe", -32700), (b"", -32700),
                (b"[]", -32600), (b'[{"jsonrpc":"2.0","id":1,"method":"status"}]', -32600),
                (b'{"jsonrpc":"2.0","method":"status"}', -32600),
                (b'{"jsonrpc":"2.0","id":1,"result":1}', -32600),
                (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"status"}', -32700),
                (b'{"jsonrpc":"2.0","id":1,"method":"status","params":[]}', -32602),
                (b'{"jsonrpc":"2.0","id":1,"method":"statsu"}', -32601),
                (b'{"jsonrpc":"2.0","id":1,"method":"show"}', -32602),
                (b'{"jsonrpc":"2.0","id":1,"method":"show","params":{"id":"1"}}', -32602),
                (b'{"jsonrpc":"2.0","id":1,"method":"show","params":{"id":1,"ide":1}}', -32602),
                (b'{"jsonrpc":"2.0","id":1,"method":"list","params":{"limit":0}}', -32602),
                (b'{"jsonrpc":"2.0","id":1,"method":"show","params":{"id":1,"after":-5}}', -32602),
                (b'{"jsonrpc":"2.0","id":1,"method":"list","params":{"state":"odd"}}', -32602),
                (b'{"jsonrpc":"2.0","id":1,"method":"submit","params":{"spec":[]}}', -32602),
                (b'{"jsonrpc":"2.0","id":1,"method":"a%s"}' % ("ä" * 100).encode(), -32601)):
            c.send_raw(line + b"\n")
            assert c.receive()["error"]["code"] == code, line
        assert refusal(c.call, "cancle", id=1).message == "cancle: no such method, the nearest is cancel"
        assert c.call("status")["queued"] == 0


def test_http(daemon):
    with daemon() as d:
        with d.client(hello=False) as c:
            c.send_raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert c.receive()["error"]["code"] == -32700
            assert c.receive() is None
        alive(d)


def test_one_byte_at_a_time_and_two_in_one(daemon):
    with daemon() as d, d.client(hello=False) as c:
        line = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "submit",
            "params": {"spec": json.dumps(spec("bytes"))}}).encode() + b"\n"
        for byte in HELLO + line:
            c.send_raw(bytes([byte]))
        assert c.receive()["id"] == 1
        assert c.receive()["result"]["id"] == 1
        c.send_raw(line + line.replace(b'"id": 2', b'"id": 3') + HELLO)
        assert [c.receive()["id"] for _ in range(3)] == [2, 3, 1]
        assert c.call("list")["runs"][2]["id"] == 3


def test_a_large_spec(daemon):
    with daemon() as d, d.client() as c:
        run = c.submit(spec("large", comment=["x" * 1000] * 300))
        assert c.wait(run)["state"] == "done"


def test_ten_megabytes_without_a_newline(daemon):
    with daemon() as d:
        before = rss_bytes(d)
        for greeted in (True, False):
            with d.client(hello=greeted) as c:
                with pytest.raises(OSError):
                    for _ in range(1000):
                        c.send_raw(b"x" * (1 << 20))
                assert "longer than" in c.receive()["error"]["message"]
        assert rss_bytes(d) - before < 16 << 20
        alive(d)


def test_nul(daemon):
    with daemon() as d, d.client() as c:
        c.send_raw(b'{"jsonrpc":"2.0",\0"id":1,"method":"status"}\n')
        assert "NUL" in c.receive()["error"]["message"]
        assert c.receive() is None


def test_half_a_frame_and_the_end(daemon):
    with daemon() as d:
        line = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "submit", "params": {"spec": json.dumps(spec())}})
        for cut in (1, 20, len(line) - 1, len(line)):
            with d.client() as c:
                c.send_raw(line[:cut].encode())
                c.socket.shutdown(socket.SHUT_WR)
                assert c.receive() is None
        with d.client() as c:
            assert c.call("list")["runs"] == []


def test_client_that_ends_its_side_is_answered(daemon):
    """printf ... | socat - UNIX:gpt2d.sock"""
    with daemon() as d, d.client(hello=False) as c:
        submit = {"jsonrpc": "2.0", "id": 2, "method": "submit", "params": {"spec": json.dumps(spec("r-ms20", 20))}}
        follow = {"jsonrpc": "2.0", "id": 3, "method": "follow", "params": {"id": 1}}
        c.send_raw(HELLO + json.dumps(submit).encode() + b"\n" + json.dumps(follow).encode() + b"\n")
        c.socket.shutdown(socket.SHUT_WR)
        messages = []
        while (message := c.receive()) is not None:
            messages.append(message)
        assert [m["id"] for m in messages if "id" in m] == [1, 2, 3]
        assert messages[-1]["method"] == "run.done"


def test_random_frames(daemon):
    """Many connections of random bytes, some of them nearly right."""
    dice = random.Random(1)
    with daemon() as d:
        base = d.descriptors()
        for _ in range(300):
            with d.client(hello=False) as c:
                data = bytearray(HELLO * 2 if dice.random() < 0.7 else dice.randbytes(200))
                for _ in range(dice.randrange(4)):
                    data[dice.randrange(len(data))] = dice.randrange(256)
                try:
                    c.send_raw(bytes(data))
                    if dice.random() < 0.5:
                        c.socket.shutdown(socket.SHUT_WR)
                        while c.receive() is not None:
                            pass
                except OSError:
                    pass
        alive(d)
        wait_for(lambda: d.descriptors() <= base + 2, "closed descriptors")


def test_clients_are_counted(daemon):
    with daemon(options=("--clients-per-user", "5")) as d:
        clients = [d.client() for _ in range(5)]
        with pytest.raises((RpcError, EOFError, OSError)) as refused:
            d.client()
        if isinstance(refused.value, RpcError):
            assert refused.value.code == -32005
        clients.pop().close()
        wait_for(d.accepts, "a free seat")
        for c in clients:
            assert c.call("status")["daemon"]["state"] == "running"
            c.close()


def test_clients_of_all_users_are_counted(daemon):
    with daemon(options=("--clients", "4")) as d:
        clients = [d.client() for _ in range(4)]
        with d.client(hello=False) as late:
            assert late.receive()["error"] == {"code": -32005, "message":
                "too many clients: 4 are connected; end some, or raise clients in gpt2d.conf(5)"}
            assert late.receive() is None
        clients.pop().close()
        wait_for(d.accepts, "a free seat")
        for c in clients:
            c.close()


def test_who_says_nothing_is_let_go(daemon):
    """With or without another client that needs its place, and with half a hello as well."""
    with daemon(options=("--client-idle", "1")) as d, d.client() as greeted:
        for begun in (b"", HELLO[:20]):
            with d.client(hello=False) as mute:
                mute.send_raw(begun)
                message = mute.receive()
                assert message["id"] is None
                assert message["error"] == {"code": -32005, "message": "closed: no hello within 1 s"}
                assert mute.receive() is None
        wait_for(lambda: greeted.call("status")["daemon"]["clients"] == 1, "the others gone")


def test_idle_clients_make_room(daemon):
    """Clients that do nothing do not lock out their user: status and cancel work."""
    with daemon(options=("--clients-per-user", "3", "--client-idle", "1")) as d:
        follower, first, second = d.client(), d.client(), d.client()
        run = follower.submit(spec("long-ms20", 100000))
        follower.call("follow", id=run)
        second.call("status")  # the first has been idle for longer

        def get_in():
            try:
                return d.client()
            except (RpcError, EOFError, OSError):
                return None

        late = wait_for(get_in, "a place")
        message = first.receive()
        assert message["id"] is None and message["error"]["code"] == -32005
        assert message["error"]["message"].startswith("closed: idle for ")
        assert message["error"]["message"].endswith("the limit of clients of this user is reached")
        assert first.receive() is None
        assert late.call("cancel", id=run)["id"] == run
        event = follower.event()
        while event["method"] != "run.done":
            event = follower.event()
        assert event["params"]["state"] == "cancelled"
        for c in (follower, second, late):
            c.close()


def test_followers_are_left_alone(daemon):
    with daemon(options=("--clients-per-user", "2", "--client-idle", "1")) as d:
        followers = [d.client() for _ in range(2)]
        run = followers[0].submit(spec("long-ms20", 100000))
        for c in followers:
            c.call("follow", id=run)
        until = time.monotonic() + 3
        while time.monotonic() < until:
            assert not d.accepts()
            assert all(c.event() for c in followers)
        for c in followers:
            c.close()
        wait_for(d.accepts, "a free seat")


FOLLOWER = """
import sys; sys.path.insert(0, {folder!r})
from helpers import Client
c = Client({socket!r})
c.call("follow", id={run})
while c.event(): pass
"""


def test_fifty_followers_killed(daemon):
    with daemon() as d, d.client() as c:
        run = c.submit(spec("held-ms2", 3000))
        wait_for(lambda: c.state(run) == "running", "running")
        base = d.descriptors()
        folder = os.path.dirname(__file__)
        script = FOLLOWER.format(folder=folder, socket=str(d.socket), run=run)
        dice = random.Random(2)
        for _ in range(5):
            followers = [subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
                for _ in range(10)]
            time.sleep(dice.random() * 0.5)
            for follower in followers:
                follower.kill()
            for follower in followers:
                follower.wait()
        assert d.process.poll() is None
        wait_for(lambda: d.descriptors() <= base, "closed descriptors")
        d.unhold()
        assert c.wait(run)["state"] == "done"


def test_a_follower_that_does_not_read(daemon):
    """It loses events, its last event says how many, and the run is none the slower."""
    with daemon(options=("--client-buffer", "4096")) as d, d.client() as c, d.client() as slow:
        run = c.submit(spec("logs-ms1", 4000))
        slow.ask("follow", id=run)
        assert c.wait(run)["state"] == "done"
        seen = []
        while not seen or seen[-1]["method"] != "run.done":
            message = slow.receive()
            if "method" in message:
                seen.append(message)
        dropped = seen[-1]["params"]["dropped"]
        assert dropped > 0
        seqs = [m["params"]["seq"] for m in seen]
        assert seqs == sorted(seqs)
        assert seqs[-1] - len(seqs) - (seqs[0] - 1) == dropped


def test_a_connection_follows_so_many_runs(daemon):
    with daemon() as d, d.client() as c:
        c.call("drain")
        runs = [c.submit(spec(f"r{i}")) for i in range(65)]
        for run in runs[:64]:
            c.call("follow", id=run)
        refused = refusal(c.call, "follow", id=runs[64])
        assert refused.code == -32005 and refused.message == "too many runs followed on a connection"
        c.call("cancel", id=runs[0])
        wait_for(lambda: c.event()["method"] == "run.done", "the end of one")
        c.call("follow", id=runs[64])


def test_the_events_kept_are_bounded(daemon):
    """The newest thousand events of any run are sent to a late follower."""
    with daemon() as d, d.client() as c:
        run = c.submit(spec("logs-ms1", 100000))

        def late():
            with d.client() as other:
                return other.call("follow", id=run)

        reply = wait_for(lambda: (reply := late())["seq"] > 1500 and reply, "many events")
        assert reply["seq"] - reply["first"] < 1024
        c.call("cancel", id=run)


def test_a_client_that_asks_and_does_not_read(daemon):
    with daemon() as d:
        with d.client() as c:
            for i in range(200):
                c.submit(spec(f"r{i}"))
        with d.client(hello=False) as greedy:
            greedy.send_raw(HELLO)
            greedy.socket.settimeout(1)
            question = b'{"jsonrpc":"2.0","id":7,"method":"list","params":{}}\n'
            with pytest.raises(TimeoutError):
                for _ in range(100000):
                    greedy.send_raw(question * 100)
            assert rss_bytes(d) < 64 << 20
            with d.client() as c:
                assert c.call("status")["daemon"]["state"] == "running"


def asleep(d):
    """Whether gpt2d's loop sleeps: a busy loop is never seen sleeping."""
    return Path(f"/proc/{d.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "S"


def wakeups(d):
    """How often it has done so."""
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)$", Path(f"/proc/{d.process.pid}/status").read_text(), re.M)[1])


def test_one_that_asks_and_does_not_read_costs_nothing(daemon):
    """Its requests wait, and gpt2d does not poll them; once it reads, all get replies."""
    question = b'{"jsonrpc":"2.0","id":7,"method":"status","params":{}}\n'
    with daemon() as d, d.client() as mute, d.client() as c:
        mute.socket.setblocking(False)
        asked, rest = 0, b""

        def full():
            nonlocal asked, rest
            with contextlib.suppress(BlockingIOError):
                while True:
                    asked, rest = (asked, rest) if rest else (asked + 1, question)
                    rest = rest[mute.socket.send(rest):]
            c.call("status")  # gpt2d has had a turn to take more
            return not select.select([], [mute.socket], [], 0.5)[1]

        wait_for(full, "that no more is taken")
        wait_for(lambda: asleep(d), "that it does not look at them all the time")
        before = wakeups(d)
        select.select([], [], [], 1)
        assert wakeups(d) - before < 100  # 4, from timers
        mute.socket.settimeout(PATIENCE_S)
        assert [mute.receive()["id"] for _ in range(asked - 1)] == [7] * (asked - 1)
        mute.send_raw(rest)
        assert mute.receive()["id"] == 7


def test_many_follow_one_after_the_end(daemon):
    with daemon() as d, d.client() as c:
        run = c.submit(spec("short"))
        c.wait(run)
        for _ in range(3):
            events = c.follow(run)
            assert len(events) == 1 and events[0]["params"]["state"] == "done"
        assert c.follow(run)[0]["params"]["dir"].endswith("1-short")


def test_replay(daemon):
    with daemon() as d, d.client() as c:
        run = c.submit(experiment("ab-held4", 5, repetitions=4))
        wait_for(lambda: c.call("show", id=run)["run"]["segments_done"] >= 2, "two segments")
        with d.client() as late:
            reply = late.call("follow", id=run, after=0)
            assert reply["first"] == 1
            events = [late.event() for _ in range(reply["seq"])]
            assert [e["params"]["seq"] for e in events] == list(range(1, reply["seq"] + 1))
            assert "already followed" in refusal(late.call, "follow", id=run).message
        c.call("cancel", id=run)


def test_two_thousand_runs_listed(daemon):
    with daemon() as d, d.client() as c:
        first = c.submit(spec("long-ms20", 100000))
        for i in range(0, 2000, 100):
            for k in range(100):
                c.ask("submit", spec=spec(f"r{i + k}"))
            for k in range(100):
                assert "result" in c.receive()
        runs = c.call("list", limit=10000)["runs"]
        assert [run["id"] for run in runs] == list(range(1, 2002))
        wait_for(lambda: c.call("status")["counts"]["queued"] == 2000, "the start of the first one")
        c.call("cancel", id=first)
        c.call("shutdown", now=True)
        d.process.wait(PATIENCE_S)
