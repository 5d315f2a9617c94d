"""The Debian packages in a booted Debian system: install, run, upgrade, downgrade, purge. Tests of one file, in this order."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

import system

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build-test" / "packages"
BUILD = "GPT2D_PACKAGES" not in os.environ
PACKAGES = Path(os.environ.get("GPT2D_PACKAGES", WORK / "new"))
DATA = "/var/lib/gpt2d-data"
PATIENCE_S = 60


def wait_for(condition, what, patience_s=PATIENCE_S):
    end = time.monotonic() + patience_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"{what} did not come about in {patience_s} s"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def debs():
    """{package: file} of this tree. GPT2D_PACKAGES: a folder with existing ones, without gpt2d-cuda."""
    why = system.obstacle()
    if why:
        pytest.skip(why)
    WORK.mkdir(parents=True, exist_ok=True)
    if BUILD:
        environment = {**os.environ, "PATH": f"/usr/lib/ccache:{os.environ['PATH']}"}
        done = subprocess.run([ROOT / "packaging/build-deb", "--no-cuda", PACKAGES], check=False, env=environment, capture_output=True,
            text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    found = {path.name.split("_")[0]: path for path in PACKAGES.glob("*.deb") if "-dbgsym" not in path.name}
    assert sorted(found) == ["gpt2ctl", "gpt2d", "gpt2d-doc"]
    return found


def field(deb, name):
    return subprocess.run(["dpkg-deb", "-f", deb, name], check=True, capture_output=True, text=True).stdout.strip()


def renamed(deb, version, folder):
    """The same package as another release: its version, and the build that its programs say they are."""
    old, tree = field(deb, "Version"), folder / "repack"
    assert len(old) == len(version)
    subprocess.run(["rm", "-rf", tree], check=True)
    subprocess.run(["dpkg-deb", "-R", deb, tree], check=True)
    for path in [tree / "DEBIAN/control", *tree.rglob("usr/bin/*"), *tree.rglob("usr/libexec/gpt2d/*")]:
        path.write_bytes(path.read_bytes().replace(old.encode(), version.encode()))
    (tree / "DEBIAN/md5sums").unlink(missing_ok=True)
    out = folder / deb.name.replace(old, version)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", tree, out], check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def testbed(debs):
    """A booted system with the packages of three releases in /debs: old, new and next."""
    why = system.make_base(WORK / "debian.tar")
    if why:
        pytest.skip(f"no Debian system could be made (it needs the network): {why}")
    s = system.System(WORK / "debian.tar")
    try:
        (s.tree / "debs").mkdir()
        version = field(debs["gpt2d"], "Version")
        for name in ("gpt2d", "gpt2ctl"):
            (s.tree / "debs" / f"{name}_new.deb").write_bytes(debs[name].read_bytes())
            for release, number in (("old", "0.0"), ("next", "9.9")):
                other = renamed(debs[name], re.sub(r"^\d+\.\d+", number, version), s.folder)
                other.rename(s.tree / "debs" / f"{name}_{release}.deb")
        s.start()
        yield s
    finally:
        s.stop()


def ctl(s, *words, check=True, user=None):
    done = s.shell(" ".join(["gpt2ctl", *map(str, words)]), check=check, user=user)
    return json.loads(done.stdout) if "--json" in words and done.returncode == 0 else done


def submit(s, name, steps, user=None, **members):
    spec = {"name": name, "model": "nano", "data": {"kind": "synthetic"}, "seq_len": 64, "train_micro_batch_size_per_gpu": 4,
        "work": {"optimizer_steps": steps, "warmup_steps": 1}, **members}
    text = s.shell(f"gpt2ctl submit --json - <<'END'\n{json.dumps(spec)}\nEND", user=user).stdout
    return json.loads(text.splitlines()[0])["id"]


def state(s, run):
    return ctl(s, "show", run, "--json")["run"]["state"]


def running(s):
    return (ctl(s, "status", "--json").get("running") or {}).get("progress") or {}


def steps_that_take(s, seconds):
    """How many steps of the small model take that long here."""
    run = submit(s, "rate", 1000000)
    took_ns = wait_for(lambda: running(s).get("step", 0) > 200 and running(s).get("step_time_ns"), "a rate")
    ctl(s, "cancel", run)
    wait_for(lambda: state(s, run) == "cancelled", "the end of the measured run")
    return max(50, int(seconds * 1e9 / took_ns))


def install(s, *files):
    """As a user does it, without a network: all dependencies are installed."""
    return s.shell("apt-get install -y --allow-downgrades -o Dpkg::Options::=--force-confold "
        + " ".join(f"/debs/{name}.deb" for name in files), timeout=300)


# ---- without a running system ----

def test_lintian(debs):
    changes, = PACKAGES.glob("*.changes")
    done = subprocess.run(["lintian", "--allow-root", "--display-info", "--tag-display-limit", "0", changes], capture_output=True, text=True,
        check=False)
    assert (done.returncode, done.stdout) == (0, "")


def unit(name):
    rows = (ROOT / "packaging/systemd" / name).read_text().splitlines()
    return dict(row.split("=", 1) for row in rows if "=" in row and not row.startswith("#"))


def test_a_stop_may_take_as_long_as_the_run_gets():
    """J7: systemd must not kill a gpt2d that still lets a run end."""
    conf = (ROOT / "packaging/debian/gpt2d.conf").read_text()
    stop_timeout_s = int(re.search(r"^stop_timeout = (\d+)s$", conf, flags=re.M)[1])
    for name in ("gpt2d.service", "gpt2d@.service", "gpt2d.user.service"):
        assert int(unit(name)["TimeoutStopSec"]) >= stop_timeout_s + 20, name
        assert unit(name)["KillMode"] == "mixed", name
    for name in ("gpt2d.service", "gpt2d@.service"):
        assert unit(name)["LimitMEMLOCK"] == "infinity" and unit(name)["RuntimeDirectoryPreserve"] == "restart"
        assert not {"PrivateDevices", "MemoryDenyWriteExecute", "PrivateUsers"} & set(unit(name)), name


def test_the_template_is_the_unit():
    """A node of a cluster has the service's settings, but for its own file and state."""
    one, node = unit("gpt2d.service"), unit("gpt2d@.service")
    assert {key for key in one.keys() | node.keys() if one.get(key) != node.get(key)} == \
        {"Description", "After", "Wants", "Conflicts", "ExecStart", "StateDirectory"}


