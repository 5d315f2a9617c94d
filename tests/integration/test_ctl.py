"""gpt2ctl's command line, and which daemon it finds: usage, help, sockets, versions, refusals."""

import grp
import os
import signal
import socket
import subprocess
import tempfile

import pytest

from client import CTL, ctl, environment, one_object, status_reply, verbs
from fake_daemon import FakeDaemon, Refused, run_object
from helpers import PATIENCE_S


# ---- the command line ----

@pytest.mark.parametrize("args, says", [
    (["submti", "x"], "did you mean submit?"),
    (["stat"], "did you mean status?"),
    (["frobnicate"], "no such verb"),
    (["status", "--jsno"], "did you mean --json?"),
    (["status", "--js"], "--js: no such option; did you mean --json?"),
    (["list", "--limit", ""], '--limit: "": a whole number is needed'),
    (["status", "--wait", ""], '--wait: "": a number is needed'),
    (["show", ""], '"": not a run ID'),
    (["submit", ""], 'gpt2ctl: "": No such file or directory'),
    (["data"], "did you mean data prepare?"),
    (["data", "prep"], "data prep: no such verb; did you mean data prepare?"),
    (["prepare"], "prepare: no such verb; did you mean data prepare?"),
    (["help", "prepare", "x"], "prepare: no such verb; did you mean data prepare?"),
    (["help", "data", "prep"], "data prep: no such verb; did you mean data prepare?"),
    (["help", "frobnicate"], "frobnicate: no such verb; see: gpt2ctl help"),
    (["compare", "1", "2", "3"], "compare: 3: unexpected argument\nsee: gpt2ctl help compare"),
    (["show"], "show: missing argument (expected ID, found 0)\nsee: gpt2ctl help show"),
    (["show", "1", "2"], "show: 2: unexpected argument"),
    (["show", "1", "--frobnicate"], "--frobnicate: no such option; see: gpt2ctl help show"),
    (["data", "show", "--frobnicate"], "--frobnicate: no such option; see: gpt2ctl help data show"),
    (["completion"], "completion: missing shell (bash, zsh or fish)"),
    (["help", "show", "extra"], "help: extra: unexpected argument\nsee: gpt2ctl help help"),
    (["artifacts", "1", "--copy", ""], "--copy: missing directory"),
    (["show", "abc"], "not a run ID"),
    (["show", "0"], "not a run ID"),
    (["show", " 1"], " 1: not a run ID"),
    (["show", "+1"], "+1: not a run ID"),
    (["show", "01"], "01: not a run ID"),
    (["show", "-99999999999999999999"], "not a run ID"),
    (["show", "9" * 20], "9" * 20 + ": no run has this ID (at most 9223372036854775807)"),
    (["list", "--limit", "9" * 20], "--limit: " + "9" * 20 + " is not allowed, from 0 to 1000000000"),
    (["list", "--limit", "9" * 20 + "x"], "9x: a whole number is needed"),
    (["wait", "1", "--timeout", "1e999"], "--timeout: 1e999 is not allowed, from 0 to 1000000000"),
    (["wait", "1", "--timeout", "nan"], "--timeout: nan: a number is needed"),
    (["wait", "1", "--timeout", "inf"], "--timeout: inf: a number is needed"),
    (["prune", "--keep", "+1"], "whole number"),
    (["prune", "--older-than", "99999999999w"], "99999999999w: too large, at most 15250w"),
    (["prune", "-n", "--older-than", "106752d"], "--older-than: 106752d: too large, at most 106751d"),
    (["prune", "-n", "--older-than", "9223372037s"], "at most 9223372036s"),
    (["prune", "--older-than", "99999999999999999999s"], "too large"),
    (["prune", "--older-than", "-1s"], "expected a number and a unit"),
    (["list", "--limit", "-1"], "-1 is not allowed, from 0"),
    (["list", "--limit", "2.5"], "whole number"),
    (["list", "--limit"], "N is needed"),
    (["list", "--state", "waiting"], "--state: waiting: queued, starting, running, finishing, done, failed, cancelled or interrupted is "
        "needed"),
    (["prune", "-s", "running"], "--state: running: done, failed, cancelled or interrupted is needed"),
    (["logs", "--level=Warning"], "--level: Warning: debug, info, warning or error is needed"),
    (["status", "--json=yes"], "takes no value"),
    (["status", "-version"], "-version: no such option; did you mean --version?"),
    (["status", "-qx"], "-qx: no such option"),
    (["list", "-qn"], "-qn: N is needed"),
    (["list", "-qn-1"], "-1 is not allowed, from 0"),
    (["wait", "--timeout", "nan", "1"], "a number is needed"),
    (["status", "--socket", "x" * 200], "at most 107 bytes, found 200"),
    (["submit", "--dry-run", "--follow", "x"], "--dry-run cannot be used with --follow"),
    (["prune", "--state", "failed", "--state", "done"], "--state: given twice: failed and done"),
    (["--socket", "a", "status", "--socket=a"], "--socket: given twice: a and a"),
    (["list", "-n3", "--limit", "4"], "--limit: given twice: 3 and 4"),
    (["submit", "--verbose", "x"], "--verbose requires --dry-run"),
])
def test_usage(args, says):
    result = ctl(*args)
    assert result.returncode == 2
    assert says in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("word, verb", [("prepare", "data prepare"), ("import", "import deepspeed"), ("deepspeed", "import deepspeed")])
