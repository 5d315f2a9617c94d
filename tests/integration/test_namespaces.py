"""gpt2d where a container or an unshare has taken something away: /proc, /dev."""

import json
import os
import subprocess

import pytest

from helpers import BUILD, Daemon, spec, wait_for

GPT2D = BUILD / "daemon/gpt2d"
ENGINE = BUILD / "engine/gpt2-engine-cpu"
NO_PROC = ("unshare", "-m", "bash", "-c", 'mount -t tmpfs none /proc && exec "$0" "$@"')
OTHER_PROC = ("unshare", "-pf", "--kill-child", "bash", "-c", '"$0" "$@"; exit $?')
NO_DEV = ("unshare", "-m", "bash", "-c", 'mount -t tmpfs none /dev && mkdir -m 1777 /dev/shm && exec "$0" "$@"')


def needs(prefix):
    """What makes it is root's, and not even that in every container; sanitizers want /proc."""
    if os.geteuid() != 0 or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespace of that kind can be made here")
    if b"__asan_init" in GPT2D.read_bytes() and prefix is NO_PROC:
        pytest.skip("a sanitizer reads /proc")


def check(home, prefix, *words):
    done = subprocess.run([*prefix, GPT2D, "-c", "/dev/null", "--check", "--json", "--socket", home / "s", "--state-dir", home / "state",
        "--ranks", "2", *words], capture_output=True, text=True, timeout=60, check=False)
    return {row["check"]: (row["verdict"], row["found"]) for row in json.loads(done.stdout)["checks"]}


@pytest.mark.parametrize(("prefix", "why"), [(NO_PROC, "/proc: no proc file system is mounted there"),
    (OTHER_PROC, "/proc is of another pid namespace: it has ")], ids=["none", "another"])
def test_proc(tmp_path, prefix, why):
    """Ranks open each other's memory through it: what is wrong is said before and after."""
    needs(prefix)
    found = check(tmp_path, prefix, "--engine", str(ENGINE))
    assert found["/proc"][0] == "fail" and found["/proc"][1].startswith(why), found["/proc"]
    options = ("--data-roots", "/") if prefix is NO_PROC else ()
    with Daemon(prefix=prefix, ranks=2, engine=ENGINE, options=options, ready=False) as d:
        try:
            with d.client() as c:
                assert f"warning {why}" in d.said()
                wait_for(lambda: why in (c.call("status")["engine"].get("reason") or ""), "why no rank is ready")
        finally:
            d.process.kill()
            d.process.wait()


def test_no_proc_to_find_the_engine(tmp_path):
    needs(NO_PROC)
    verdict, found = check(tmp_path, NO_PROC)["device"]
    assert verdict == "fail" and "/proc/self/exe: No such file or directory; /proc: no proc file system" in found


def test_no_proc_to_judge_data(tmp_path):
    """That a path leads elsewhere is not what is wrong."""
    needs(NO_PROC)
    with Daemon(prefix=NO_PROC, engine=ENGINE, options=("--data-roots", "/")) as d, d.client() as c:
        with pytest.raises(Exception, match="gpt2d cannot find its place: /proc/self/fd/[0-9]+: No such file"):
            c.submit(spec("none", 1, data={"kind": "file", "train": "/etc/passwd"}))


def test_no_device_files(tmp_path):
    """The engine is there; it is /dev/null that is not."""
    needs(NO_DEV)
    found = check(tmp_path, NO_DEV)["engine"]
    assert found == ("fail", "the engine does not check a spec: /dev/null: No such file or directory")
    conf = tmp_path / "conf"
    conf.touch(0o600)
    with Daemon(home=tmp_path, prefix=NO_DEV, engine=ENGINE, config=conf, ready=False) as d, d.client() as c:
        wait_for(lambda: "could not be started: /dev/null: No such file or directory" in d.said(), "why")
        assert c.call("status")["engine"]["state"] != "ready"
