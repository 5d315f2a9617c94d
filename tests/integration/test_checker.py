"""Checks of specs: refusals, a checker that breaks or is silent, large files, whose turn it is."""

import json
import os
import signal
from pathlib import Path

import pytest

from engines import PROGRAM
from helpers import PATIENCE_S, UNCHECKED, RpcError, experiment, spec, wait_for


def test_numbers_are_read_from_the_specs_text(daemon):
    """Only the spec's parser reads them: exact beyond 2^53, and not 0 where a double has no such number."""
    with daemon() as d, d.client() as c:
        text = json.dumps(spec(seed=1))
        found = c.call("dry-run", spec=text.replace('"seed": 1', '"seed": 9007199254740993.0'))
        assert found["spec"]["seed"] == 9007199254740993
        for method in ("submit", "dry-run"):
            with pytest.raises(RpcError) as refused:
                c.call(method, spec=text.replace('"seed": 1', '"optimizer": {"params": {"lr": 1e-999}}'))
            assert refused.value.data["errors"][0]["key"] == "optimizer.params.lr"
            c.last_id += 1
            c.send_raw(json.dumps({"jsonrpc": "2.0", "id": c.last_id, "method": method, "params": {"spec": spec()}}).encode() + b"\n")
            assert c.receive()["error"]["code"] == -32602


def test_checks_refuse(daemon):
    with daemon() as d, d.client() as c:
        for method in ("submit", "dry-run"):
            with pytest.raises(RpcError) as refused:
                c.call(method, spec=spec(seed=666))
            assert refused.value.code == -32002
            assert "train.bin: 5 tokens, 6 needed" in refused.value.message
        with pytest.raises(RpcError) as refused:
            c.call("submit", spec=spec(reduce_bucket_sise=1, seed="x"))
        assert len(refused.value.data["errors"]) == 2
        with pytest.raises(RpcError) as refused:
            c.call("submit", spec='{\n"name": "x",\n"seed": true}')
        assert any(e["line"] == 3 and e["key"] == "seed" for e in refused.value.data["errors"])
        assert c.call("list")["runs"] == []
        assert c.call("dry-run", spec=experiment())["segments"] == 8
        assert c.call("list")["runs"] == []


@pytest.mark.parametrize("how, timeout, reason", [
    ("dead", "120", f"{UNCHECKED}was killed by signal 11"),
    ("mute", "1", f"{UNCHECKED}did not answer within 1 s"),
    ("closes", "120", f"{UNCHECKED}exited with status 3"),
])
def test_a_broken_checker(daemon, how, timeout, reason):
    with daemon(environment={"GPT2D_FAKE_CHECK": how}, options=("--check-timeout", timeout)) as d:
        with d.client() as c:
            for _ in range(3):
                with pytest.raises(RpcError) as refused:
                    c.submit(spec())
                assert refused.value.message == reason
            assert c.call("list")["runs"] == []