def test_help_of_half_a_verb(word, verb):
    whole = ctl("help", *verb.split())
    for half in (ctl("help", word), ctl(word, "--help"), ctl("-h", word)):
        assert (half.returncode, half.stdout, half.stderr) == (0, whole.stdout, "")
        assert f"usage: gpt2ctl {verb}" in half.stdout


def test_help_of_the_first_word_of_several_verbs():
    for half in (ctl("help", "data"), ctl("data", "--help"), ctl("data", "-h"), ctl("-h", "data")):
        assert (half.returncode, half.stderr) == (0, "")
        assert half.stdout.startswith("usage: gpt2ctl data VERB ")
        assert [line.split()[:2] for line in half.stdout.splitlines() if line.startswith("  data ")] == \
            [["data", "prepare"], ["data", "show"], ["data", "verify"]]
    rows = one_object(ctl("data", "--help", "--json").stdout)["verbs"]
    assert [row["name"] for row in rows] == ["data prepare", "data show", "data verify"]
    wrong = ctl("data", "prep", "--help")
    assert wrong.returncode == 2 and "data prep: no such verb; did you mean data prepare?" in wrong.stderr


def test_help_of_compare_says_what_two_runs_give():
    assert "figures of two runs without a verdict" in " ".join(ctl("help", "compare").stdout.split())


def test_letters_stand_together(path):
    with FakeDaemon(path, list=lambda params, connection: {"runs": [run_object()], "next": None}) as daemon:
        assert one_object(ctl("list", "-jn", "3", path=path).stdout)["kind"] == "list"
        assert one_object(ctl("list", "-jn3", path=path).stdout)["kind"] == "list"
        assert one_object(ctl("-j", "list", "--limit=3", path=path).stdout)["kind"] == "list"
        assert [params["limit"] for params in daemon.asked("list")] == [3, 3, 3]
        quiet = ctl("list", "-q", path=path)
        assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
        assert one_object(ctl("list", "-qj", path=path).stdout)["kind"] == "list"
    quiet = ctl("list", "-q", path=path)
    assert quiet.returncode == 3 and quiet.stdout == "" and "not running" in quiet.stderr


def test_two_dashes_end_the_options(tmp_path, path):
    result = ctl("submit", "--", "-no-such-file", path=path, cwd=tmp_path)
    assert result.returncode == 2 and "-no-such-file: No such file" in result.stderr
    assert "-5: not a run ID" in ctl("show", "-5", path=path).stderr
    before = ctl("--", "submit", "--follow", path=path, cwd=tmp_path)
    assert before.returncode == 2 and "--follow: No such file" in before.stderr
    assert "--help: no such verb" in ctl("--", "--help").stderr
    nothing = ctl("--")
    assert nothing.returncode == 2 and "usage:" in nothing.stderr


@pytest.mark.parametrize("args", [["bogus", "--json"], ["--json", "bogus"], ["show", "--bogus", "-j"], ["show", "-j"]])
def test_an_error_of_the_command_line_as_json(args):
    result = ctl(*args)
    assert result.returncode == 2 and one_object(result.stdout)["kind"] == "error"
    assert ctl("bogus", "--", "--json").stdout == ""


def test_no_verb_is_usage():
    for args in [[], ["-q"], ["--socket", "status"]]:
        result = ctl(*args)
        assert result.returncode == 2 and result.stderr.startswith("usage:"), args
        assert result.stderr.endswith("\ngpt2ctl: missing verb; see: gpt2ctl help\n"), args
    for args in [["-j"], ["--json", "--"], ["-q", "--json"]]:
        result = ctl(*args)
        error = one_object(result.stdout)["error"]
        assert result.returncode == error["exit"] == 2 and "missing verb" in error["message"]
        assert result.stderr == f"gpt2ctl: {error['message']}\n"


def test_help_of_every_verb():
    names = [verb["name"] for verb in verbs()]
    assert {"submit", "status", "list", "show", "follow", "wait", "cancel", "compare", "data prepare", "shutdown",
        "version", "help"} <= set(names)
    for name in names:
        result = ctl("help", *name.split())
        assert result.returncode == 0 and f"usage: gpt2ctl {name}" in result.stdout
        assert result.stdout == ctl(*name.split(), "--help").stdout
        assert max(map(len, result.stdout.splitlines())) <= 80
    assert ctl("help", "nothing").returncode == 2
    assert ctl("--version").stdout.startswith("gpt2ctl 0.1.0")


