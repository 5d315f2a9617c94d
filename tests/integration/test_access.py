"""Who may connect, and who may do what: the socket's mode and group, roles, two real users (case H4)."""

import grp
import json
import os
import pwd
import re
import shutil
import socket
import stat
import subprocess
import threading

import pytest

from faults import KILL, LIBRARY, LISTEN, OWNER, Faults
from helpers import BUILD, FAKE_ENGINE, ROOT, Daemon, refusal, spec, wait_for

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")
ONE, TWO = 61001, 61002  # uids of nobody in particular

CLIENT = """
import json, socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(60)
s.connect(sys.argv[1])
f = s.makefile("rwb")
def ask(id, method, params):
    f.write(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\\n")
    f.flush()
    return json.loads(f.readline())
ask(1, "hello", {"protocol": 1})
print(json.dumps([ask(2 + i, *q) for i, q in enumerate(json.loads(sys.argv[2]))]))
"""


def as_user(path, uid, *questions, groups=(), gid=65534):
    """The replies to [method, params]... as another user, or why the socket cannot be reached."""
    for _, params in questions:
        if isinstance(params.get("spec"), dict):
            params["spec"] = json.dumps(params["spec"])
    done = subprocess.run(["/usr/bin/env", "python3", "-I", "-c", CLIENT, str(path), json.dumps(questions)],
        capture_output=True, text=True, timeout=120, user=uid, group=gid, extra_groups=groups, check=False,
        env={"PATH": "/usr/bin:/bin"}, cwd="/")
    if done.returncode != 0:
        assert "PermissionError" in done.stderr or "ConnectionRefusedError" in done.stderr, done.stderr
        return done.stderr.splitlines()[-1].split(":")[0]
    return json.loads(done.stdout)


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def a_group():
    """Some group that is not root's: name and gid."""
    return next((g.gr_name, g.gr_gid) for g in grp.getgrall() if g.gr_gid not in (0, 65534))


def test_the_owner_only_unless_said(home):
    os.chmod(home, 0o755)
    before = os.umask(0)
    try:
        with Daemon(home=home) as d:
            assert mode(d.socket) == 0o600 and mode(d.socket.parent) == 0o700
            assert mode(d.state) == 0o700 and mode(d.state / "gpt2d.db") & 0o077 == 0
    finally:
        os.umask(before)


@ROOT_ONLY
def test_mode_and_group(home):
    name, gid = a_group()
    with Daemon(home=home, options=("--socket-group", name)) as d:
        assert mode(d.socket) == 0o660 and os.stat(d.socket).st_gid == gid
        assert mode(d.socket.parent) == 0o710 and os.stat(d.socket.parent).st_gid == gid
        assert as_user(d.socket, ONE, ["status", {}], groups=[gid])[0]["result"]["daemon"]["state"] == "running"
        assert as_user(d.socket, ONE, ["status", {}]) == "PermissionError"


@pytest.mark.parametrize("who", [ONE, 65534], ids=["no name", "nobody"])
def test_group_that_cannot_be_given(home, who):
    """gpt2d does not start with another group than the requested one; root, who may set any, starts it as an unprivileged user."""
    mine = {65534} if os.geteuid() == 0 else {*os.getgroups(), os.getegid()}
    name = next(g.gr_name for g in grp.getgrall() if g.gr_gid not in mine)
    engine, own = home / "engine", home / "own"
    shutil.copy(BUILD / "daemon" / "gpt2d", home)  # where it was built others may not come
    engine.write_text("#!/bin/sh\nexit 1\n")
    engine.chmod(0o755)
    own.mkdir()
    user = {}
    if os.geteuid() == 0:
        os.chown(own, who, 65534)
        user = {"user": who, "group": 65534, "extra_groups": []}
    gid, uid = grp.getgrnam(name).gr_gid, user.get("user", os.geteuid())
    for more, status in (([], 2), (["-n"], 2), (["--check"], 1)):
        done = subprocess.run([home / "gpt2d", "-c", "/dev/null", "--socket", own / "run/gpt2d.sock", "--state-dir",
            own / "state", "--engine", engine, "--socket-group", name, *more], capture_output=True, text=True,
            timeout=60, check=False, cwd="/", **user)
        said = done.stdout + done.stderr
        assert done.returncode == status and f"socket_group: {name}: uid {uid} is not a member (gid {gid})" in said, done
    try:
        line = f"usermod -aG {name} {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        line = f"usermod -aG {name} USER"
    assert f"; as root: {line}; or set socket_group" in said
    assert not (own / "run/gpt2d.sock").exists()


