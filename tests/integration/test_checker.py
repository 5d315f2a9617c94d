"""Checks of specs: refusals, and a checker that fails, is silent or slow."""

import json
import os
import signal
from pathlib import Path

import pytest

from helpers import UNCHECKED, experiment, refusal, spec


def test_numbers_are_read_from_the_specs_text(daemon):
    """Only the spec's parser reads numbers: exact beyond 2^53, and not 0 if a double cannot hold them."""
    with daemon() as d, d.client() as c:
        text = json.dumps(spec(seed=1))
        found = c.call("dry-run", spec=text.replace('"seed": 1', '"seed": 9007199254740993.0'))
        assert found["spec"]["seed"] == 9007199254740993
        for method in ("submit", "dry-run"):
            refused = refusal(c.call, method, spec=text.replace('"seed": 1', '"optimizer": {"params": {"lr": 1e-999}}'))
            assert refused.data["errors"][0]["key"] == "optimizer.params.lr"
            c.last_id += 1
            c.send_raw(json.dumps({"jsonrpc": "2.0", "id": c.last_id, "method": method, "params": {"spec": spec()}}).encode() + b"\n")
            assert c.receive()["error"]["code"] == -32602


def test_checks_refuse(daemon):
    with daemon() as d, d.client() as c:
        for method in ("submit", "dry-run"):
            refused = refusal(c.call, method, spec=spec(seed=666))
            assert refused.code == -32002
            assert "train.bin: 5 tokens, 6 needed" in refused.message
        assert len(refusal(c.call, "submit", spec=spec(reduce_bucket_sise=1, seed="x")).data["errors"]) == 2
        refused = refusal(c.call, "submit", spec='{\n"name": "x",\n"seed": true}')
        assert any(e["line"] == 3 and e["key"] == "seed" for e in refused.data["errors"])
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
                assert refusal(c.submit, spec()).message == reason
            assert c.call("list")["runs"] == []


def checker_of(d):
    """Its process, or None."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"check" in words and f"\nPPid:\t{d.process.pid}\n" in (process / "status").read_text():
                return int(process.name)
        except OSError:
            pass  # it has ended meanwhile
    return None


def test_a_silent_checker(daemon):
    """gpt2d notices it by alive_timeout, long before check_timeout, and replaces it."""
    with daemon(options=("--alive-timeout", "5", "--check-timeout", "3600")) as d, d.client() as c:
        c.call("dry-run", spec=spec())
        os.kill(checker_of(d), signal.SIGSTOP)
        assert refusal(c.submit, spec()).message == f"{UNCHECKED}was silent for 5 s"
        assert c.call("dry-run", spec=spec())["segments"] == 1


def of_file(name, folder="/nowhere"):
    return spec(data={"kind": "file", "train": f"{folder}/{name}.bin"})


def test_a_check_that_nobody_waits_for(daemon):
    """gpt2d stops the check, and its process."""
    with daemon(options=("--check-timeout", "3600")) as d, d.client() as c:
        c.call("dry-run", spec=spec())  # it has started
        with d.client() as other:
            other.ask("dry-run", spec=of_file("stuck"))
            with d.client() as third:
                third.call("status")  # gpt2d has asked it
            asked = c.ask("dry-run", spec=of_file("short"))
        assert c.reply(asked)["segments"] == 1
        assert "checker: ended: no client waits for its check" in d.said()


def test_a_check_that_takes_too_long_names_its_file(daemon):
    with daemon(options=("--check-timeout", "6")) as d, d.client() as c:
        c.call("dry-run", spec=spec())  # it has started
        refused = refusal(c.submit, of_file("stuck"))
        assert refused.message == (f"{UNCHECKED}did not answer within 6 s: it reads the whole file /nowhere/stuck.bin; raise "
            "check_timeout in gpt2d.conf(5)")
        assert refused.data == {"queued": False}
        assert c.call("dry-run", spec=spec())["segments"] == 1


def test_stopped_while_a_spec_is_checked(daemon):
    """A client that waits for the checker gets the error of a stopping gpt2d, and is not disconnected."""
    with daemon(environment={"GPT2D_FAKE_CHECK": "mute"}) as d, d.client() as c, d.client() as other:
        asked = [(c, c.ask("submit", spec=spec())), (other, other.ask("dry-run", spec=spec()))]
        with d.client() as third:
            third.call("status")
        d.process.terminate()
        for client, number in asked:
            refused = refusal(client.reply, number)
            assert refused.message == "gpt2d is stopping; submit it again once gpt2d is back"
            assert refused.code == -32005 and refused.data == {"queued": False}
        assert d.process.wait(60) == 0