def test_the_client_alone_and_the_documentation(debs):
    names = {package: subprocess.run(["dpkg-deb", "-c", deb], check=True, capture_output=True, text=True).stdout
        for package, deb in debs.items()}
    assert "bin/gpt2d\n" not in names["gpt2ctl"] and "bin/gpt2ctl\n" in names["gpt2ctl"]
    assert "libevent" not in field(debs["gpt2ctl"], "Depends") and "libucx0" in field(debs["gpt2d"], "Depends")
    for name in ("spec.schema.json", "RESULTS.md", "gpt2d.rules.yml"):
        assert name in names["gpt2d-doc"]


# ---- installed ----

README_LINE = "apt install ./gpt2d_*.deb ./gpt2ctl_*.deb && systemctl start gpt2d && gpt2ctl submit " \
    "/usr/share/doc/gpt2d/examples/hello.json --follow"


def test_install_start_run(testbed):
    """Word for word the commands of the README, in a folder with the packages."""
    assert all(README_LINE in (ROOT / name).read_text() for name in ("README.md", "packaging/README.md"))
    testbed.shell("mkdir /root/debs && cp /debs/gpt2d_new.deb /debs/gpt2ctl_new.deb /root/debs")
    done = testbed.shell(f"cd /root/debs && {README_LINE.replace('apt install', 'apt-get install -y')}", timeout=300)
    assert "done" in done.stdout, done.stdout
    assert state(testbed, 1) == "done"
    wait_for(lambda: testbed.run("systemctl", "show", "-P", "StatusText", "gpt2d").stdout ==
        "engines ready, no run running, 0 queued\n", "the status")
    assert testbed.run("systemctl", "show", "-P", "SubState", "gpt2d").stdout == "running\n"
    assert ctl(testbed, "status", "--json")["engine"]["device"] == "cpu"
    assert testbed.run("systemctl", "is-enabled", "gpt2d").stdout == "enabled\n"