def access_options():
    """Options that widen access to the socket, with the expected gid."""
    if os.geteuid() != 0:
        return ("--socket-mode", "0660"), os.getegid()
    name, gid = a_group()
    return ("--socket-group", name), gid


@pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
def test_mode_and_group_come_before_anybody_can_connect(home):
    """Killed at each call before it listens: clients never meet a wider mode."""
    faults = Faults(home, under=home / "run")
    options, gid = access_options()
    (home / "run").mkdir(mode=0o711)
    before = os.umask(0)
    try:
        for ops, found in ((OWNER, (0o600, os.getegid())), (LISTEN, (0o660, gid))):
            faults.daemon.arm(KILL, ops=ops)
            d = Daemon(home=home, environment=faults.environment, options=options, ready=False)
            assert d.process.wait(60) == -9, d.said()
            assert (mode(d.socket), os.stat(d.socket).st_gid) == found
        faults.daemon.disarm()
        d.start()
        assert (mode(d.socket), os.stat(d.socket).st_gid) == (0o660, gid)
        assert d.stop() == 0
    finally:
        os.umask(before)


def test_a_folder_that_everybody_writes_to(home):
    (home / "run").mkdir()
    (home / "run").chmod(0o777)
    d = Daemon(home=home, ready=False)
    assert d.process.wait(60) == 1
    assert "everybody can write to its folder (mode 0777): chmod o-w" in d.process.stderr.read()
    (home / "run").chmod(0o1777)  # as /tmp
    d.start()
    d.stop()


@ROOT_ONLY
def test_two_users(home):
    """A run belongs to its owner; the daemon belongs to the admins."""
    name, gid = a_group()
    with Daemon(home=home, options=("--socket-mode", "0666", "--admin-group", name)) as d, d.client() as c:
        first = as_user(d.socket, ONE, ["submit", {"spec": spec("one-ms20", 100000)}])[0]["result"]["id"]
        second = as_user(d.socket, TWO, ["submit", {"spec": spec("two")}])[0]["result"]["id"]
        assert [run["uid"] for run in c.call("list")["runs"]] == [ONE, TWO]
        refused = as_user(d.socket, TWO, ["cancel", {"id": first}], ["shutdown", {"now": True}])
        assert [r["error"]["code"] for r in refused] == [-32004, -32004]
        assert "admin_group" in refused[1]["error"]["message"]
        assert c.state(first) in ("queued", "starting", "running")
        # own ones
        assert as_user(d.socket, TWO, ["cancel", {"id": second}])[0]["result"]["id"] == second
        # others', by the group: the first one, or a further one
        third = as_user(d.socket, TWO, ["submit", {"spec": spec("three")}])[0]["result"]["id"]
        assert "error" in as_user(d.socket, ONE, ["cancel", {"id": third}])[0]
        assert "result" in as_user(d.socket, ONE, ["cancel", {"id": third}], groups=[gid])[0]
        assert "result" in as_user(d.socket, TWO, ["cancel", {"id": first}], gid=gid)[0]
        assert c.wait(first)["state"] == "cancelled"
        # an ended run still belongs to its owner
        assert as_user(d.socket, TWO, ["cancel", {"id": first}])[0]["error"]["code"] == -32004
        assert "result" in as_user(d.socket, TWO, ["shutdown", {"now": True}], groups=[gid])[0]
        assert d.process.wait(60) == 0


def verbs():
    """{request: role} of the table of requests."""
    text = (ROOT / "daemon/command.c").read_text()
    table = text[text.index("static const struct verb verbs[]"):text.index("enum { VERBS =")]
    names = dict(re.findall(r'#define METHOD_(\w+)\s+"([^"]+)"', (ROOT / "proto/protocol.h").read_text()))
    found = {names[name]: role for name, role in re.findall(r"\{METHOD_(\w+), \w+, ROLE_(\w+)(?:, true)?\}", table)}
    assert len(found) == table.count("{METHOD_") == len(names)
    return found


def test_every_request_has_a_role():
    admins = {"drain", "resume", "shutdown"}
    members = {"release", "warm"}
    owners = {"cancel", "priority", "keep", "prune"}
    assert {name: role for name, role in verbs().items() if role != "ANYBODY"} == \
        {**dict.fromkeys(admins, "ADMIN"), **dict.fromkeys(members, "MEMBER"), **dict.fromkeys(owners, "OWNER")}


