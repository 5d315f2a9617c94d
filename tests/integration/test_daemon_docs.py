"""The manual pages of gpt2d and of the protocol say what the programs do."""

import json
import re
import subprocess

from helpers import BUILD, ROOT

PAGE = (ROOT / "proto" / "gpt2d-protocol.7").read_text()
HEADER = (ROOT / "proto" / "protocol.h").read_text()


def examples():
    """The messages of the page, parsed."""
    messages = []
    page = PAGE[:PAGE.index(".Sh WITHOUT A CLIENT PROGRAM")]
    for literal in re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed", page, flags=re.S | re.M):
        for line in literal.splitlines():
            start = re.match(r"(?:[CE]\\\(->|\\\(->[CE]) (.*)", line)
            if start:
                messages.append(start[1])
            elif line.startswith("    ") and messages:
                messages[-1] += line
    return [json.loads(text) for text in messages]


def test_every_message_has_an_example():
    names = re.findall(r'^#define (?:METHOD|EVENT|ENGINE|SEGMENT|CHECK)_\w+ "([^"]+)"', HEADER, flags=re.M)
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


def test_options_are_the_same():
    """What is no setting is told by gpt2d(8); the settings are in gpt2d.conf(5), which is made from their table."""
    shown = subprocess.run([BUILD / "daemon" / "gpt2d", "--help"], capture_output=True, text=True,
        timeout=20, check=True).stdout
    flags, settings = shown.split("\nSettings, ")
    page = (ROOT / "daemon" / "gpt2d.8").read_text()
    assert re.findall(r"^  (?:-(\w), )?--(\S+?)(?: ([A-Z]+))?$", flags, flags=re.M) == \
        re.findall(r"^\.It Fl (?:(\w) , )?-(\S+?)(?: Ar (\S+))?$", page, flags=re.M)
    conf = (BUILD / "daemon" / "gpt2d.conf.5").read_text()
    names = [name.replace("-", "_") for name in re.findall(r"^  --(\S+)  ", settings, flags=re.M)]
    assert len(names) > 15
    assert names == re.findall(r"^\.It Cm (\S+) No = Ar", conf, flags=re.M)