def test_check_of_the_installed_system(testbed):
    found = json.loads(testbed.run("setpriv", "--reuid=gpt2d", "--regid=gpt2d", "--init-groups", "env",
        "STATE_DIRECTORY=/var/lib/gpt2d", "gpt2d", "--check", "--json", check=False).stdout)
    assert {check["check"]: check["verdict"] for check in found["checks"] if check["verdict"] == "fail"} == {}


def test_the_journal_has_the_lines(testbed):
    lines = testbed.run("journalctl", "-u", "gpt2d", "-o", "cat").stdout
    assert re.search(r"engine /usr/libexec/gpt2d/gpt2-engine-cpu, ranks 1", lines)
    assert "settings /etc/gpt2d/gpt2d.conf" in lines and re.search(r"run 1\b.*done", lines)


def test_units(testbed):
    assert testbed.shell("systemd-analyze verify --man=no gpt2d.service gpt2d@x.service 2>&1").stdout == ""
    assert testbed.shell("XDG_RUNTIME_DIR=/run systemd-analyze --user verify --man=no gpt2d.service 2>&1").stdout == ""
    for name in ("gpt2d.service", "gpt2d@x.service"):
        shown = testbed.shell(f"systemd-analyze security --no-pager --threshold=40 {name} | tail -n 1").stdout
        assert float(re.search(r"([\d.]+) ", shown)[1]) <= 4.0, shown
    testbed.run("systemd-sysusers", "--dry-run")


def test_a_user_of_the_group(testbed):
    """Submit, data in the folder for it, release; a file in a home folder is refused with the folder's name."""
    for name in ("ann", "bob", "eve"):
        testbed.run("useradd", "-m", "-K", "HOME_MODE=0700", name)
    testbed.run("adduser", "ann", "gpt2d")
    testbed.run("adduser", "bob", "gpt2d")
    refused = ctl(testbed, "status", user="eve", check=False)
    assert refused.returncode != 0 and "adduser NAME gpt2d; then NAME logs in again" in refused.stderr
    testbed.shell("umask 077 && seq 20000 >corpus.txt && gpt2ctl data prepare corpus.txt && gpt2ctl data prepare corpus.txt -o mine.bin", user="ann")
    small = {"data": {"kind": "file", "train": f"{DATA}/corpus.bin"}, "model": "nano"}
    run = submit(testbed, "data", 5, user="ann", **small)
    wait_for(lambda: state(testbed, run) == "done", "a run with data of ann")
    refused = testbed.shell("gpt2ctl submit --set data.kind=file --set data.train=/home/ann/mine.bin "
        "/usr/share/doc/gpt2d/examples/hello.json", user="ann", check=False)
    assert refused.returncode != 0 and f"not below a data root of gpt2d ({DATA})" in refused.stderr, refused.stderr
    removed = testbed.shell(f"rm -f {DATA}/corpus.bin", user="bob", check=False)
    assert removed.returncode != 0 and "Operation not permitted" in removed.stderr
    testbed.shell("gpt2ctl release --wait", user="bob")
    assert ctl(testbed, "status", "--json")["engine"]["state"] == "released"
    testbed.shell("gpt2ctl warm --wait", user="bob")
    assert ctl(testbed, "drain", user="bob", check=False).returncode != 0


