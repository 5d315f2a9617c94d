"""The manual pages of gpt2d and of the protocol match the programs."""

import json
import re
import subprocess

import pytest

import engines
from helpers import BUILD, PATIENCE_S, ROOT, RpcError, spec


PAGE = (BUILD / "proto" / "gpt2d-protocol.7").read_text()
HEADER = (ROOT / "proto" / "protocol.h").read_text()


def examples():
    """The messages of the page, parsed."""
    messages = []
    page = PAGE[:PAGE.index(".Sh WITHOUT A CLIENT PROGRAM")]
    for literal in re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed", page, flags=re.S | re.M):
        for line in literal.splitlines():
            start = re.match(r"(?:[CEM]\\\(->|\\\(->[CEM]) (.*)", line)
            if start:
                messages.append(start[1])
            elif line.startswith("    ") and messages:
                messages[-1] += line
    return [json.loads(text.replace("\\e", "\\")) for text in messages]


def test_every_message_has_an_example():
    names = re.findall(r'^#define (?:METHOD|EVENT|ENGINE|SEGMENT|CHECK|GENERATE|NODE)_\w+\s+"([^"]+)"', HEADER, flags=re.M)
    assert len(names) > 30
    shown = {message.get("method") for message in examples()}
    assert set(names) == shown - {None}


def test_every_reply_has_an_example():
    asked = {m["id"] for m in examples() if "id" in m and "method" in m}
    answered = {m["id"] for m in examples() if "result" in m}
    assert asked == answered


def test_every_error_code_is_listed():
    for code in re.findall(r"^\tPROTOCOL_\w+ = (-\d+)", HEADER, flags=re.M):
        assert f".It \\{code}\n" in PAGE


def test_every_reason_to_wait_is_listed(daemon):
    """By its code, with its meaning; also those of gates."""
    table = dict(re.findall(r'\[WAITING_\w+\] = \{"(\w+)",\s+"([^"]+)', (ROOT / "proto/waiting.c").read_text()))
    listed = dict(re.findall(r"^\.It Cm (\w+)\n(.+)\.$", PAGE[PAGE.index("the first of these codes"):], flags=re.M))
    assert len(table) == 11 and all(listed[code].startswith(meaning) for code, meaning in table.items())
    with daemon() as d, d.client() as c:
        for hold in ("drain", "release"):
            c.call(hold)
            c.submit(spec(hold))
            code, text = c.call("status")["waiting"].split(": ", 1)
            assert code in table and text
        c.call("warm")
        c.call("resume")


PAGES = ("daemon/gpt2d.8", "daemon/gpt2d.conf.5", "ctl/gpt2ctl.1", "ctl/gpt2ctl-json.5", "proto/gpt2d-spec.5",
    "proto/gpt2d-artifacts.5", "proto/gpt2d-protocol.7", "engine/gpt2-engine.8")


def page_text(name):
    """Written by hand, or generated from a table."""
    path = ROOT / name
    return (path if path.exists() else BUILD / name).read_text()


@pytest.mark.parametrize("name", PAGES)
def test_every_page_has_examples(name):
    text = page_text(name)
    if name != "proto/gpt2d-protocol.7":  # which has one beside each message
        text = text[text.index(".Sh EXAMPLES"):]
    assert len(re.findall(r"^\.Bd -literal", text, flags=re.M)) >= 1


def test_these_are_all_pages():
    found = [path for path in ROOT.glob("*/*.[1-9]*") if re.search(r"\.[1-9](\.in)?$", path.name)]
    assert {f"{path.parent.name}/{path.name.removesuffix('.in')}" for path in found} == set(PAGES)


def test_every_reason_of_an_engine_is_told():
    """The codes that are written to failure.reason, or passed to segment_fail, are in gpt2d(8)."""
    reported = set()
    for path in (ROOT / "engine").glob("*.c"):
        source = path.read_text()
        reported.update(re.findall(r'segment_fail\(\s*\w+,\s*"([a-z_]+)"', source))
        for value in re.findall(r"failure\.reason = ([^;]+);", source):
            reported.update(re.findall(r'"([a-z_]+)"', value))
    assert {"memory", "data", "peer_lost", "nonfinite_loss"} <= reported
    page = page_text("daemon/gpt2d.8")
    listed = re.findall(r"^\.It Cm ([a-z_ ,]+)$", page[page.index("Reasons begin with a code"):page.index(".Sh METRICS")], flags=re.M)
    assert reported <= {code for row in listed for code in row.split(" , ")}


def test_options_of_the_engine_are_the_same():
    shown = subprocess.run([BUILD / "engine" / "gpt2-engine-cpu", "--help"], capture_output=True, text=True,
        timeout=60, check=True).stdout
    rows = re.findall(r"^  --(\S+) +([A-Z]*)  ", shown, flags=re.M)
    assert len(rows) > 5
    assert rows == re.findall(r"^\.It Fl -(\S+)(?: Ar ([A-Z]+))?$", page_text("engine/gpt2-engine.8"), flags=re.M)


def test_exits_of_an_engine_are_the_same():
    codes = re.findall(r"^\tENGINE_EXIT_\w+ = (\d+)", HEADER, flags=re.M)
    page = page_text("engine/gpt2-engine.8")
    assert codes == re.findall(r"^\.It (\d+)$", page[page.index(".Sh EXIT STATUS"):], flags=re.M)


def test_options_are_the_same():
    """gpt2d(8) describes what is not a setting; gpt2d.conf(5) has the settings from their table."""
    shown = subprocess.run([BUILD / "daemon" / "gpt2d", "--help"], capture_output=True, text=True,
        timeout=60, check=True).stdout
    flags, settings = shown.split("\nSettings, ")
    page = (ROOT / "daemon" / "gpt2d.8").read_text()
    assert re.findall(r"^  (?:-(\w), )?--(\S+?)(?: ([A-Z]+))?$", flags, flags=re.M) == \
        re.findall(r"^\.It Fl (?:(\w) , )?-(\S+?)(?: Ar (\S+))?$", page, flags=re.M)
    conf = (BUILD / "daemon" / "gpt2d.conf.5").read_text()
    names = [name.replace("-", "_") for name in re.findall(r"^  --(\S+)  ", settings, flags=re.M)]
    assert len(names) > 15
    assert names == re.findall(r"^\.It Cm (\S+) No = Ar", conf, flags=re.M)


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
