"""Shells complete gpt2ctl's command line: gpt2ctl's candidates, and three shells that ask for them."""

import json
import os
import re
import shlex
import shutil
import subprocess

import pytest

from client import CTL, ctl, environment, verbs
from fake_daemon import FakeDaemon, run_object
from helpers import PATIENCE_S, ROOT

RUNS = [run_object(12, "other", "queued"), run_object(7, "demo", "running")]


@pytest.fixture
def daemon(tmp_path):
    with FakeDaemon(tmp_path / "s", list=lambda params, connection: {"runs": RUNS, "next": None}) as d:
        yield d


def test_the_script_is_printed_with_json_too():
    plain, json = ctl("completion", "bash"), ctl("completion", "bash", "--json")
    assert plain.returncode == json.returncode == 0 and plain.stdout == json.stdout != ""
    assert ".Ic completion\nprints its script.\n" in (CTL.parent / "gpt2ctl.1").read_text()


def words(*line, path=None):
    result = ctl("completion", "--words", "--", *line, path=path)
    assert result.returncode == 0 and result.stderr == ""
    return [row.split("\t")[0] for row in result.stdout.splitlines()]


def test_the_words_of_the_manual(daemon):
    """Its examples of --words print what it says."""
    section = (CTL.parent / "gpt2ctl.1").read_text().split("\n.Sh COMPLETION\n")[1].split("\n.Sh ")[0]
    shown = section.split("\n.Bd -literal -offset indent\n")[1].split("\n.Ed")[0]
    examples = [example.splitlines() for example in shown.split("$ gpt2ctl ")[1:]]
    assert len(examples) == 4
    for command, *lines in examples:
        assert ctl(*shlex.split(command), path=daemon.path).stdout.splitlines() == lines, command


def test_every_verb_and_option_is_offered():
    first = words("")
    for verb in verbs():
        name = verb["name"].split()
        assert name[0] in first
        assert len(name) == 1 or name[1] in words(name[0], "")
        options = words(*name, "-")
        assert {f"--{option['name']}" for option in verb["options"]} <= set(options)
        assert "--json" in options
    assert len(first) == len(set(first))


@pytest.mark.parametrize("line, expected", [
    (["sub"], ["submit"]),
    (["--json", "stat"], ["status"]),
    (["--socket", "stat"], [":files"]),
    (["data", ""], ["prepare", "show", "verify"]),
    (["dat"], ["data"]),
    (["help", "comple"], ["completion"]),
    (["list", "--state", "f"], ["finishing", "failed"]),
    (["list", "--state=f"], ["--state=finishing", "--state=failed"]),
    (["list", "-js", "f"], ["finishing", "failed"]),
    (["list", "-sf"], []),
    (["data", "prepare", "--format", "r"], ["raw"]),
    (["data", "prepare", "x", ""], [":files"]),
    (["submit", ""], [":files"]),
    (["submit", "x", ""], []),
    (["submit", "--", "--f"], [":files"]),
    (["submit", "--fol"], ["--follow"]),
    (["submit", "--set", "zero_optimization.st"],
        ["zero_optimization.stage=", "zero_optimization.stage3_param_persistence_threshold="]),
    (["submit", "--set=tf3"], ["--set=tf32="]),
    (["submit", "--set", "tf32=t"], ["tf32=true"]),
    (["submit", "--set", "model.preset=n"], ["model.preset=nano"]),
    (["completion", "z"], ["zsh"]),
    (["nothing", ""], []),
    ([], None),
])
def test_words(line, expected):
    found = words(*line)
    assert found == expected if expected is not None else "submit" in found


def test_states_are_those_of_the_daemon():
    """Which are in the schema of a run; prune takes those of one that has ended."""
    schema = json.loads((CTL.parent / "output.schema.json").read_text())
    states = schema["$defs"]["run"]["properties"]["state"]["enum"]
    assert words("list", "--state", "") == states
    assert words("prune", "--state", "") == states[states.index("done"):]