def test_a_reload_checks_the_settings(testbed):
    """With the rights of the service: root's gpt2d -n can read a key that the service cannot."""
    part = testbed.tree / "etc/gpt2d/gpt2d.conf.d/part.conf"
    for text, error in (("ranks = 1\nidle_relaese = 1h\n", "part.conf:2: idle_relaese: no such setting"),
            ("log_file = /var/log/gpt2d.log\n", "part.conf:1: log_file: /var/log/gpt2d.log: cannot be created in /var/log: Permission denied")):
        part.write_text(text)
        assert testbed.run("systemctl", "reload", "gpt2d", check=False).returncode != 0
        assert error in testbed.run("systemctl", "status", "--no-pager", "--full", "gpt2d").stdout
        assert testbed.run("systemctl", "is-active", "gpt2d").stdout == "active\n"
    part.write_text("idle_release = 1h\n")
    testbed.run("systemctl", "reload", "gpt2d")
    wait_for(lambda: "idle_release: 0s -> 3600s" in testbed.run("journalctl", "-u", "gpt2d", "-o", "cat").stdout, "the reload")
    part.unlink()
    testbed.run("systemctl", "reload", "gpt2d")


def test_members_export_weights(testbed):
    """The state directory is gpt2d's alone, so the package has a folder for checkpoints that the group can read."""
    folder = "/var/lib/gpt2d-checkpoints"
    run = submit(testbed, "weights", 5, user="ann", checkpoint={"at_end": True, "dir": folder})
    wait_for(lambda: state(testbed, run) == "done", "a run that saves a checkpoint")
    testbed.shell(f"gpt2ctl export {run} --output weights && ls weights/model.safetensors", user="bob")
    assert "Permission denied" in testbed.shell(f"ls {folder}", user="eve", check=False).stderr
    testbed.shell(f"rm -r {folder}/{run}-weights")


def test_checkpoints_in_a_folder_of_the_machine(testbed):
    """The unit must not forbid what checkpoint_roots allows."""
    part = testbed.tree / "etc/gpt2d/gpt2d.conf.d/part.conf"
    part.write_text("checkpoint_roots = /srv/checkpoints\n")
    testbed.shell("mkdir -p /srv/checkpoints && chown gpt2d /srv/checkpoints && systemctl restart gpt2d")
    run = submit(testbed, "saves", 5, user="ann", checkpoint={"at_end": True, "dir": "/srv/checkpoints"})
    wait_for(lambda: state(testbed, run) == "done", "a run that saves a checkpoint")
    assert list((testbed.tree / "srv/checkpoints" / f"{run}-saves").iterdir())
    part.write_text("checkpoint_roots = /home/checkpoints\n")
    testbed.shell("mkdir /home/checkpoints && chown gpt2d /home/checkpoints && systemctl restart gpt2d")
    assert "checkpoint_roots: /home/checkpoints: Read-only file system: " in testbed.run("journalctl", "-u", "gpt2d", "-o", "cat").stdout
    part.unlink()
    testbed.shell("rm -r /srv/checkpoints /home/checkpoints && systemctl restart gpt2d")


def test_an_administrator(testbed):
    """A member of both groups cancels the run of another."""
    testbed.run("useradd", "-m", "-G", "gpt2d,gpt2d-admin", "sue")
    run = submit(testbed, "anns", 1000000, user="ann")
    assert "belongs to another user" in ctl(testbed, "cancel", run, user="bob", check=False).stderr
    ctl(testbed, "cancel", run, user="sue")
    wait_for(lambda: state(testbed, run) == "cancelled", "the cancellation")