# ---- no daemon, wrong daemon ----

NEEDS_DAEMON = (["status"], ["list"], ["show", "1"], ["follow", "1"], ["wait", "1"], ["cancel", "1"], ["compare", "1"],
    ["shutdown"], ["drain"], ["resume"], ["release"], ["warm"], ["priority", "1", "2"], ["rerun", "1"])


@pytest.mark.parametrize("args", NEEDS_DAEMON, ids=lambda args: args[0])
def test_no_daemon(args, path):
    result = ctl(*args, path=path)
    assert result.returncode == 3
    assert f"gpt2d is not running ({path}: No such file or directory)" in result.stderr
    assert "start gpt2d with: gpt2d --ranks N\nif it is starting, wait for it: gpt2ctl status --wait 30\n" in result.stderr


def test_all_places_that_were_looked_at_are_named(tmp_path):
    """Also that of a user's own daemon, at its default path."""
    if os.path.exists("/run/gpt2d/gpt2d.sock"):
        pytest.skip("a gpt2d of the system runs here")
    result = ctl("status", env={"XDG_RUNTIME_DIR": str(tmp_path)})
    assert result.returncode == 3
    assert (f"gpt2d is not running ({tmp_path}/gpt2d/gpt2d.sock: No such file or directory; "
        "/run/gpt2d/gpt2d.sock: No such file or directory)") in result.stderr
    assert "XDG_RUNTIME_DIR is not set" not in result.stderr
    system = ctl("status")
    assert "gpt2d is not running (/run/gpt2d/gpt2d.sock: No such file or directory)" in system.stderr
    assert ("XDG_RUNTIME_DIR is not set to" in system.stderr) == (os.geteuid() != 0)


def test_status_waits_for_a_daemon(path):
    daemon = FakeDaemon(path, status=status_reply)
    with subprocess.Popen([CTL, "status", "--quiet", "--wait", "600"], env=environment(path), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT) as waits:
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                waits.wait(1)
            with daemon:
                assert waits.wait(PATIENCE_S) == 0 and waits.stdout.read() == b""
        finally:
            waits.kill()


def test_status_does_not_wait_for_ever(path):
    result = ctl("status", "--wait", "0.2", path=path)
    assert result.returncode == 3 and "gpt2d is not running" in result.stderr and result.stdout == ""
    assert result.stderr.count("gpt2d is not running") == 1


def test_no_socket_at_all(path):
    result = ctl("status", path=path.parent)
    assert result.returncode == 3
    assert f"{path.parent}: not a socket (found a directory)" in result.stderr
    path.write_text("")
    result = ctl("status", path=path)
    assert result.returncode == 3
    assert f"{path}: not a socket (found a file)" in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_a_file_of_others_is_no_socket():
    """Also for users who may not write to it: the daemon's group does not matter."""
    try:
        result = ctl("status", path="/etc/passwd", user=65534)
    except PermissionError:
        pytest.skip("the build cannot be reached by another user")
    assert result.returncode == 3 and "/etc/passwd: not a socket (found a file)" in result.stderr, result


def test_stale_socket_is_no_daemon(path):
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    result = ctl("status", "--json", path=path)
    assert result.returncode == 3
    assert one_object(result.stdout)["error"]["exit"] == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_a_daemon(path, number):
    with socket.socket(socket.AF_UNIX) as listener:  # which greets nobody
        listener.bind(str(path))
        listener.listen()
        with subprocess.Popen([CTL, "status", "--wait", "600"], env=environment(path), text=True, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE) as process:
            with listener.accept()[0]:
                process.send_signal(number)
                out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (6, "", "gpt2ctl: interrupted\n")


def test_version_without_daemon(path):
    result = ctl("version", "--json", path=path)
    assert result.returncode == 0
    value = one_object(result.stdout)
    assert value["gpt2d"] is None and value["gpt2ctl"]["protocol"] == 1


def test_version_of_both(path):
    with FakeDaemon(path):
        result = ctl("version", path=path)
    assert result.returncode == 0
    assert "gpt2ctl 0.1.0" in result.stdout and "gpt2d 0.1.0 (build fake)" in result.stdout


