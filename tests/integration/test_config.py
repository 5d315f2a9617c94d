"""gpt2d.conf: settings, errors, precedence, and default paths."""

import grp
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from helpers import BUILD, ROOT, RpcError, spec

GPT2D = BUILD / "daemon" / "gpt2d"


def run(*words, conf=None, user=None, cwd=None, **environment):
    environment = {"PATH": os.environ["PATH"], **{k: str(v) for k, v in environment.items()}}
    options = ("-c", conf) if conf else ()
    return subprocess.run([GPT2D, *options, *words], capture_output=True, text=True, timeout=60, check=False,
        env=environment, user=user, cwd=cwd)


def write(tmp_path, text, mode=0o600):
    path = tmp_path / "gpt2d.conf"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return path


def settings(text):
    """What -nv printed, as a dictionary."""
    return dict(line.split(" = ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_all_errors_at_once(tmp_path):
    conf = write(tmp_path, """rank = 4
ranks = 4 5
ranks = 5
alive_timeout = 1
client_buffer = 1MB
client_buffer = 2MiB # what was given first counts
threads
= 5
socket_group = no-such-group
data_roots = /a "b c"
log_level = "inf
log_file = "a b"c
socket_mode = 0999
device = gpu
clients# = 5
start-timeout = 5s
check_timeout =
cancel_timeout = 99999999999999999999
progress_timeout = 10 parsecs
""" + "x" * 5000 + " = 1\nstate_dir = a\0b\n")
    shown = run("-n", conf=conf)
    assert shown.returncode == 2 and shown.stdout == ""
    expected = [
        '1: rank: no such setting, the nearest is "ranks"',
        '2: ranks: one value is expected, "5" is a second one',
        "3: ranks: given twice, first in line 2",
        '4: alive_timeout: "1", a time from 2s to 86400s is expected (in s, min, h, d)',
        '5: client_buffer: "1MB", a size from 4KiB to 1GiB is expected (in B, KiB, MiB, GiB, TiB)',
        "6: client_buffer: given twice, first in line 5",
        '7: "threads": NAME = VALUE is expected',
        '8: "=": NAME = VALUE is expected',
        '9: socket_group: "no-such-group": no such group (groupadd makes one)',
        '10: data_roots: "b c": an absolute path is expected',
        "11: log_level: a quote is not closed",
        "12: log_file: a blank is expected after a quote",
        '13: socket_mode: "0999", an octal mode from 0600 to 0777 is expected',
        '14: device: "gpu", cpu, cuda or auto is expected',
        '15: "clients": NAME = VALUE is expected',
        '16: start-timeout: no such setting, the nearest is "start_timeout"',
        "17: check_timeout: a value is missing",
        '18: cancel_timeout: "99999999999999999999", a time from 1s to 86400s is expected (in s, min, h, d)',
        '19: progress_timeout: "10 parsecs", a time from 1s to 604800s is expected',
        f"20: {'x' * 64}: no such setting; gpt2d --help lists them",
        "21: a NUL byte",
    ]
    lines = [line.removeprefix(f"gpt2d: {conf}:") for line in shown.stderr.splitlines()]
    expected[18] = '19: progress_timeout: one value is expected, "parsecs" is a second one; a unit (s, min, h, d) follows its number without a blank'
    assert lines == expected
    conf = write(tmp_path, '"ranks" = 2\nadmin_group = ""\nstart_timeout = 10 min\nclient_buffer = 1 MiB\n')
    assert run("-n", conf=conf).stderr.splitlines() == [
        f'gpt2d: {conf}:1: "ranks": no such setting, the nearest is "ranks"',
        f'gpt2d: {conf}:2: admin_group: "": the name of a group is expected',
        f'gpt2d: {conf}:3: start_timeout: one value is expected, "min" is a second one; a unit (s, min, h, d) follows its number '
        "without a blank",
        f'gpt2d: {conf}:4: client_buffer: one value is expected, "MiB" is a second one; a unit (B, KiB, MiB, GiB, TiB) follows its '
        "number without a blank"]


def test_control_characters(tmp_path):
    """None in a path, which would break lines of the log; none of what is wrong gets to the terminal."""
    for option, name in (("--socket", "socket"), ("--state-dir", "state_dir"), ("--log-file", "log_file")):
        refused = run("-n", option, "/tmp/a\nb")
        assert refused.returncode == 2
        assert refused.stderr == f"gpt2d: {name}: the path has a control character\n"
    conf = write(tmp_path, "state_dir = /tmp/\033[31mred\n")
    assert "state_dir: the path has a control character" in run("-n", conf=conf).stderr
    for words in (["-n", "--log-level", "\033[31m"], ["--\033[31m"], ["-c", "/none/\033[31m", "-n"]):
        refused = run(*words)
        assert refused.returncode == 2 and "\033" not in refused.stderr and "?[31m" in refused.stderr, refused


def test_paths_of_the_file_are_absolute(tmp_path):
    """They would be others wherever gpt2d is started; a ~ would be a folder of that name."""
    conf = write(tmp_path, 'state_dir = ~/x\nsocket = s\nlog_file = log\nmetrics_file = "m.prom"\nengine = ./e\n')
    shown = run("-n", conf=conf, HOME=tmp_path)
    assert shown.returncode == 2 and shown.stderr.splitlines() == [
        f'gpt2d: {conf}:1: state_dir: "~/x": an absolute path is expected; gpt2d does not expand ~',
        f'gpt2d: {conf}:2: socket: "s": an absolute path is expected',
        f'gpt2d: {conf}:3: log_file: "log": an absolute path, stderr or journal is expected',
        f'gpt2d: {conf}:4: metrics_file: "m.prom": an absolute path is expected',
        f'gpt2d: {conf}:5: engine: "./e": an absolute path is expected']
    for word in ("stderr", "journal"):
        assert settings(run("-nv", conf=write(tmp_path, f"log_file = {word}\n")).stdout)["log_file"] == word


def test_words_that_mean_nothing(tmp_path):
    for words, says in (
            (("--json",), "--json: needs --check"), (("-n", "--json"), "--json: needs --check"),
            (("-nx",), "-nx: no such option; see: gpt2d --help"), (("-c",), "-c: FILE is needed"),
            (("--config=", "-n"), ": No such file or directory"), (("--ranks=", "-n"), 'ranks: "", an integer from 1 to 1024 is expected'),
            (("--socket_group", "x"), "--socket_group: no such option; did you mean --socket-group?"),
            (("--check", "--json", "-n"), "--check: cannot be combined with --test"),
            (("-n", "--check"), "--check: cannot be combined with --test"),
            (("--", "-n"), "-n: an option (--name) is expected"), (("--check=1",), "--check=1: takes no value")):
        refused = run(*words)
        assert refused.returncode == 2 and refused.stderr == f"gpt2d: {says}\n", words
    assert run("-c/dev/null", "-nv").stdout == run("--config=/dev/null", "--test", "--verbose").stdout != ""


def test_paths_of_options_may_be_relative(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    shown = subprocess.run([GPT2D, "-c", "/dev/null", "--data-roots", "a", "--data-roots=b", "--state-dir", "s",
        "--socket", "k", "-nv"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    here = os.path.realpath(tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert f"data_roots = {here}/a {here}/b\n" in shown.stdout and f"state_dir = {here}/s\n" in shown.stdout


def test_all_errors_of_options_at_once():
    shown = run("-n", "--ranks=0", "--threads=-1", "--clients", "1e3", conf="/dev/null")
    assert shown.returncode == 2 and [line.split(",")[0] for line in shown.stderr.splitlines()] == [
        'gpt2d: ranks: "0"', 'gpt2d: threads: "-1"', 'gpt2d: clients: "1e3"']


def test_output_that_cannot_be_written(tmp_path):
    for words in (("--help",), ("--version",), ("-n",), ("-nv",), ("--check", "--state-dir", tmp_path / "state", "--socket", tmp_path / "s")):
        with open("/dev/full", "w") as full:
            done = subprocess.run([GPT2D, "-c", "/dev/null", *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (1, "gpt2d: standard output: No space left on device\n"), words


def test_a_daemon_does_not_start_with_a_wrong_file(tmp_path):
    conf = write(tmp_path, "ranks = 0\n")
    refused = run("--state-dir", tmp_path / "state", "--socket", tmp_path / "s", conf=conf)
    assert refused.returncode == 2 and "gpt2d.conf:1: ranks: " in refused.stderr
    assert not (tmp_path / "state").exists()


def test_units_and_canonical_form(tmp_path):
    conf = write(tmp_path, """
  # a comment
socket="/tmp/a b/s#1"      # quoted
state_dir = "/tmp/\\"q\\"\\\\" \r
data_roots = /a "/b c" /d# and no more
alive_timeout = 2min
progress_timeout = 1d
start_timeout = 1h
cancel_timeout = 90
client_buffer = 64KiB
socket_mode = 660
ranks = 3""")
    shown = run("-nv", conf=conf)
    assert shown.returncode == 0, shown.stderr
    found = settings(shown.stdout)
    assert found["socket"] == '"/tmp/a b/s#1"' and found["state_dir"] == '"/tmp/\\"q\\"\\\\"'
    assert found["data_roots"] == '/a "/b c" /d' and found["client_buffer"] == "64KiB"
    assert [found[f"{name}_timeout"] for name in ("alive", "progress", "start", "cancel", "check")] == \
        ["120s", "86400s", "3600s", "90s", "120s"]
    assert found["socket_mode"] == "0660" and found["ranks"] == "3"
    again = run("-nv", conf=write(tmp_path, shown.stdout))
    assert again.returncode == 0 and again.stdout == shown.stdout


def test_what_is_in_force_is_printed_where_nothing_says_it(tmp_path):
    """The default paths of a service, or of a user's own daemon, are values of -nv; they stay in another environment."""
    places = {"RUNTIME_DIRECTORY": tmp_path / "run/gpt2d:/other", "STATE_DIRECTORY": tmp_path / "state"}
    shown = run("-nv", conf="/dev/null", **places)
    found = settings(shown.stdout)
    assert found["socket"] == f"{tmp_path}/run/gpt2d/gpt2d.sock" and found["state_dir"] == f"{tmp_path}/state"
    assert found["device"] == "cpu" and found["socket_mode"] == "0600" and found["log_file"] == "stderr"
    assert shown.stdout.startswith("# /dev/null\n") and "\n# engine, as found now: /" in shown.stdout and "engine" not in found
    conf = write(tmp_path, shown.stdout)
    assert settings(run("-nv", conf=conf).stdout) == found
    group = grp.getgrall()[0].gr_name
    assert settings(run("-nv", "--socket-group", group, conf="/dev/null").stdout)["socket_mode"] == "0660"
    shown = run("-nv", "--log-file", "a b/log", "--metrics-file", "m.prom", "--state-dir", "s", "--socket", "x/y", conf="/dev/null",
        cwd=tmp_path)
    found = settings(shown.stdout)
    assert found["log_file"] == f'"{tmp_path}/a b/log"' and found["metrics_file"] == f"{tmp_path}/m.prom"
    assert found["state_dir"] == f"{tmp_path}/s" and found["socket"] == f"{tmp_path}/x/y"
    assert settings(run("-nv", "--log-file", "journal", conf="/dev/null").stdout)["log_file"] == "journal"


def test_options_come_over_the_environment_over_the_file(tmp_path):
    conf = write(tmp_path, "socket = /file\nranks = 2\ndata_roots = /a /b\n")
    assert settings(run("-nv", conf=conf).stdout)["socket"] == "/file"
    found = settings(run("-nv", conf=conf, GPT2D_SOCKET="/environment").stdout)
    assert found["socket"] == "/environment" and found["ranks"] == "2" and found["data_roots"] == "/a /b"
    found = settings(run("-nv", "--socket=/option", "--data-roots", "/c", "--data-roots", "/d", "--ranks", "4",
        conf=conf, GPT2D_SOCKET="/environment").stdout)
    assert found["socket"] == "/option" and found["ranks"] == "4" and found["data_roots"] == "/c /d"
    # of one given twice the last counts, though the first must be right as well
    found = settings(run("-nv", "--ranks", "4", "--socket", "/first", "--ranks=8", "--socket", "/last", conf=conf).stdout)
    assert found["ranks"] == "8" and found["socket"] == "/last"
    (tmp_path / "other").mkdir()
    other = write(tmp_path / "other", "ranks = 16\n")
    assert settings(run("-nv", "-c", conf, "-c", other).stdout)["ranks"] == "16"
    refused = run("-n", "--ranks", "0", "--ranks", "8", conf=conf)
    assert refused.returncode == 2 and "ranks: " in refused.stderr


def test_whose_file_it_is(tmp_path):
    for mode in (0o620, 0o602, 0o666):
        refused = run("-n", conf=write(tmp_path, "ranks = 2\n", mode))
        assert refused.returncode == 2 and f"others can write to it (mode {mode:04o}): chmod go-w" in refused.stderr
    assert run("-n", conf=write(tmp_path, "ranks = 2\n", 0o644)).returncode == 0
    refused = run("-n", conf=tmp_path)
    assert refused.returncode == 2 and "is not a regular file" in refused.stderr
    refused = run("-n", conf=tmp_path / "none")
    assert refused.returncode == 2 and refused.stderr == f"gpt2d: {tmp_path}/none: No such file or directory\n"
    refused = run("-n", conf=write(tmp_path, "#" * (1 << 20) + "\n"))
    assert refused.returncode == 2 and "1048577 bytes, at most 1048576 are read" in refused.stderr
    assert run("-n", conf="/dev/null").returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to somebody else")
def test_a_file_of_somebody_else(tmp_path):
    conf = write(tmp_path, "ranks = 2\n", 0o644)
    os.chown(conf, 65534, 65534)
    refused = run("-n", conf=conf)
    assert refused.returncode == 2 and "belongs to uid 65534 (expected root or uid 0)" in refused.stderr


def test_files_beside_the_standard_one(tmp_path):
    """gpt2d.conf.d/*.conf, in the order of their names: the last one counts, whole settings at a time."""
    folder = tmp_path / "gpt2d.conf.d"
    folder.mkdir()
    conf = write(tmp_path, "ranks = 2\nthreads = 3\ndata_roots = /a /b\n")
    (folder / "20-b.conf").write_text("ranks = 5\n")
    (folder / "10-a.conf").write_text("ranks = 4\ndata_roots = /c\n")
    (folder / "30-c.txt").write_text("no setting\n")
    service = {"CONFIGURATION_DIRECTORY": tmp_path, "STATE_DIRECTORY": tmp_path / "state", "RUNTIME_DIRECTORY": tmp_path}
    shown = run("-nv", **service).stdout
    found = settings(shown)
    assert (found["ranks"], found["threads"], found["data_roots"]) == ("5", "3", "/c")
    assert shown.startswith(f"# {conf}, {folder}/10-a.conf, {folder}/20-b.conf\n")
    assert settings(run("-nv", conf=conf, **service).stdout)["ranks"] == "2"
    (folder / "20-b.conf").write_text("ranks = 5\n\nranks = 6\nrank = 1\ndevice = auto\n")
    refused = run("-n", **service)
    assert refused.returncode == 2 and [line.removeprefix(f"gpt2d: {folder}/20-b.conf:") for line in refused.stderr.splitlines()] == [
        "3: ranks: given twice, first in line 1", '4: rank: no such setting, the nearest is "ranks"']
    (folder / "20-b.conf").write_text("\ndevice = auto\n")
    assert f"gpt2d: {folder}/20-b.conf:2: device: auto is for a user's own daemon" in run("-n", **service).stderr
    conf.unlink()
    (folder / "20-b.conf").unlink()
    assert settings(run("-nv", **service).stdout)["ranks"] == "4"


def test_the_example_is_the_table(tmp_path):
    shown = subprocess.run([BUILD / "daemon" / "gpt2d-settings-docs", "example"], capture_output=True, text=True,
        timeout=60, check=True).stdout
    assert (ROOT / "etc/gpt2d.conf").read_text() == shown, "`ninja -C build example-conf` writes it"
    found = settings(run("-nv", conf=write(tmp_path, shown)).stdout)
    standard = settings(run("-nv", conf="/dev/null").stdout)
    assert found == {**standard, "device": "cuda"}
    # every commented line is valid too, except for groups, a key and an engine that do not exist
    lines = [line.removeprefix("#") for line in shown.splitlines() if " = " in line and not line.startswith("# ")]
    lines = [line for line in lines if not re.search("_group|^key_file|^listen|^join|^engine|^device", line)]
    assert len(lines) > 15
    tested = run("-n", conf=write(tmp_path, "\n".join(lines)))
    others = [line for line in tested.stderr.splitlines() if "warning: " not in line and "Permission denied" not in line]
    assert tested.returncode == 0 or (os.geteuid() != 0 and others == []), tested


def test_places_of_ones_own():
    """Not root's: below the XDG folders. An error of an existing file shows that it was found."""
    with tempfile.TemporaryDirectory(prefix="gpt2d-") as home:
        os.chmod(home, 0o755)
        places_of_ones_own(Path(home))


def places_of_ones_own(tmp_path):
    user = 65534 if os.geteuid() == 0 else None
    for folder in ("run", "state", "config/gpt2d", ".config/gpt2d"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "config/gpt2d/gpt2d.conf").write_text("x = 1\n")
    (tmp_path / ".config/gpt2d/gpt2d.conf").write_text("y = 1\n")
    for environment, name in (({"XDG_CONFIG_HOME": tmp_path / "config"}, "x"), ({}, "y")):
        shown = run("-n", user=user, HOME=tmp_path, **environment)
        if "Permission denied" in shown.stderr:
            pytest.skip("the build cannot be reached by another user")
        assert shown.returncode == 2
        if user:
            assert "belongs to uid" in shown.stderr or f": {name}: no such setting" in shown.stderr
        else:
            assert f":1: {name}: no such setting" in shown.stderr
    shown = run("-nv", conf="/dev/null", user=user, HOME=tmp_path, XDG_RUNTIME_DIR=tmp_path / "run", XDG_STATE_HOME="relative")
    found = settings(shown.stdout)
    assert found["socket"] == f"{tmp_path}/run/gpt2d/gpt2d.sock"
    assert found["state_dir"] == f"{tmp_path}/.local/state/gpt2d" and found["device"] == "auto"
    found = settings(run("-nv", conf="/dev/null", user=user, HOME="/h", XDG_STATE_HOME="/x").stdout)
    assert found["state_dir"] == "/x/gpt2d" and "socket" not in found
    for name, what in (("XDG_RUNTIME_DIR", "socket"), ("XDG_STATE_HOME", "state_dir")):
        said = run("-n", conf="/dev/null", user=user, **{name: "rel"}).stderr
        assert f"{what}: no default path: " in said and f'; {name} is "rel", an absolute path is expected\n' in said
        assert "absolute" not in run("-n", conf="/dev/null", user=user, **{name: ""}).stderr


def test_device(tmp_path):
    """gpt2d never chooses another device silently."""
    if not os.path.exists("/dev/nvidia0"):
        refused = run("--device", "cuda", "--state-dir", tmp_path / "state", "--socket", tmp_path / "s",
            conf="/dev/null")
        assert refused.returncode == 2
        assert refused.stderr.startswith("gpt2d: device: cuda: no ")
        assert "or device = cpu trains on the processors" in refused.stderr
        assert not (tmp_path / "state").exists()
        conf = write(tmp_path, f"ranks = 1\ndevice = cuda\nstate_dir = {tmp_path}/state\nsocket = {tmp_path}/s\n")
        assert run(conf=conf).stderr == refused.stderr.replace("gpt2d: ", f"gpt2d: {conf}:2: ", 1)
    if os.geteuid() == 0:
        refused = run("-n", "--device", "auto", conf="/dev/null")
        assert refused.returncode == 2 and "auto is for a user's own daemon" in refused.stderr
    refused = run("-n", "--device", "auto", conf="/dev/null", STATE_DIRECTORY="/var/lib/gpt2d")
    assert refused.returncode == 2 and "auto is for a user's own daemon" in refused.stderr


def test_an_engine_that_does_not_exist(tmp_path):
    """-n and the start report its line."""
    conf = write(tmp_path, f"state_dir = {tmp_path}/state\nengine = {tmp_path}/none\nsocket = {tmp_path}/s\n")
    for words in ((), ("-n",)):
        refused = run(*words, conf=conf)
        assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", f"gpt2d: {conf}:2: engine: {tmp_path}/none: No such file or directory\n")
    if not (BUILD / "engine/gpt2-engine-cuda").exists():
        refused = run("-n", conf=write(tmp_path, "device = cuda\n"))
        assert refused.returncode == 2 and f"{conf}:1: device: cuda: no gpt2-engine-cuda beside " in refused.stderr


def test_settings_that_contradict_each_other_name_their_line(tmp_path):
    conf = write(tmp_path, "# a comment\ndevice = auto\nsocket_group = root\nsocket_mode = 0600\n")
    refused = run("-n", conf=conf, STATE_DIRECTORY="/var/lib/gpt2d")
    assert refused.returncode == 2
    assert f"gpt2d: {conf}:2: device: auto is for" in refused.stderr
    assert f"gpt2d: {conf}:4: socket_mode: 0600 denies access" in refused.stderr


def test_a_daemon_with_a_file(daemon, tmp_path):
    conf = write(tmp_path, "clients_per_user = 3\nranks = 2\n")
    with daemon(config=conf) as d, d.client() as c:
        assert c.greeting["ranks"] == 1  # the option
        assert c.wait(c.submit(spec("conf")))["state"] == "done"
        engine = c.call("status")["engine"]
        assert engine["device"] == "engine" and engine["device_why"] is None
        with d.client(), d.client(), pytest.raises((RpcError, EOFError, OSError)):
            d.client()


def test_options():
    shown = run("--help")
    assert shown.returncode == 0 and "--alive-timeout  2s to 86400s" in shown.stdout
    assert run("--version").stdout.startswith("gpt2d 0.1.0 (")
    for arguments, says in (
            (("--rankz", "2"), "--rankz: no such option; did you mean --ranks?"),
            (("--ranks", "0"), 'ranks: "0", an integer from 1 to 1024 is expected'),
            (("--threads", "1025"), 'threads: "1025", an integer from 0 to 1024 is expected'),
            (("--ranks", "2x"), 'ranks: "2x", an integer'),
            (("--ranks",), "--ranks: a value is needed"),
            (("--verbose=1",), "--verbose=1: takes no value"),
            (("x",), "x: an option (--name) is expected"),
            (("--engine", "/nowhere/engine"), "engine: /nowhere/engine: No such file or directory"),
            (("--engine", "/tmp"), "engine: /tmp: Is a directory")):
        refused = run(*arguments)
        assert refused.returncode == 2 and refused.stderr.startswith("gpt2d: " + says), refused.stderr


def test_a_place_that_cannot_be(tmp_path):
    """The error has the line, the problem and the expected value; nothing is created."""
    (tmp_path / "file").touch()
    (tmp_path / "to-nowhere").symlink_to(tmp_path / "none")
    needed = "expected a writable folder, or a path where gpt2d can create one"
    for value, why in (
            (f"{tmp_path}/file", "Not a directory"),
            (f"{tmp_path}/file/a/b", f"cannot be created: {tmp_path}/file: Not a directory"),
            (f"{tmp_path}/to-nowhere/a", f"cannot be created: {tmp_path}/to-nowhere: No such file or directory")):
        conf = write(tmp_path, f"ranks = 2\nstate_dir = {value}\n")
        before = sorted(tmp_path.rglob("*"))
        reported = f"state_dir: {value}: {why}; {needed}\n"
        refused = run("-n", conf=conf)
        assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", f"gpt2d: {conf}:2: {reported}")
        refused = run("-n", "--state-dir", value, conf="/dev/null")
        assert (refused.returncode, refused.stderr) == (2, f"gpt2d: {reported}")
        assert sorted(tmp_path.rglob("*")) == before
    assert run("-n", conf=write(tmp_path, f"state_dir = {tmp_path}/a/b/c\n")).returncode == 0
    assert not (tmp_path / "a").exists()


def test_no_place_of_ones_own():
    """The settings may be valid although a default path is missing: a warning says so."""
    user = 65534 if os.geteuid() == 0 else None
    try:
        reported = subprocess.run([BUILD / "daemon" / "gpt2d", "-n"], capture_output=True, text=True, timeout=60, user=user,
            env={"PATH": os.environ["PATH"]}, check=False)
    except PermissionError:
        pytest.skip("the build cannot be reached by another user")
    assert reported.returncode == 0 and reported.stdout == "no file; the settings are valid\n", reported
    assert "warning: socket: no default path: give --socket" in reported.stderr
    assert "warning: state_dir: no default path: give --state-dir" in reported.stderr
    given = subprocess.run([BUILD / "daemon" / "gpt2d", "-n"], capture_output=True, text=True, timeout=60, user=user,
        env={"PATH": os.environ["PATH"], "HOME": "/home", "XDG_RUNTIME_DIR": "/run"}, check=False)
    assert given.returncode == 0 and "no default path" not in given.stderr