@ROOT_ONLY
def test_a_colleague_releases_the_gpus(home):
    """Members of socket_group share the GPUs, but may not interrupt runs of others."""
    name, gid = a_group()
    with Daemon(home=home, options=("--socket-group", name, "--socket-mode", "0666")) as d, d.client() as c:
        for reply in as_user(d.socket, ONE, ["release", {}], ["warm", {}]):
            assert reply["error"]["code"] == -32004 and "members of socket_group or admin_group may" in reply["error"]["message"]
        run = as_user(d.socket, ONE, ["submit", {"spec": spec("one-ms20", 100000)}])[0]["result"]["id"]
        wait_for(lambda: c.state(run) == "running", "a run in progress")
        reply, = as_user(d.socket, TWO, ["release", {"now": True}], groups=[gid])
        assert f"would interrupt run {run} of uid {ONE}" in reply["error"]["message"]
        assert "result" in as_user(d.socket, TWO, ["release", {}], groups=[gid])[0]
        assert c.call("status")["released"]["uid"] == TWO and c.state(run) == "running"
        assert "result" in as_user(d.socket, ONE, ["release", {"now": True, "wait": True}], groups=[gid])[0]
        assert c.state(run) == "interrupted"
        assert "result" in as_user(d.socket, TWO, ["warm", {"wait": True}], groups=[gid])[0]
        assert c.call("status")["engine"]["state"] == "ready"


@ROOT_ONLY
def test_requests_of_others(home):
    """Admin requests are refused to all others, owner requests to other users."""
    with Daemon(home=home, options=("--socket-mode", "0666")) as d, d.client() as c:
        run = as_user(d.socket, ONE, ["submit", {"spec": spec("one-ms20", 100000)}])[0]["result"]["id"]
        admins = [name for name, role in verbs().items() if role == "ADMIN"]
        for reply in as_user(d.socket, TWO, *([name, {}] for name in admins)):
            assert reply["error"]["code"] == -32004 and "admin_group may" in reply["error"]["message"]
        for reply in as_user(d.socket, TWO, ["cancel", {"id": run}], ["priority", {"id": run, "priority": 1}],
                ["keep", {"id": run, "kept": True}]):
            assert reply["error"]["code"] == -32004, reply
        assert "result" in as_user(d.socket, ONE, ["cancel", {"id": run}])[0]
        assert c.wait(run)["state"] == "cancelled"
        as_user(d.socket, TWO, ["prune", {"keep": 0}])  # its own, of which there are none
        assert c.state(run) == "cancelled"
        as_user(d.socket, ONE, ["prune", {"keep": 0}])
        wait_for(lambda: c.call("list")["runs"] == [], "a pruned run")


@ROOT_ONLY
def test_clients_of_one_user_do_not_shut_out_another(home):
    with Daemon(home=home, options=("--socket-mode", "0666", "--clients-per-user", "2")) as d:
        with d.client(), d.client():
            assert not d.accepts()
            assert "result" in as_user(d.socket, ONE, ["status", {}])[0]


def test_data_that_is_led_elsewhere_after_the_check(tmp_path):
    """The engine checks the file that it opens: a link that changed after the submission leads nowhere."""
    data, secret = tmp_path / "data", tmp_path / "secret"
    data.mkdir()
    for path in (data / "ok.bin", secret):
        path.write_bytes(b"".join(bytes((token, 0)) for token in range(100)) * 100)
    link = data / "link.bin"
    link.symlink_to(data / "ok.bin")
    with Daemon(engine=BUILD / "engine/gpt2-engine-cpu", options=("--data-roots", str(data))) as d, d.client() as c:
        good = {"kind": "file", "train": str(link)}
        assert c.wait(c.submit(spec("good", 1, data=good)))["state"] == "done"
        first = c.submit(spec("long", 1000000))
        second = c.submit(spec("led", 1, data=good))
        link.unlink()
        link.symlink_to(secret)
        refused = refusal(c.submit, spec("late", 1, data=good))
        assert f"{link} is not below a data root of gpt2d ({data}), or does not exist" in refused.message
        c.call("cancel", id=first)
        end = c.wait(second)
        assert end["state"] == "failed" and f"{link} is not below a data root of gpt2d ({data})" in end["reason"]
        refused = refusal(c.submit, spec("none", 1, data={"kind": "file", "train": str(data / "none.bin")}))
        assert f"none.bin is not below a data root of gpt2d ({data}), or does not exist" in refused.message


