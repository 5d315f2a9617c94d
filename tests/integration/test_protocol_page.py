"""The requests of gpt2d-protocol(7), sent to a gpt2d with its real engines: the replies match the page."""

import json

import pytest

import engines
from helpers import PATIENCE_S, RpcError, spec
from test_daemon_docs import examples


def unlike(shown, real, where):
    """What an answer has otherwise than the example: members of an object, kinds of values; "" where it is alike.

    Of what was cut short in the page only what stands there is compared.
    """
    if isinstance(shown, dict) and isinstance(real, dict):
        for key in shown:
            if key not in real:
                return f"{where}.{key} is not in {sorted(real)}"
            if key == "spec_sha256" and not real[key].startswith(shown[key]):
                return f"{where}.{key}: {shown[key]} in the page, {real[key]} from gpt2d"
            difference = unlike(shown[key], real[key], f"{where}.{key}")
            if difference:
                return difference
        return ""
    if isinstance(shown, list) and isinstance(real, list):
        return unlike(shown[0], real[0], f"{where}[0]") if shown and real else ""
    number = (int, float)
    alike = shown is None or real is None or type(shown) is type(real) or (isinstance(shown, number) and isinstance(real, number))
    return "" if alike else f"{where}: {shown!r} in the page, {real!r} from gpt2d"


def test_examples_are_answered_as_shown(daemon):
    asked = {message["method"]: message for message in examples() if "id" in message and "method" in message}
    answered = {message["id"]: message["result"] for message in examples() if "result" in message}
    last = "shutdown"
    with daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        greeting = {key: value for key, value in asked["hello"]["params"].items() if key != "build"}
        with d.client(hello=False) as other:
            replies = {"hello": other.call("hello", **greeting)}
        replies["submit"] = c.call("submit", **asked["submit"]["params"])
        assert c.wait(replies["submit"]["id"])["state"] == "done"
        # the one that the page moves in the queue
        c.call("drain")
        assert c.submit(spec("second")) == asked["priority"]["params"]["id"]
        for method in [method for method in asked if method not in replies and method != last] + [last]:
            try:
                replies[method] = c.call(method, **asked[method].get("params", {}))
            except RpcError as error:
                pytest.fail(f"{json.dumps(asked[method])}: {error.message}")
        d.process.wait(PATIENCE_S)
    for method, message in asked.items():
        shown = answered[message["id"]]
        assert set(shown) == set(replies[method]), method
        assert unlike(shown, replies[method], method) == ""