def test_runs_come_from_the_daemon(daemon):
    assert words("show", "", path=daemon.path) == ["12", "7"]
    assert words("show", "1", path=daemon.path) == ["12"]
    assert words("show", "de", path=daemon.path) == ["7"]
    assert words("wait", "7", "", path=daemon.path) == ["12", "7"]
    assert words("show", "7", "", path=daemon.path) == []
    assert words("--socket", daemon.path, "cancel", "") == ["12", "7"]
    assert words(f"--socket={daemon.path}", "cancel", "") == ["12", "7"]


def test_no_daemon_no_runs(tmp_path):
    assert words("show", "", path=tmp_path / "none") == []


# ---- the shells ----

def script(tmp_path, shell):
    """The script, and an environment in which gpt2ctl is found."""
    file = tmp_path / f"completion.{shell}"
    file.write_text(ctl("completion", shell).stdout)
    return file, {**environment(tmp_path / "s"), "PATH": f"{CTL.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path), "INPUTRC": "/dev/null"}


def need(shell):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_syntax(tmp_path, shell):
    need(shell)
    file, _ = script(tmp_path, shell)
    subprocess.run([shell, "-n", file], check=True, timeout=PATIENCE_S)


BASH = r"""
source "$1"; shift
compopt() { printf 'compopt %s\n' "$*"; }
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_gpt2ctl gpt2ctl
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("line, expected", [
    (["sub"], "submit"),
    (["submit", "--se"], "--set"),
    (["submit", "--set", "tf3"], "compopt -o nospace\ntf32="),
    (["submit", "--set", "="], None),
    (["submit", "--set", "=", "tf3"], "compopt -o nospace\ntf32="),
    (["submit", "--set", "tf32", "=", "f"], "false"),
    (["submit", "--set", "=", "tf32", "=", "f"], "false"),
    (["submit", "a"], "compopt -o default\n"),
    (["show", "de"], "7"),
])
def test_bash_function(tmp_path, daemon, line, expected):
    """Words as bash breaks them, at "=" too."""
    file, env = script(tmp_path, "bash")
    found = subprocess.run(["bash", "--norc", "-c", BASH, "bash", file, "gpt2ctl", *line], env=env,
        capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert found.stderr == ""
    if expected is None:
        assert "compopt -o nospace" in found.stdout and "\ntf32=\n" in found.stdout
    else:
        assert found.stdout.strip() == expected.strip()


def test_installed_scripts_are_these(tmp_path):
    """What the build made is what gpt2ctl prints."""
    for shell, name in (("bash", "gpt2ctl.bash"), ("zsh", "_gpt2ctl"), ("fish", "gpt2ctl.fish")):
        assert (CTL.parent / name).read_text() == ctl("completion", shell).stdout


def test_frame_of_the_manual():
    """The page has what the tables have, and nothing of the frame is left open."""
    page = (CTL.parent / "gpt2ctl.1").read_text()
    assert not re.search("^@", page, flags=re.M)
    for verb in verbs():
        assert re.search(rf"^\.It Cm {verb['name']}( |$)", page, flags=re.M)
        for option in verb["options"]:
            assert f" Fl -{option['name']}" in page


def test_exit_codes_are_the_same_everywhere():
    header = re.search(r"enum ctl_exit \{(.*?)\};", (ROOT / "proto/protocol.h").read_text(), flags=re.S)[1]
    codes = re.findall(r"= (\d+),", header)
    page = (CTL.parent / "gpt2ctl.1").read_text()
    rows = re.findall(r"^\.It (\d+)\n(.+)\n", page[page.index(".Sh EXIT STATUS"):], flags=re.M)
    assert [code for code, _ in rows] == codes
    brief = " ".join(ctl("help").stdout.split())
    assert all(re.search(rf"[ ,]{code} [a-z]", brief) for code in codes)
