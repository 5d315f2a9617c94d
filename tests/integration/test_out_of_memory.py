"""gpt2d runs out of memory: it ends with one line, and the next start has the whole queue."""

import resource

from helpers import PATIENCE_S, Daemon, RpcError, spec


def address_space(process):
    with open(f"/proc/{process.pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[0]) * resource.getpagesize()


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
