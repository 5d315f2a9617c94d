"""Built programs: their libraries and global variables, what `meson install` installs, and the demonstration."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from helpers import BUILD, PATIENCE_S, ROOT, wait_for


# Libraries that can crash, hang or be attacked through a port are used only in the engines.
PROGRAMS = {
    "daemon/gpt2d": ("libucp", "libucs", "libuct", "libopenblas", "libblas", "libcuda", "libcudart", "libnccl"),
    "ctl/gpt2ctl": ("libucp", "libucs", "libopenblas", "libblas", "libcuda", "libnccl", "libsqlite3", "libevent"),
    "engine/gpt2-engine-cpu": ("libsqlite3", "libevent", "libsystemd", "libcuda", "libnccl"),
}

# Mutable static variables, with the reason for each.
VARIABLES = {
    "seen": "ctl/link/interrupt.c: a signal came",
    "reported": "ctl/link/interrupt.c: and was reported",
    "keyboard": "ctl/link/interrupt.c: the key that ends a wait, as a signal does",
    "heard": "engine/comm/ucx_worker.c: UCX hands its log's handler no context; each thread's own",
    "came": "proto/host/signals.c: a signal came",
    "defaults": "proto/spec/spec_read.c: those of the table, read once",
    "log_state": "daemon/config/log.c: the log",
    "kept": "daemon/config/log.c: the log",
    "writer": "daemon/config/log.c: the log",
}


def tool(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_links(program):
    needed = re.findall(r"\(NEEDED\).*\[(.*?)\]", tool("readelf", "-d", BUILD / program))
    assert any(name.startswith("libc.so") for name in needed)
    banned = [name for name in needed if name.startswith(PROGRAMS[program])]
    assert not banned, f"{program} links {', '.join(banned)}"


def objects():
    return sorted(path for path in BUILD.rglob("*.o") if "tests" not in path.relative_to(BUILD).parts)


def variables():
    for line in tool("nm", "-A", "-f", "sysv", *objects()).split("\n"):
        columns = [column.strip() for column in line.split("|")]
        if len(columns) == 7 and re.fullmatch(r"\.(t?data|t?bss|data\.(?!rel\.ro).*|bss\..*)|\*COM\*", columns[6]):
            path, name = columns[0].rsplit(":", 1)
            yield Path(path).relative_to(BUILD).as_posix(), re.sub(r"\.\d+$", "", name)


def test_no_mutable_globals():
    """Only variables with a reason in VARIABLES are allowed; everything else is passed in a context."""
    assert len(objects()) > 10
    found = [f"{path}: {name}" for path, name in variables()
        if name not in VARIABLES and not name.startswith((".", "__asan", "__odr_asan", "_ub_", "__ubsan"))]
    assert not found, "\n".join(found)


FILES = ("bin/gpt2d", "bin/gpt2ctl", "libexec/gpt2d/gpt2-engine-cpu", "share/gpt2d/runs/hello.json",
    "share/gpt2d/spec.schema.json", "share/gpt2d/output.schema.json", "share/gpt2d/messages.schema.json",
    "share/gpt2d/artifacts.schema.json", "share/gpt2d/gpt2d.conf", "share/man/man1/gpt2ctl.1",
    "share/man/man5/gpt2d-spec.5", "share/man/man5/gpt2d.conf.5",
    "share/man/man5/gpt2ctl-json.5", "share/man/man5/gpt2d-artifacts.5",
    "share/man/man7/gpt2d-protocol.7", "share/man/man8/gpt2d.8", "share/man/man8/gpt2-engine.8",
    "share/bash-completion/completions/gpt2ctl.bash", "share/zsh/site-functions/_gpt2ctl",
    "share/fish/vendor_completions.d/gpt2ctl.fish")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    root = tmp_path_factory.mktemp("install")
    meson = "/usr/bin/meson" if os.path.exists("/usr/bin/meson") else "meson"
    subprocess.run([meson, "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", root], check=True)
    found = [path.parent.parent for path in root.rglob("bin/gpt2d")]
    assert len(found) == 1
    return found[0]


def test_files(prefix):
    assert [name for name in FILES if not (prefix / name).is_file()] == []


def test_no_test_program_is_installed(prefix):
    programs = {path.name for path in (prefix / "bin").iterdir()}
    assert programs == {"gpt2d", "gpt2ctl"}


def test_every_program_has_a_page(prefix):
    programs = {path.name for folder in ("bin", "libexec/gpt2d") for path in (prefix / folder).iterdir()}
    pages = [path.read_text() for path in (prefix / "share/man").rglob("*.[18]")]
    named = {name for page in pages for name in re.findall(r"^\.Nm (\S+)", page, flags=re.M)}
    assert programs and programs - named == set()


def test_pages_are_found_by_the_names_of_programs(prefix):
    pages = prefix / "share/man/man8"
    for program in ("gpt2-engine-cpu", "gpt2-engine-cuda"):
        assert (pages / f"{program}.8").resolve() == (pages / "gpt2-engine.8").resolve()


def test_a_run_from_there(prefix, tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path), "GPT2D_SOCKET": str(tmp_path / "s"),
        "PATH": f"{prefix / 'bin'}:{os.environ['PATH']}"}

    def ctl(*words):
        return subprocess.run(["gpt2ctl", *words], env=environment, capture_output=True, text=True,
            timeout=PATIENCE_S)

    with open(tmp_path / "log", "w", encoding="utf-8") as log:
        daemon = subprocess.Popen(["gpt2d", "--state-dir", tmp_path / "state"], env=environment,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_for(lambda: ctl("status").returncode == 0 or daemon.poll() is not None, "the daemon")
        run = ctl("submit", "--follow", str(prefix / "share/gpt2d/runs/hello.json"))
        assert run.returncode == 0, run.stdout + run.stderr + (tmp_path / "log").read_text()
        assert len(list((tmp_path / "state").rglob("RUN_COMPLETE.txt"))) == 1
        assert ctl("shutdown").returncode == 0
        assert daemon.wait(PATIENCE_S) == 0
    finally:
        daemon.kill()
        daemon.wait()


@pytest.fixture
def tree():
    """The sources that the demonstration needs, with built programs, so nothing is built."""
    with tempfile.TemporaryDirectory() as folder:  # short: a socket lies below it
        tree = Path(folder)
        shutil.copytree(ROOT / "etc", tree / "etc")
        (tree / "build").mkdir()
        (tree / "build/build.ninja").touch()
        for name in ("ctl", "daemon", "engine"):
            (tree / "build" / name).symlink_to(BUILD / name)
        (tree / "bin").mkdir()
        (tree / "bin/ninja").write_text("#!/bin/sh\necho nothing to do\n")
        (tree / "bin/ninja").chmod(0o755)
        (tree / "tmp").mkdir()
        yield tree


@pytest.mark.parametrize("last", ["Starting gpt2d", "Making tokens", "Running it"])
def test_without_a_reader_it_leaves_nothing(tree, last):
    with open(tree / "err", "w+", encoding="utf-8") as err, \
            subprocess.Popen([tree / "etc/demo", "--no-setup"], stdout=subprocess.PIPE, stderr=err, text=True,
                env={**os.environ, "PATH": f"{tree / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(tree / "tmp")}) as demo:
        for line in demo.stdout:
            if line.startswith(last):
                break
        else:
            raise AssertionError(f"{last} is not said: {(tree / 'err').read_text()}")
        demo.stdout.close()
        assert demo.wait(PATIENCE_S) == 141, (tree / "err").read_text()
    assert list((tree / "tmp").iterdir()) == []
    assert "etc/demo: interrupted; gpt2d is stopped, " in (tree / "err").read_text()


def test_a_clone_of_somebody_else(tree):
    """An unwritable folder is reported, before a build fails because of it."""
    tree.chmod(0o755)
    (tree / "build").chmod(0o555)
    user = {"user": 61001, "group": 61001, "extra_groups": []} if os.geteuid() == 0 else {}
    demo = subprocess.run([tree / "etc/demo", "--no-setup"], capture_output=True, text=True, timeout=PATIENCE_S, cwd="/",
        env={**os.environ, "PATH": f"{tree / 'bin'}:{os.environ['PATH']}"}, check=False, **user)
    (tree / "build").chmod(0o755)
    assert demo.returncode == 1 and demo.stdout == ""
    assert f"etc/demo: {tree}/build: " in demo.stderr and "may not write there" in demo.stderr
