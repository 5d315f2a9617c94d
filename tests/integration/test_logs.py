"""Messages of engines and gpt2d about a run: kept, limited, followed."""

import json
import os
import re
import subprocess

import pytest

from helpers import experiment, read_until, refusal, spec, wait_for
from test_ctl_daemon import CTL, ctl, environment, started


def logged(c, run, **params):
    """All lines once nothing more can come, and the last reply."""
    wait_for(lambda: not c.call("logs", id=run)["open"], "the log to be closed")
    page = c.call("logs", id=run, **params)
    lines = page["lines"]
    while page["more"]:
        page = c.call("logs", id=run, **{**params, "after": page["next"]})
        lines += page["lines"]
    return lines, page


def test_what_is_said(daemon):
    with daemon() as d, d.client() as c:
        run = c.submit(spec("logs", 5))
        assert c.wait(run)["state"] == "done"
        lines, page = logged(c, run)
        assert [(l["rank"], l["message"]) for l in lines if l["rank"] is not None] == \
            [(0, f"step {i}") for i in range(1, 6)]
        assert [l["message"] for l in lines if l["rank"] is None] == \
            [f"queued by uid {os.getuid()}", "starting", "running", "finishing", "done"]
        assert [l["n"] for l in lines] == sorted(l["n"] for l in lines)
        assert page["dropped"] == 0 and page["state"] == "done"
        assert logged(c, run, limit=2)[0] == lines
        failed = c.submit(experiment("fail.r0.s2"))
        assert c.wait(failed)["state"] == "failed"
        lines, _ = logged(c, failed, level="warning")
        assert re.fullmatch(r"segment 1 \([ab]\): made_up: rank 0: as asked", lines[0]["message"])
        assert re.fullmatch(r"failed: arm_failed: [ab]: made_up: rank 0: as asked", lines[-1]["message"])
        ended = c.submit(spec("ms20-ended", 100000))
        wait_for(lambda: c.state(ended) == "running", "running")
        c.call("cancel", id=ended)
        assert logged(c, ended)[0][-1]["message"] == "cancelled: asked for"
        assert f"run {ended}: cancelled: asked for\n" in d.said()
        for params, code in (({"id": 9}, -32003), ({"level": "loud"}, -32602), ({"limit": 0}, -32602)):
            assert refusal(c.call, "logs", **{"id": run, **params}).code == code


def test_a_failed_run_is_a_warning_of_gpt2d(daemon):
    """With its name and its reason; how others end is not."""
    with daemon() as d, d.client() as c:
        assert c.wait(c.submit(spec("good")))["state"] == "done"
        failed = c.submit(spec("fail.r0.s1"))
        assert c.wait(failed)["state"] == "failed"
        c.call("drain")
        c.call("cancel", id=c.submit(spec("unwanted")))
        said = [line.split(" ", 1)[1] for line in d.said().splitlines() if " run " in line]
    assert [line.split(" (")[0] for line in said if line.startswith("warning")] == \
        [f"warning run {failed}: fail.r0.s1: failed: made_up: rank 0: as asked"]
    assert {"info run 1: done", "info run 3: cancelled: asked for"} <= set(said)


def test_it_outlives_gpt2d(daemon):
    with daemon() as d:
        with d.client() as c:
            run = c.submit(spec("ms20-logs", 100000))
            wait_for(lambda: len(c.call("logs", id=run)["lines"]) > 5, "messages")
            before = c.call("logs", id=run)["lines"]
        d.kill()
        d.start()
        with d.client() as c:
            lines, page = logged(c, run)
            assert lines[:len(before)] == before and page["state"] == "interrupted"
            assert lines[-1]["message"].startswith("interrupted: daemon_restart")


def test_it_is_bounded(daemon):
    """The newest thousand; what was dropped is counted."""
    with daemon() as d, d.client() as c:
        run = c.submit(spec("logs", 1500))
        assert c.wait(run)["state"] == "done"
        lines, page = logged(c, run)
        assert page["dropped"] > 0
        assert len(lines) + page["dropped"] == 1500 + 5
        assert len(lines) <= 1000 + 5
        assert lines[-1]["message"] == "done"


def test_follow(daemon):
    with daemon() as d, d.client() as c:
        run = c.submit(spec("ms20-logs", 30))
        follower = subprocess.run([CTL, "logs", str(run), "-f"], capture_output=True, text=True, timeout=120,
            env=environment(d))
        assert follower.returncode == 0 and follower.stderr == ""
        whole = ctl(d, "logs", run)
        assert whole.stdout == follower.stdout and whole.stdout.count("rank 0: step ") == 30
        result = ctl(d, "logs", run, "--follow", "--json")
        objects = [json.loads(line) for line in result.stdout.splitlines()]
        assert len(objects) == 35 and {o["kind"] for o in objects} == {"log"}
        assert json.loads(ctl(d, "logs", run, "--json", "--level", "warning").stdout)["lines"] == []
        assert ctl(d, "logs", 99).returncode == 7


def test_follow_over_a_restart(daemon):
    """gpt2d is killed and comes back: no line is missing and none comes twice."""
    with daemon() as d:
        with d.client() as c:
            run = c.submit(spec("held-logs", restart=True))
            follower = started(d, "logs", "-f", run)
            read_until(follower, "step 2")
        d.kill()
        d.unhold()
        d.start()
        out, err = follower.communicate(timeout=120)
        assert follower.returncode == 0, err
        assert "reconnecting" in err and "daemon_restart" in out
        assert ctl(d, "show", run, "--json").stdout.count('"done"')
        assert ctl(d, "logs", run).stdout.endswith(out)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")
def test_its_own_is_not_for_everybody(daemon):
    """gpt2d's own messages name files and people; messages about a run are for all clients."""
    with daemon(options=("--socket-mode", "0666")) as d, d.client() as c:
        d.home.chmod(0o755)
        assert c.wait(c.submit(spec("a")))["state"] == "done"

        def other(*args):
            return subprocess.run([CTL, *args], capture_output=True, text=True, timeout=120, env=environment(d),
                user=65534, group=65534, extra_groups=[], check=False)
        refused = other("logs")
        assert refused.returncode == 9 and refused.stdout == ""
        assert "only gpt2d's user and admins may read its own messages" in refused.stderr
        assert "gpt2d: done" in other("logs", "1").stdout


def test_its_own(daemon):
    with daemon() as d:
        result = ctl(d, "logs")
        assert result.returncode == 0 and " gpt2d: engines: 1 ready after " in result.stdout
        with d.client() as c:
            for _ in range(300):
                refusal(c.call, "cancel", id=99)
            page = c.call("logs", limit=1000)
            assert page["dropped"] > 0 and len(page["lines"]) <= 256 and page["id"] is None