@pytest.fixture
def secret(home):
    """A file that only gpt2d's user may read, and one that all may read, both valid."""
    (home / "open").mkdir()
    (home / "open").chmod(0o755)
    (home / "closed").mkdir(mode=0o700)
    for folder in ("open", "closed"):
        path = home / folder / "tokens.bin"
        path.write_bytes(b"".join(bytes((token, 0)) for token in range(100)) * 100)
        path.chmod(0o644)
    return home / "closed"


def refused_for(d, path, uid=ONE, name="steals"):
    """The error of a submission with that data, or None."""
    data = {"kind": "file", "train": str(path)}
    return as_user(d.socket, uid, ["submit", {"spec": spec(name, 1, data=data)}])[0].get("error")


@ROOT_ONLY
def test_files_are_not_read_for_others_unless_said(home, secret):
    """Other users do not get gpt2d's rights; the error is the same for every file."""
    with Daemon(home=home, engine=BUILD / "engine/gpt2-engine-cpu", options=("--socket-mode", "0666")) as d, \
            d.client() as c:
        answers = {refused_for(d, path)["message"] for path in
            (secret / "tokens.bin", secret / "none", "/etc/shadow", "/dev/zero", home / "open/tokens.bin", "/")}
        assert answers == {"spec refused: data.train: gpt2d runs as uid 0 and reads files for others, as uid 61001, "
            "below its data_roots only: none is set in gpt2d.conf (data_roots = / allows every file that gpt2d may "
            "read)"}
        assert "users other than gpt2d's may connect: their runs cannot read files" in d.said()
        # gpt2d takes runs that read no file, and those of its own user
        made = as_user(d.socket, ONE, ["submit", {"spec": spec("made", 1)}])[0]["result"]["id"]
        with_file = spec("own", 1, data={"kind": "file", "train": str(secret / "tokens.bin")})
        own = c.submit(with_file)
        assert c.wait(made)["state"] == c.wait(own)["state"] == "done"
        # nor by running again what another one was allowed to
        again = as_user(d.socket, ONE, ["submit", {"spec": with_file, "rerun_of": own}])[0]
        assert again["error"]["message"] in answers


@ROOT_ONLY
def test_data_roots_say_what_others_may_read(home, secret):
    engine = BUILD / "engine/gpt2-engine-cpu"
    with Daemon(home=home, engine=engine, options=("--socket-mode", "0666", "--data-roots", "/")) as d:
        assert refused_for(d, secret / "tokens.bin") is None
    with Daemon(home=home, engine=engine, options=("--socket-mode", "0666", "--data-roots", str(home / "open"))) as d:
        assert refused_for(d, home / "open/tokens.bin") is None
        reported = {refused_for(d, path)["message"].replace(str(path), "PATH") for path in
            (secret / "tokens.bin", secret / "none", "/etc/shadow", "/dev/zero", home / "open/../closed/tokens.bin")}
        assert reported == {f"spec refused: data.train: PATH is not below a data root of gpt2d ({home}/open), or does not exist; put a copy below that folder"}


@ROOT_ONLY
def test_what_is_said_of_files_that_cannot_be_read(home):
    """The error names the cause. Below data_roots, a missing file has the same error as a file outside."""
    data = home / "data"
    (data / "closed").mkdir(parents=True)
    for file in (data / "ok.bin", data / "closed/ok.bin", data / "unread.bin"):
        file.write_bytes(b"".join(bytes((token, 0)) for token in range(100)) * 100)
    (data / "dangling").symlink_to("nowhere")
    (data / "loop").symlink_to("loop")
    os.mkfifo(data / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(data / "socket"))
    reported = {
        "dangling": "No such file or directory", "loop": "Too many levels of symbolic links", "ok.bin/x": "Not a directory",
        "ok.bin/": "Not a directory", "fifo": "a regular file expected", "socket": "a regular file expected",
    }
    reported |= {name: "Permission denied (gpt2d runs as uid 0)" for name in ("closed/ok.bin", "closed/none", "unread.bin")}
    found = ("fifo", "socket", "unread.bin")
    (data / "unread.bin").chmod(0)
    (data / "closed").chmod(0)
    prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")  # permissions apply to this root
    for roots in ((), ("--data-roots", str(data))):
        with Daemon(home=home, prefix=prefix, engine=BUILD / "engine/gpt2-engine-cpu", options=roots) as d, d.client() as c:
            for name, why in reported.items():
                path = f"{data}/{name}"
                refused = refusal(c.submit, spec("none", 1, data={"kind": "file", "train": path}))
                expected = f"{path}: {why}"
                if roots and name not in found:
                    expected = f"{path} is not below a data root of gpt2d ({data}), or does not exist; put a copy below that folder"
                assert refused.message == f"spec refused: data.train: {expected}", roots