def test_a_users_own_daemon(testbed):
    """The unit of a user: settings, state and socket are that user's, beside the service of the machine."""
    uid = testbed.run("id", "-u", "eve").stdout.strip()
    testbed.run("systemctl", "start", f"user@{uid}")
    shown = testbed.shell(f"""
        export XDG_RUNTIME_DIR=/run/user/{uid}
        systemctl --user start gpt2d && gpt2ctl status --json && systemctl --user show -P StatusText gpt2d
        gpt2ctl submit --quiet --follow /usr/share/doc/gpt2d/examples/hello.json && systemctl --user stop gpt2d""", user="eve").stdout
    daemon = json.loads(shown.splitlines()[0])["daemon"]
    assert daemon["socket"] == f"/run/user/{uid}/gpt2d/gpt2d.sock" and daemon["state_dir"] == "/home/eve/.local/state/gpt2d"
    assert list((testbed.tree / "home/eve/.local/state/gpt2d").rglob("RUN_COMPLETE.txt"))
    lines = testbed.run("journalctl", f"_UID={uid}", "-t", "gpt2d", "-o", "cat").stdout.splitlines()
    assert "run 1: done" in lines  # without a time and a level, which the journal has itself
    testbed.run("systemctl", "stop", f"user@{uid}")


def test_figures_for_node_exporter(testbed):
    """The package that has its folder comes after gpt2d."""
    testbed.shell("""
        mkdir -p /root/exporter/DEBIAN /root/exporter/var/lib/prometheus/node-exporter
        printf 'Package: exporter\\nVersion: 1\\nArchitecture: all\\nMaintainer: x <x@x>\\nDescription: x\\n' >/root/exporter/DEBIAN/control
        dpkg-deb -b /root/exporter /root/exporter.deb && dpkg -i /root/exporter.deb""")
    testbed.run("systemctl", "restart", "gpt2d")
    path = testbed.tree / "var/lib/prometheus/node-exporter/gpt2d.prom"
    wait_for(path.exists, "the file of figures")
    assert "gpt2d_queue_length" in testbed.shell(f"cat /{path.relative_to(testbed.tree)}", user="eve").stdout


def promtool():
    """Of Debian's package, which is not installed for it: it would start a server."""
    folder = WORK / "prometheus"
    if not (folder / "usr/bin/promtool").exists():
        folder.mkdir(parents=True, exist_ok=True)
        got = subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, capture_output=True, text=True, check=False)
        if got.returncode != 0:
            pytest.skip(f"no promtool: {got.stderr.strip()}")
        deb, = folder.glob("prometheus_*.deb")
        subprocess.run(["dpkg", "-x", deb, folder], check=True)
        deb.unlink()
    return folder / "usr/bin/promtool"


def test_promtool(testbed):
    tool = promtool()
    rules = subprocess.run([tool, "check", "rules", ROOT / "packaging/prometheus/gpt2d.rules.yml"], capture_output=True, text=True, check=False)
    assert rules.returncode == 0 and "SUCCESS: 6 rules found" in rules.stdout, rules
    figures = testbed.run("gpt2ctl", "metrics").stdout
    metrics = subprocess.run([tool, "check", "metrics"], input=figures, capture_output=True, text=True, check=False)
    assert metrics.returncode == 0 and metrics.stdout + metrics.stderr == "", metrics
    named = set(re.findall(r"gpt2d_\w+", re.sub(r"(?m)^ *(#|- alert|summary|description).*", "", (ROOT / "packaging/prometheus/gpt2d.rules.yml").read_text())))
    known = set(re.findall(r'"(gpt2d_\w+)"', (ROOT / "daemon/metrics.c").read_text()))
    assert named - known == set()


LABELS = 'instance="box", socket="/run/gpt2d/gpt2d.sock"'
IDLE = {f"gpt2d_queue_length{{{LABELS}}}": "2x60", f"gpt2d_drained{{{LABELS}}}": "0x60", f"gpt2d_released{{{LABELS}}}": "0x60"}