def test_socket_choice(tmp_path):
    """--socket before GPT2D_SOCKET before the user's own before the system's."""
    own = tmp_path / "gpt2d" / "gpt2d.sock"
    own.parent.mkdir()
    missing = tmp_path / "missing"
    assert "/run/gpt2d/gpt2d.sock" in ctl("status", env={"XDG_RUNTIME_DIR": str(tmp_path)}).stderr
    with FakeDaemon(own):
        assert ctl("version", env={"XDG_RUNTIME_DIR": str(tmp_path)}).stdout.count("fake") == 1
        assert "fake" not in ctl("version", path=missing, env={"XDG_RUNTIME_DIR": str(tmp_path)}).stdout
        assert "fake" in ctl("version", "--socket", own, path=missing).stdout


@pytest.mark.parametrize("refuses", [True, False])
def test_version_mismatch(path, refuses):
    def hello(params, connection):
        versions = {"protocol": 7, "build": "newer"}
        if refuses:
            raise Refused(-32001, "protocol 1, 7 is needed", versions)
        return {**versions, "pid": 1}
    with FakeDaemon(path, hello=hello) as daemon:
        result = ctl("status", path=path)
    assert result.returncode == 8
    assert "gpt2ctl has protocol 1" in result.stderr and "gpt2d has 7 (build newer)" in result.stderr
    assert "restart" in result.stderr
    assert [method for method, _ in daemon.requests] == ["hello"]


def test_build_mismatch(path):
    def hello(params, connection):
        raise Refused(-32001, f"client is build {params['build']}, gpt2d is build newer: restart gpt2d")
    with FakeDaemon(path, hello=hello):
        result = ctl("status", path=path)
    assert result.returncode == 8
    assert "gpt2d is build newer" in result.stderr and "install both from the same build" in result.stderr
    with FakeDaemon(path, hello=hello):
        result = ctl("version", "--json", path=path)
    versions = one_object(result.stdout)
    assert result.returncode == 8 and versions["kind"] == "version" and "gpt2d" not in versions
    assert versions["error"]["exit"] == 8 and versions["error"]["message"] in result.stderr
    assert result.stderr.count("gpt2d is build newer") == 1


@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x01\x02\n", b"{}\n", b"[1]\n", b'{"jsonrpc":"2.0",'])
def test_no_gpt2d_on_the_socket(path, says):
    def hello(params, connection):
        connection.send(says)
        connection.close()
    with FakeDaemon(path, hello=hello):
        result = ctl("status", path=path)
    assert result.returncode == 1
    assert result.stderr.startswith("gpt2ctl: ")


GROUP_MAY = f"""members of the group {grp.getgrgid(os.getegid()).gr_name} may connect (gpt2d's setting socket_group)
root adds a member with: adduser NAME {grp.getgrgid(os.getegid()).gr_name}; then NAME logs in again
"""


@pytest.mark.parametrize("mode, advice", [(0, "gpt2d's settings socket_mode and socket_group decide who may use it\n"), (0o660, GROUP_MAY)])
def test_permission(mode, advice):
    user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}  # root may connect to any socket
    if mode and not user:
        pytest.skip("needs root, to run the client as a user outside of the group")
    with tempfile.TemporaryDirectory(prefix="gpt2d-") as folder, FakeDaemon(path := f"{folder}/s"):
        os.chmod(folder, 0o755)
        os.chmod(path, mode)
        try:
            result = ctl("status", path=path, **user)
        except PermissionError:
            pytest.skip("the build cannot be reached by another user")
    assert result.returncode == 9 and result.stderr == (
        f"gpt2ctl: {path}: Permission denied\n{advice}")


@pytest.mark.parametrize("code, exit", [(-32700, 1), (-32600, 1), (-32601, 8), (-32602, 2), (-32603, 11), (-32002, 2),
    (-32003, 7), (-32004, 9), (-32005, 10), (-32006, 10), (-32007, 7), (-32008, 12), (-32009, 2)])
def test_exit_of_refusals(path, code, exit):
    def show(params, connection):
        raise Refused(code, "the reason\x1b[31m")
    with FakeDaemon(path, show=show):
        result = ctl("show", 3, path=path)
    assert result.returncode == exit
    assert "the reason?[31m" in result.stderr


def test_daemon_dies_before_the_reply(path):
    with FakeDaemon(path, status=lambda params, connection: connection.close()):
        result = ctl("status", path=path)
    assert result.returncode == 1
    assert "closed the connection" in result.stderr


def test_what_is_wrong_does_not_drive_the_terminal(path, tmp_path):
    bad = tmp_path / "a\033[31m.json"
    bad.write_text("{")
    for words in (["submit", tmp_path / "none\033[31m"], ["submit", bad], ["show", "\033[31m"], ["--\033[31m"], ["sta\033[31m"],
            ["submit", bad, "--set", "\033[31m"], ["data", "prepare", "-o", "x", tmp_path / "\033[31m"], ["help", "\033[31m"]):
        result = ctl(*words, path=path)
        assert result.returncode != 0 and "\033" not in result.stderr and "?[31m" in result.stderr, (words, result)