@ROOT_ONLY
def test_queued_before_the_settings_changed(home, secret):
    """Runs accepted with data_roots are not read without them."""
    engine = BUILD / "engine/gpt2-engine-cpu"
    d = Daemon(home=home, engine=engine, options=("--socket-mode", "0666", "--data-roots", "/"))
    with d.client() as c:
        c.call("drain")
    assert refused_for(d, secret / "tokens.bin") is None
    assert d.stop() == 0
    with Daemon(home=home, engine=engine, options=("--socket-mode", "0666")) as d, d.client() as c:
        c.call("resume")
        end = c.wait(1)
        assert end["state"] == "failed" and end["reason"].startswith("spec_refused: data.train: gpt2d runs as uid 0")
        assert c.wait(c.submit(spec("next", 1)))["state"] == "done"


def test_a_link_tells_nothing_of_what_is_elsewhere(tmp_path):
    """A link leads out of the data roots after the submission, to an existing or a missing file: the error is the same."""
    data = tmp_path / "data"
    data.mkdir()
    good = data / "good.bin"
    good.write_bytes(b"".join(bytes((token, 0)) for token in range(100)) * 100)
    reasons = set()
    with Daemon(engine=BUILD / "engine/gpt2-engine-cpu", options=("--data-roots", str(data))) as d, d.client() as c:
        c.call("drain")
        links = {data / "there": "/etc/passwd", data / "not": "/etc/none", data / "within": "/etc/passwd/none"}
        for link in links:
            link.symlink_to(good)
            c.submit(spec("led", 1, data={"kind": "file", "train": str(link)}))
        for link, target in links.items():
            link.unlink()
            link.symlink_to(target)
        c.call("resume")
        for run, link in enumerate(links, 1):
            reasons.add(c.wait(run)["reason"].replace(str(link), "LINK"))
    assert len(reasons) == 1 and f"LINK is not below a data root of gpt2d ({data})" in reasons.pop()


@ROOT_ONLY
def test_links_between_roots(home, secret):
    """Absolute and relative links lead from one root into another, and nowhere else."""
    more, data = home / "more", home / "open"
    shutil.copytree(data, more)
    (data / "absolute").symlink_to(more / "tokens.bin")
    (data / "relative").symlink_to("../more/folder/.././tokens.bin")
    (data / "out").symlink_to(secret / "tokens.bin")
    (data / "nowhere").symlink_to(secret / "none")
    (more / "folder").mkdir()
    with Daemon(home=home, engine=BUILD / "engine/gpt2-engine-cpu",
            options=("--socket-mode", "0666", "--data-roots", str(data), "--data-roots", str(more))) as d:
        for path in ("absolute", "relative", "../more/tokens.bin", "./tokens.bin"):
            assert refused_for(d, f"{data}/{path}") is None, path
        for path in ("out", "nowhere", "../closed/tokens.bin", "../closed/none"):
            message = refused_for(d, f"{data}/{path}")["message"]
            assert message == f"spec refused: data.train: {data}/{path} is not below a data root of gpt2d ({data}, ...), or does not exist; put a copy below that folder"


