"""The reason in status and runs names why engines cannot start, not only the log."""

import os
import subprocess

import pytest

from helpers import BUILD, Daemon, wait_for
from test_diagnose import checks

ENGINE = BUILD / "engine/gpt2-engine-cpu"
NEW = "exited with status 71 (a new process is needed): "


def under(what):
    """gpt2d after that line of a shell."""
    return ("/bin/sh", "-c", what + ' && exec "$0" "$@"')


def in_mount(what):
    prefix = ("unshare", "-m", *under(what))
    if os.geteuid() != 0 or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    return prefix


def check_reason(words, **more):
    with Daemon(ranks=2, engine=ENGINE, ready=False, **more) as d, d.client() as c:
        def reported():
            reason = c.call("status")["engine"].get("reason") or ""
            return reason if "exited" in reason or "killed" in reason else None
        reason = wait_for(reported, "the reason")
        for word in words:
            assert word in reason, reason


def test_a_limit_on_files():
    """A file of shared memory is limited too."""
    check_reason([NEW + "collectives: UCX with UCX_TLS=self,posix,cma: ", "File too large"], prefix=under("ulimit -f 2000"))


def test_a_transport_that_is_not_there():
    check_reason([NEW + "collectives: UCX with UCX_TLS=junk: transport 'junk' is not available"], environment={"UCX_TLS": "junk"})


def test_no_folder_for_shared_memory():
    check_reason([NEW + "collectives: /nonexist/gpt2d-", ": cannot create a directory for shared memory: No such file or directory"],
        environment={"UCX_POSIX_DIR": "/nonexist"})


def test_no_files_left_in_shared_memory(tmp_path):
    """There is room, but no inode: "No space left on device" would not say so."""
    prefix = in_mount("mount -t tmpfs -o nr_inodes=3 none /dev/shm")
    check_reason(["collectives: /dev/shm/gpt2d-0: ", " of 3 files (inodes) free, 4 needed by 2 ranks"], prefix=prefix)


def test_a_checker_that_is_killed(tmp_path):
    engine = tmp_path / "engine.sh"
    engine.write_text("#!/bin/sh\nkill -SEGV $$\n")
    engine.chmod(0o700)
    assert checks(tmp_path, "--engine", engine, status=1)["engine"][1] == "the engine does not check a spec: killed by signal 11"