@pytest.mark.parametrize("alert, series", [
    ("Gpt2dFiguresOld", {'node_textfile_mtime_seconds{instance="box", file="gpt2d.prom"}': "0x60"}),
    ("Gpt2dFiguresOld", {'node_textfile_mtime_seconds{instance="box", file="/var/lib/prometheus/node-exporter/gpt2d.prom"}': "0x60"}),
    (None, {'node_textfile_mtime_seconds{instance="box", file="gpt2d.prom"}': "0+60x60"}),
    ("Gpt2dStoreFailing", {f"gpt2d_store_failing{{{LABELS}}}": "1x60"}),
    ("Gpt2dDiskFillsUp", {f"gpt2d_state_dir_free_bytes{{{LABELS}}}": "4x60", f"gpt2d_state_dir_size_bytes{{{LABELS}}}": "100x60"}),
    ("Gpt2dEnginesRestart", {f"gpt2d_engine_restarts_total{{{LABELS}}}": "0+1x60"}),
    ("Gpt2dQueueDoesNotMove", IDLE),
    (None, {**IDLE, f"gpt2d_run_id{{{LABELS}}}": "7x60"}),
    (None, {**IDLE, f"gpt2d_drained{{{LABELS}}}": "1x60"}),
    ("Gpt2dGpuShared", {f'gpt2d_gpu_other_processes{{{LABELS}, rank="0"}}': "1x60", f"gpt2d_run_id{{{LABELS}}}": "7x60"}),
    (None, {f'gpt2d_gpu_other_processes{{{LABELS}, rank="0"}}': "1x60"}),
])
def test_alerts(tmp_path, alert, series):
    """After half an hour of such figures this alert fires and no other does."""
    samples = f"""[{{labels: '{{alertname="{alert}"}}', value: 1}}]""" if alert else "[]"
    rows = "\n".join(f"  - {{series: '{name}', values: '{values}'}}" for name, values in series.items())
    (tmp_path / "test.yml").write_text(f"""
rule_files: [{ROOT}/packaging/prometheus/gpt2d.rules.yml]
tests:
- interval: 1m
  input_series:
{rows}
  promql_expr_test:
  - expr: count by (alertname) (ALERTS{{alertstate='firing'}})
    eval_time: 30m
    exp_samples: {samples}
""")
    done = subprocess.run([promtool(), "test", "rules", tmp_path / "test.yml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_watchdog(testbed):
    """A gpt2d that hangs is killed and comes back, with the queue as it was."""
    testbed.shell("mkdir -p /run/systemd/system/gpt2d.service.d && printf '[Service]\\nWatchdogSec=4\\nRestartSec=0\\n' "
        ">/run/systemd/system/gpt2d.service.d/test.conf && systemctl daemon-reload && systemctl restart gpt2d")
    first = submit(testbed, "stuck", 1000000)
    queued = [submit(testbed, f"waits-{i}", 20) for i in range(3)]
    wait_for(lambda: running(testbed).get("step"), "a run in progress")
    pid = testbed.run("systemctl", "show", "-P", "MainPID", "gpt2d").stdout.strip()
    testbed.run("kill", "-STOP", pid)
    wait_for(lambda: testbed.run("systemctl", "show", "-P", "NRestarts", "gpt2d").stdout.strip() != "0", "the restart")
    testbed.run("gpt2ctl", "status", "--wait", "30")
    assert state(testbed, first) == "interrupted"
    for run in queued:
        wait_for(lambda run=run: state(testbed, run) == "done", f"run {run}")
    assert "watchdog" in testbed.run("journalctl", "-u", "gpt2d", "-o", "cat").stdout.lower()
    testbed.shell("rm -r /run/systemd/system/gpt2d.service.d && systemctl daemon-reload && systemctl restart gpt2d")


def test_upgrade_while_a_run_is_in_progress(testbed):
    """The run gets stop_timeout to end; the queue is the new release's."""
    run = submit(testbed, "ends", steps_that_take(testbed, 5))
    waits = submit(testbed, "waits", 20)
    wait_for(lambda: running(testbed).get("step"), "a run in progress")
    install(testbed, "gpt2d_next", "gpt2ctl_next")
    assert "9.9" in testbed.run("gpt2d", "--version").stdout
    assert state(testbed, run) == "done"
    wait_for(lambda: state(testbed, waits) == "done", "the queued run")


def test_an_old_client(testbed):
    """The message names both builds and the next step: it is not an error of the protocol."""
    install(testbed, "gpt2ctl_old")
    done = testbed.run("gpt2ctl", "status", check=False)
    assert done.returncode != 0 and "client is build 0.0" in done.stderr and "gpt2d is build 9.9" in done.stderr, done
    install(testbed, "gpt2ctl_next")


def test_downgrade(testbed):
    """The same schema: the older release reads the queue. A newer schema is refused, and nothing is changed."""
    testbed.run("gpt2ctl", "drain")
    waits = submit(testbed, "waits", 20)
    install(testbed, "gpt2d_old", "gpt2ctl_old")
    assert state(testbed, waits) == "queued"
    testbed.run("gpt2ctl", "resume")
    wait_for(lambda: state(testbed, waits) == "done", "the queued run")
    testbed.run("systemctl", "stop", "gpt2d")
    testbed.run("sqlite3", "/var/lib/gpt2d/gpt2d.db", "update schema set version = 99")
    refused = testbed.run("systemctl", "start", "gpt2d", check=False)
    assert refused.returncode != 0
    assert "schema 99, this gpt2d supports" in testbed.run("journalctl", "-u", "gpt2d", "-o", "cat").stdout
    testbed.run("systemctl", "stop", "gpt2d")
    version = re.search(r"supports up to (\d+)", testbed.run("journalctl", "-u", "gpt2d", "-o", "cat").stdout)[1]
    testbed.run("sqlite3", "/var/lib/gpt2d/gpt2d.db", f"update schema set version = {version}")
    install(testbed, "gpt2d_new", "gpt2ctl_new")
    testbed.run("systemctl", "restart", "gpt2d")
    assert state(testbed, waits) == "done"


def test_upgrade_with_a_run_that_does_not_end(testbed):
    """stop_timeout over, the run is interrupted; the queue continues."""
    testbed.shell("sed -i 's/^stop_timeout = .*/stop_timeout = 1s/' /etc/gpt2d/gpt2d.conf && systemctl reload gpt2d")
    run = submit(testbed, "never-ends", 10000000)
    waits = submit(testbed, "waits", 20)
    wait_for(lambda: running(testbed).get("step"), "a run in progress")
    install(testbed, "gpt2d_next", "gpt2ctl_next")
    assert state(testbed, run) == "interrupted"
    wait_for(lambda: state(testbed, waits) == "done", "the queued run")


def test_gpus_that_are_missing(testbed):
    """With the settings of gpt2d-cuda it trains on nothing else: it fails, reports why, and is restarted."""
    if os.path.exists("/dev/nvidia0"):
        pytest.skip("there is a GPU")
    conf = testbed.tree / "etc/gpt2d/gpt2d.conf.d/cuda.conf"
    conf.write_bytes((ROOT / "packaging/debian/cuda.conf").read_bytes())
    unit_part = testbed.tree / "etc/systemd/system/gpt2d.service.d/gpt2d-cuda.conf"
    unit_part.parent.mkdir()
    unit_part.write_bytes((ROOT / "packaging/systemd/gpt2d-cuda.conf").read_bytes())
    testbed.run("systemctl", "daemon-reload")
    assert testbed.shell("systemd-analyze verify --man=no gpt2d.service 2>&1").stdout == ""
    assert testbed.run("systemctl", "restart", "gpt2d", check=False).returncode != 0
    wait_for(lambda: testbed.run("systemctl", "show", "-P", "SubState", "gpt2d").stdout == "auto-restart\n", "another try")
    lines = testbed.run("journalctl", "-u", "gpt2d", "-o", "cat").stdout
    assert "cuda.conf:3: device: cuda: no gpt2-engine-cuda" in lines and "the package gpt2d-cuda has it" in lines
    assert devices_made(testbed) == ["-u -c 0", "-c 0 -c 3"]
    conf.unlink()
    unit_part.unlink()
    unit_part.parent.rmdir()
    testbed.shell("systemctl daemon-reload && systemctl restart gpt2d")
    assert ctl(testbed, "status", "--json")["engine"]["device"] == "cpu"


def devices_made(s):
    """What nvidia-modprobe is called with before gpt2d starts, on a machine with two GPUs."""
    s.shell("""
        printf '#!/bin/sh\necho "$@" >>/root/modprobe\n' >/usr/bin/nvidia-modprobe && chmod +x /usr/bin/nvidia-modprobe
        mount -t tmpfs tmpfs /proc/driver && mkdir -p /proc/driver/nvidia/gpus/a /proc/driver/nvidia/gpus/b
        printf 'Model: \t\t x\nDevice Minor: \t 0\n' >/proc/driver/nvidia/gpus/a/information
        printf 'Model: \t\t x\nDevice Minor: \t 3\n' >/proc/driver/nvidia/gpus/b/information
        systemctl stop gpt2d && ! systemctl start gpt2d
        systemctl stop gpt2d && umount /proc/driver && rm /usr/bin/nvidia-modprobe""")
    return s.shell("cat /root/modprobe && rm /root/modprobe").stdout.splitlines()


def test_a_node_of_a_cluster(testbed):
    """The template: a leader that waits for its member, instead of the service, also after an upgrade."""
    testbed.shell("""
        head -c 32 /dev/urandom >/etc/gpt2d/lab.key && chmod 600 /etc/gpt2d/lab.key && chown gpt2d /etc/gpt2d/lab.key
        printf 'device = cpu\nnodes = 2\nnode_id = 0\nlisten = 127.0.0.1:0\nkey_file = /etc/gpt2d/lab.key\ninterface = lo\n' >/etc/gpt2d/lab.conf
        systemctl disable --now gpt2d && systemctl enable --now gpt2d@lab""")
    assert testbed.run("systemctl", "is-active", "gpt2d", check=False).stdout == "inactive\n"
    run = submit(testbed, "two", 5)
    assert "waiting for node 1" in ctl(testbed, "show", run).stdout
    assert (testbed.tree / "var/lib/gpt2d/clusters/lab/gpt2d.db").exists()
    started = testbed.run("systemctl", "show", "-P", "MainPID", "gpt2d@lab").stdout
    install(testbed, "gpt2d_new", "gpt2ctl_new")
    wait_for(lambda: testbed.run("systemctl", "is-active", "gpt2d@lab", check=False).stdout == "active\n", "the node")
    assert testbed.run("systemctl", "show", "-P", "MainPID", "gpt2d@lab").stdout != started
    assert testbed.run("systemctl", "is-active", "gpt2d", check=False).stdout == "inactive\n"
    assert "queued" in ctl(testbed, "show", run).stdout
    testbed.shell("systemctl disable --now gpt2d@lab && rm /etc/gpt2d/lab.*")


def test_purge(testbed):
    """Nothing stays except users' data and accounts, as Debian's policy requires."""
    testbed.shell(f"touch {DATA}/left.bin && apt-get purge -y gpt2d gpt2ctl")
    found = testbed.shell("find / -xdev \\( -name '*gpt2d*' -o -name '*gpt2ctl*' \\) -not -path '/debs/*' -not -path '/root/*' -not -path '/home/*' "
        "-not -path '/proc/*' -not -path '/sys/*'").stdout.split()
    assert [path for path in found if not path.startswith((DATA, "/var/lib/prometheus"))] == [], found
    assert testbed.run("systemctl", "is-active", "gpt2d", check=False).stdout == "inactive\n"
    assert testbed.run("systemctl", "--failed", "--no-legend").stdout == ""
    testbed.shell(f"ls {DATA}/left.bin && id gpt2d")
