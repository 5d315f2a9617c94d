"""packaging/bundle: its tar runs from a home folder of a system that has none of the libraries."""

import json
import os
import subprocess

import pytest

import system
from test_packages import ROOT, WORK, wait_for

FOREIGN = ("libc.so", "libm.so", "ld-linux", "libdl.so", "librt.so", "libpthread.so", "linux-vdso", "libresolv.so")


@pytest.fixture(scope="module")
def bundle():
    """The tar of this tree. GPT2D_BUNDLE: an existing one."""
    why = system.obstacle()
    if why:
        pytest.skip(why)
    if "GPT2D_BUNDLE" in os.environ:
        return os.environ["GPT2D_BUNDLE"]
    environment = {**os.environ, "PATH": f"/usr/lib/ccache:{os.environ['PATH']}", "CC": "gcc"}
    done = subprocess.run([ROOT / "packaging/bundle", "--no-cuda", WORK / "bundle"], check=False, env=environment, capture_output=True,
        text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def bare(bundle):
    """A booted system without the libraries of the packages, and the bundle in the home folder of a user."""
    why = system.make_base(WORK / "debian.tar")
    if why:
        pytest.skip(f"no Debian system could be made (it needs the network): {why}")
    s = system.System(WORK / "debian.tar")
    try:
        s.start()
        s.shell("apt-get purge -y --autoremove 'libevent*' libjansson4 libsqlite3-0 libucx0 'libopenblas*' 'libgfortran*'")
        left = s.shell("ldconfig -p | grep -c -e libevent -e libucp -e libjansson -e libopenblas", check=False).stdout
        assert left == "0\n"
        s.run("useradd", "-m", "-K", "HOME_MODE=0700", "ann")
        (s.tree / "home/ann/bundle.tar.gz").write_bytes(open(bundle, "rb").read())
        s.shell("tar -xzf bundle.tar.gz && mv gpt2d-* gpt2d", user="ann")
        yield s
    finally:
        s.stop()


def test_its_libraries_are_its_own(bare):
    shown = bare.shell("for f in gpt2d/bin/* gpt2d/libexec/gpt2d/* gpt2d/lib/*.so*; do ldd $f; done", user="ann").stdout
    rows = [line.split() for line in shown.splitlines() if "=>" in line]
    assert rows and [row for row in rows if "not found" in " ".join(row)] == []
    others = {row[0] for row in rows if not row[2].startswith("/home/ann/gpt2d/")}
    assert [name for name in others if not name.startswith(FOREIGN)] == []


def test_a_run_on_two_ranks(bare):
    """Ranks load UCX at run time, which the list of libraries does not show."""
    bare.shell("""
        export GPT2D_SOCKET=$HOME/s
        nohup gpt2d/bin/gpt2d --ranks 2 >log 2>&1 &
        gpt2d/bin/gpt2ctl status --quiet --wait 30
        gpt2d/bin/gpt2ctl submit --follow gpt2d/share/gpt2d/runs/hello.json""", user="ann")
    shown = bare.shell("GPT2D_SOCKET=$HOME/s gpt2d/bin/gpt2ctl show 1 --json", user="ann").stdout
    assert json.loads(shown)["run"]["state"] == "done"
    assert json.loads(bare.shell("GPT2D_SOCKET=$HOME/s gpt2d/bin/gpt2ctl status --json", user="ann").stdout)["engine"]["state"] == "ready"
    bare.shell("GPT2D_SOCKET=$HOME/s gpt2d/bin/gpt2ctl shutdown", user="ann")
    wait_for(lambda: bare.shell("pgrep gpt2", check=False).returncode == 1, "the end of gpt2d")