def checkers_of(d):
    """Their processes."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"check" in words and f"\nPPid:\t{d.process.pid}\n" in (process / "status").read_text():
                found.append(int(process.name))
        except OSError:
            pass  # it has ended meanwhile
    return found


def checker_of(d):
    """Its process, or None."""
    return next(iter(checkers_of(d)), None)


def test_a_silent_checker(daemon):
    """It is noticed by alive_timeout, long before check_timeout, and replaced."""
    with daemon(options=("--alive-timeout", "5", "--check-timeout", "3600")) as d, d.client() as c:
        c.call("dry-run", spec=spec())
        os.kill(checker_of(d), signal.SIGSTOP)
        with pytest.raises(RpcError) as refused:
            c.submit(spec())
        assert refused.value.message == f"{UNCHECKED}gave no sign of life for 5 s"
        assert c.call("dry-run", spec=spec())["segments"] == 1


def of_file(name, folder="/nowhere"):
    return spec(data={"kind": "file", "train": f"{folder}/{name}.bin"})


def test_large_files_hold_up_no_others(daemon):
    """They are read in turns, which any number of other checks come between; there is one checker."""
    with daemon(options=("--check-timeout", "3600")) as d, d.client() as c, d.client() as one, d.client() as two:
        for client in (one, two):
            client.ask("dry-run", spec=of_file("endless"))
        wait_for(lambda: checker_of(d), "the checker")
        pid = checker_of(d)
        for _ in range(3):
            assert c.call("dry-run", spec=spec())["segments"] == 1
            assert c.call("dry-run", spec=of_file("short"))["segments"] == 1
            assert c.call("dry-run", spec=experiment())["segments"] == 8
        assert c.wait(c.submit(of_file("short")))["state"] == "done"
        assert checkers_of(d) == [pid]
        for client in (one, two):
            client.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.receive()  # whose check goes on


def test_a_check_that_nobody_waits_for(daemon):
    """It is given up, and its process with it."""
    with daemon(options=("--check-timeout", "3600")) as d, d.client() as c:
        c.call("dry-run", spec=spec())  # it has started
        with d.client() as other:
            other.ask("dry-run", spec=of_file("stuck"))
            with d.client() as third:
                third.call("status")  # gpt2d has asked it
            asked = c.ask("dry-run", spec=of_file("short"))
        assert c.reply(asked)["segments"] == 1
        assert "checker: ended: nobody waits for what it was asked" in d.said()


@pytest.mark.parametrize("how", ["stuck", "endless"])
def test_a_check_that_takes_too_long_names_its_file(daemon, how):
    """In one turn, or in all its turns together."""
    with daemon(options=("--check-timeout", "6")) as d, d.client() as c:
        c.call("dry-run", spec=spec())  # it has started
        with pytest.raises(RpcError) as refused:
            c.submit(of_file(how))
        assert refused.value.message == (f"{UNCHECKED}did not answer within 6 s: it reads all of /nowhere/{how}.bin; a larger "
            "check_timeout in gpt2d.conf(5) lets it")
        assert refused.value.data == {"queued": False}
        assert c.call("dry-run", spec=spec())["segments"] == 1


@pytest.mark.skipif(not PROGRAM.exists(), reason="no engine was built")
@pytest.mark.parametrize("wrong", [False, True])
def test_a_file_that_is_read_in_turns(daemon, tmp_path, wrong):
    """Each goes on where the last one ended: to the last token, the only one that may be wrong."""
    large, endless = tmp_path / "large.bin", tmp_path / "endless.bin"
    with open(large, "wb") as f:
        f.truncate(520 << 20)
        f.seek((520 << 20) - 2)
        f.write(b"\xff\xff" if wrong else b"\x01\x00")
    with open(endless, "wb") as f:
        f.truncate(1 << 40)
    with daemon(engine=PROGRAM, options=("--check-timeout", "3600")) as d, d.client() as c, d.client() as other:
        other.ask("dry-run", spec=spec(data={"kind": "file", "train": str(endless)}))
        work = spec(data={"kind": "file", "train": str(large)})
        c.socket.settimeout(5 * PATIENCE_S)
        if wrong:
            with pytest.raises(RpcError) as refused:
                c.call("dry-run", spec=work)
            assert f"{large}: token {(260 << 20) - 1} is 65535, ids below " in refused.value.message
        else:
            assert c.call("dry-run", spec=work)["arms"][0]["check"]["data"]["train"]["tokens"] == 260 << 20


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_users_take_turns_with_the_checker(daemon):
    """Many questions of one do not put those of others off."""
    with daemon(options=("--check-timeout", "3600", "--socket-mode", "0666", "--data-roots", "/")) as d:
        os.chmod(d.home, 0o755)
        first, second = d.client(), d.client()
        os.seteuid(65534)
        try:
            theirs = d.client()
        finally:
            os.seteuid(0)
        with first, second, theirs:
            first.call("dry-run", spec=spec())  # the checker has started
            for client, name in ((first, "stuck"), (second, "stuck"), (theirs, "short")):
                (d.home / f"{name}.bin").touch()
                asked = client.ask("dry-run", spec=of_file(name, d.home))
                with d.client() as other:
                    other.call("status")  # gpt2d has taken in what was asked before
            first.close()  # its check ends
            assert theirs.reply(asked)["segments"] == 1
            second.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                second.receive()  # whose check goes on


def test_stopped_while_a_spec_is_checked(daemon):
    """Whoever waits for the checker is answered, not cut off, and as everybody is whom a gpt2d that stops refuses."""
    with daemon(environment={"GPT2D_FAKE_CHECK": "mute"}) as d, d.client() as c, d.client() as other:
        asked = [(c, c.ask("submit", spec=spec())), (other, other.ask("dry-run", spec=spec()))]
        with d.client() as third:
            third.call("status")
        d.process.terminate()
        for client, number in asked:
            with pytest.raises(RpcError) as refused:
                client.reply(number)
            assert refused.value.message == "gpt2d is stopping; submit it again once gpt2d is back"
            assert refused.value.code == -32005 and refused.value.data == {"queued": False}
        assert d.process.wait(60) == 0
