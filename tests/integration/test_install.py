"""What `meson install` installs and where, and that it works from there without options."""

import os
import re
import subprocess

import pytest

from helpers import BUILD, PATIENCE_S, wait_for

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