@ROOT_ONLY
def test_a_link_that_changes_all_the_time_tells_nothing(home, secret):
    """The path is opened only once between check and read: the error reveals nothing about files elsewhere."""
    data, stop = home / "open", threading.Event()
    link = data / "flips"
    link.symlink_to("tokens.bin")

    def flip():
        while not stop.is_set():
            for target in (secret / "none", "tokens.bin"):
                (data / "next").symlink_to(target)
                (data / "next").rename(link)

    asked = [["dry-run", {"spec": spec("flips", 1, data={"kind": "file", "train": str(link)})}]] * 100
    flipping = threading.Thread(target=flip)
    with Daemon(home=home, engine=BUILD / "engine/gpt2-engine-cpu",
            options=("--socket-mode", "0666", "--data-roots", str(data))) as d:
        flipping.start()
        try:
            answers = [answer for _ in range(4) for answer in as_user(d.socket, ONE, *asked)]
        finally:
            stop.set()
            flipping.join()
    reported = {answer["error"]["message"] if "error" in answer else "let in" for answer in answers}
    refused = f"spec refused: data.train: {link} is not below a data root of gpt2d ({data}), or does not exist; put a copy below that folder"
    assert reported <= {"let in", refused}
    assert len(reported) > 1


@ROOT_ONLY
def test_users_that_the_namespace_does_not_map(home):
    """All of them have one uid there: none may change runs of another."""
    prefix = ("unshare", "-U", "-r")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespace can be made here")
    with Daemon(home=home, prefix=prefix, options=("--socket-mode", "0666")) as d, d.client() as c:
        c.call("drain")
        run = as_user(d.socket, ONE, ["submit", {"spec": spec("one", 1)}])[0]["result"]["id"]
        asked = [["cancel", {"id": run}], ["priority", {"id": run, "priority": -1}], ["keep", {"id": run}], ["prune", {"keep": 0}]]
        for uid in (ONE, TWO):
            for answer in as_user(d.socket, uid, *asked):
                assert answer["error"]["message"] == ("uid 65534 represents all users that the user namespace of gpt2d does not map, "
                    "and owns no runs; ask an admin"), answer
        assert c.state(run) == "queued"
        c.call("cancel", id=run)  # root is mapped
        assert c.wait(run)["state"] == "cancelled"


@ROOT_ONLY
def test_auto_says_what_it_took(home):
    """A user's own daemon: below the XDG folders, with the device that exists; it reports which and why."""
    for folder in ("run", "state", "config/gpt2d"):
        (home / folder).mkdir(parents=True)
    (home / "config/gpt2d/gpt2d.conf").write_text("device = auto\n")
    subprocess.run(["chown", "-R", f"{ONE}:{ONE}", home], check=True)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run"),
        "XDG_STATE_HOME": str(home / "state"), "XDG_CONFIG_HOME": str(home / "config")}
    words = [str(BUILD / "daemon/gpt2d"), "--log-file", str(home / "log")]
    if subprocess.run([*words, "--version"], user=ONE, capture_output=True, check=False).returncode != 0:
        pytest.skip("the build cannot be reached by another user")
    process = subprocess.Popen(words, user=ONE, group=ONE, extra_groups=[], env=environment, cwd="/",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        socket = home / "run/gpt2d/gpt2d.sock"
        assert process.stdout.readline() == f"gpt2d: ready, socket {socket}, 1 rank\n"
        engine, = as_user(socket, ONE, ["status", {}])
        engine = engine["result"]["engine"]
        assert engine["device"] in ("cpu", "cuda")
        assert f"device: auto chose {engine['device']}: {engine['device_why']}" in (home / "log").read_text()
        if engine["device"] == "cpu":
            assert engine["device_why"].startswith("no ")
            assert engine["program"].endswith("gpt2-engine-cpu")
        assert (home / "state/gpt2d/gpt2d.db").exists()
        assert as_user(socket, TWO, ["status", {}]) == "PermissionError"
        text = subprocess.run([BUILD / "ctl/gpt2ctl", "status"], env=environment, capture_output=True, text=True,
            timeout=60, check=True).stdout
        assert f"on {engine['device']}: {engine['device_why']}" in " ".join(text.split())
    finally:
        process.terminate()
        assert process.wait(60) == 0
        process.stdout.close()


def test_an_engine_on_another_device(home):
    """A device and an engine that do not match are refused."""
    with Daemon(home=home, options=("--device", "cpu")) as d, d.client() as c:
        assert c.call("status")["engine"]["device"] == "cpu"
    other = home / "other.py"
    other.write_text(FAKE_ENGINE.read_text().replace('"backend": "cpu"', '"backend": "odd"'))
    other.chmod(0o700)
    with Daemon(home=home, engine=other, options=("--device", "cpu"), ready=False) as d, d.client() as c:
        reason = wait_for(lambda: c.call("status")["engine"]["reason"], "the reason")
        assert reason == "engine_refused: rank 0 computes on odd (expected cpu, the setting device)"
