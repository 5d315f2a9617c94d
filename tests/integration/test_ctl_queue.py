"""gpt2ctl's verbs about the queue: drain, release, priority, rerun, cancel and wait of several."""

import json
import os
import pwd
import re
import subprocess

import pytest

from helpers import BUILD, PATIENCE_S, spec, wait_for
from test_ctl_daemon import CTL, ctl, environment, one_object, started, submit
from test_schemas import lines


def begun(d, run):
    with d.client() as c:
        wait_for(lambda: c.state(run) == "running", f"run {run} running")
    return run


def states(d):
    return [run["state"] for run in one_object(ctl(d, "list", "--json"))["runs"]]


def test_drain_and_resume(daemon):
    with daemon() as d:
        run = begun(d, submit(d, spec("held")))
        text = ctl(d, "drain", "--reason", "new disk").stdout
        assert "drained since " in text and ": new disk" in text
        assert f"run {run} continues; wait for its end with: gpt2ctl wait {run}" in text and "gpt2ctl resume" in text
        result = ctl(d, "submit", "-", run=spec("waits"))
        assert result.returncode == 0 and "waits     drained: since " in result.stdout
        assert "gpt2ctl resume lets runs start" in result.stdout
        other = ctl(d, "drain", "-r", "fan")
        assert other.returncode == 0 and ": new disk\n" in other.stdout
        assert "with its reason, which stays; to change it: gpt2ctl resume first\n" in other.stderr
        assert ctl(d, "drain", "-r", "new disk").stderr == ctl(d, "drain").stderr == ""
        status = ctl(d, "status").stdout
        by = f" by {pwd.getpwuid(os.getuid()).pw_name} (uid {os.getuid()}): new disk\n"
        assert re.search(f"(?m)^drained since [^ ]+ [^ ]+{re.escape(by)}", status), status
        assert "queued  1: drained: since" in status and f"Z by uid {os.getuid()}: new disk; " in status
        for verb in ("status", "top"):
            said = ctl(d, verb).stdout
            assert said.count("gpt2ctl resume lets runs start") == 1, said
            assert re.search(r"(?m)^ +2  waits  priority 0  .*waits for gpt2ctl resume$", said), said
        d.unhold()
        drained = lines(ctl(d, "drain", "--wait", "--json"))[0]
        assert drained["already"] and drained["running"] is None and drained["drained"]["reason"] == "new disk"
        assert states(d) == ["done", "queued"]
        assert ctl(d, "resume").stdout == "resumed: queued runs start\n"
        assert ctl(d, "wait", 2).returncode == 0
        assert lines(ctl(d, "resume", "--json"))[0]["already"]


@pytest.mark.parametrize("options, stream", [([], "stdout"), (["--print-id"], "stderr")])
def test_submit_and_follow_says_once_why_it_waits(daemon, tmp_path, options, stream):
    file = tmp_path / "run.json"
    file.write_text(json.dumps(spec()))
    with daemon() as d:
        ctl(d, "drain")
        with subprocess.Popen([CTL, "submit", file, "--follow", *options], env=environment(d), text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
            reported = getattr(follower, stream)
            line = reported.readline()
            while "drained: since " not in line:
                assert line, follower.communicate()
                line = reported.readline()
            ctl(d, "resume")
            rest = "".join(follower.communicate(timeout=PATIENCE_S))
        assert follower.returncode == 0 and "run 1 run: done" in rest and "drained" not in rest, rest


def test_drain_wait_gives_up_in_time(daemon):
    with daemon() as d:
        run = begun(d, submit(d, spec("long-ms20", 100000)))
        result = ctl(d, "drain", "--wait", "--timeout", 5)
        assert result.returncode == 124 and "timed out; the request stays in effect" in result.stderr
        assert ctl(d, "drain", "--timeout", 3).returncode == 2
        assert "drained since " in ctl(d, "status").stdout
        ctl(d, "cancel", run)


@pytest.mark.parametrize("words", [["drain", "--wait"], ["logs", "-f"]])
def test_no_gpt2d_comes_back(daemon, words):
    with daemon() as d:
        begun(d, submit(d, spec("long-ms20", 100000)))
        waiting = subprocess.Popen([CTL, *words], env=environment(d), text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        with d.client() as c:
            wait_for(lambda: (now := c.call("status"))["drained"] or words[0] == "logs" and now["daemon"]["clients"] == 2,
                "it has come")
        if words[0] == "logs":
            waiting.stdout.readline()
        d.kill()
        err = waiting.communicate(timeout=PATIENCE_S)[1]
        assert waiting.returncode == 1, err
        lost = "gpt2ctl: connection to gpt2d lost"
        assert err.splitlines() == [f"{lost}, reconnecting", f"{lost}, and gpt2d did not come back within 5 s",
            "check with: gpt2ctl status"]
        d.start()


def test_release_and_warm(daemon):
    with daemon(ranks=2) as d:
        text = ctl(d, "release", "--wait", "-r", "for Ann").stdout
        assert "released since " in text and ": for Ann" in text and "the engines have ended" in text
        assert "waits     released: since " in ctl(d, "submit", "-", run=spec("waits")).stdout
        status = ctl(d, "status").stdout
        assert "released since " in status and "gpt2ctl warm takes the engines again" in status
        also = submit(d, spec("also"))
        rows = [line.split("priority 0  ")[1] for line in ctl(d, "status").stdout.splitlines() if "priority 0" in line]
        assert rows == ["waits for gpt2ctl warm", "the same"]
        ctl(d, "cancel", also)
        assert "waits     0 ahead; released: since " in ctl(d, "show", 1).stdout
        assert ctl(d, "warm", "--wait").stdout.startswith("the engines are ready after ")
        assert ctl(d, "wait", 1).returncode == 0
        assert lines(ctl(d, "warm", "--json"))[0]["already"]
        long = begun(d, submit(d, spec("long-ms20", 100000)))
        assert lines(ctl(d, "release", "--now", "--wait", "--json"))[0]["engine"] == "released"
        assert ctl(d, "wait", long).returncode == 6
        ctl(d, "warm")


def test_priority(daemon):
    with daemon() as d:
        long = begun(d, submit(d, spec("long-ms20", 100000)))
        first = submit(d, spec("first"))
        second = int(ctl(d, "submit", "-", "--priority", -3, "--print-id", run=spec("second")).stdout)
        assert [row["id"] for row in one_object(ctl(d, "status", "--json"))["queue"]] == [first, second]
        text = ctl(d, "priority", second, 5).stdout
        assert f"run {second} second: priority 5, was -3\nwaits     0 ahead" in text
        assert lines(ctl(d, "priority", first, "-5", "--json"))[0]["outlook"]["position"] == 1
        status = ctl(d, "status").stdout.splitlines()
        at = next(i for i, line in enumerate(status) if line.startswith("queued  2: run 1 is running"))
        assert "second  priority 5" in status[at + 1] and f"run {second} is queued before it" in status[at + 2]
        assert "priority  5" in ctl(d, "show", second).stdout
        for words, says in ((["x", 1], "not a run ID"), ([first, "high"], "whole number"), ([first, 101], "-100 to 100"),
                ([long, 1], "is running")):
            result = ctl(d, "priority", *words)
            assert result.returncode == (12 if words[0] == long else 2) and says in result.stderr
        result = ctl(d, "priority", 99, 1)
        assert result.returncode == 7 and "run 99: no such run" in result.stderr
        ctl(d, "cancel", long)
        assert ctl(d, "wait", first, second).returncode == 0
        result = ctl(d, "priority", first, 1)
        assert result.returncode == 12 and f"run {first}: is done, only a queued run can be moved; see: gpt2ctl list --state queued" in result.stderr


def test_rerun(daemon):
    with daemon() as d:
        first = submit(d, spec("first", 3))
        result = ctl(d, "rerun", first, "--set", "work.optimizer_steps=5", "--name", "again", "--follow")
        assert result.returncode == 0 and "run 2 again queued" in result.stdout
        shown = one_object(ctl(d, "show", 2, "--json"))
        assert shown["run"]["rerun_of"] == first and shown["run"]["name"] == "again"
        assert shown["spec"]["work"]["optimizer_steps"] == 5
        assert "rerun of  run 1" in ctl(d, "show", 2).stdout
        same = int(ctl(d, "rerun", 2, "--print-id", "--priority", 3).stdout)
        runs = {run["id"]: run for run in one_object(ctl(d, "list", "--json"))["runs"]}
        assert runs[same]["spec_sha256"] == runs[2]["spec_sha256"] and runs[same]["rerun_of"] == 2
        assert ctl(d, "rerun", 99).returncode == 7
        result = ctl(d, "rerun", 1, "--set", "seq_len=x", "--name", "a/b")
        assert result.returncode == 2 and "run 1:" in result.stderr and "seq_len" in result.stderr
        assert ctl(d, "rerun", 1, "--dry-run", "--follow").returncode == 2
        refused = ctl(d, "rerun", 1, "--set", "train_batch_size=8", "--set", "gradient_accumulation_steps=1",
            "--set", "train_micro_batch_size_per_gpu=3")
        assert refused.returncode == 2 and "run 1: " in refused.stderr and "run 1:" not in refused.stderr.replace("run 1: ", "")
        ctl(d, "wait", same)
        assert len(states(d)) == 3


# ---- cancel ----

def test_cancel_of_several(daemon):
    with daemon() as d:
        runs = [submit(d, spec("long-ms20", 100000)), submit(d, spec("a")), submit(d, spec("b"))]
        begun(d, runs[0])
        result = ctl(d, "cancel", runs[1], 99, runs[0])
        assert result.returncode == 7 and "run 99: no such run" in result.stderr
        assert f"run {runs[1]} is cancelled" in result.stdout
        result = ctl(d, "cancel", runs[1], 99, "--json")
        assert result.stderr == ""
        rows = one_object(result)
        assert rows["exit"] == 7 and [row["exit"] for row in rows["runs"]] == [0, 7]
        assert rows["runs"][0]["already"] and "no such run" in rows["runs"][1]["error"]
        result = ctl(d, "wait", 99, "--json")
        assert result.stderr == "" and "no such run" in one_object(result)["runs"][0]["error"]
        assert ".Ic wait\nand\n.Ic cancel\nreport an error of a run only" in (BUILD / "ctl" / "gpt2ctl.1").read_text()
        assert ctl(d, "wait", runs[2]).returncode == 0


def test_cancel_all(daemon):
    """Queued runs and those in progress."""
    with daemon() as d:
        begun(d, submit(d, spec("long-ms20", 100000)))
        submit(d, spec("r0"))
        assert "would cancel 1 queued run and 1 run in progress; confirm with --yes" in ctl(d, "cancel", "--all").stderr
        for i in range(1, 5):
            submit(d, spec(f"r{i}"))
        result = ctl(d, "cancel", "--all")
        assert result.returncode == 2 and "would cancel 5 queued runs and 1 run in progress; confirm with --yes" in result.stderr
        assert "cannot be used with IDs" in ctl(d, "cancel", "--all", 3).stderr
        assert "or --all" in ctl(d, "cancel").stderr
        assert states(d) == ["running"] + ["queued"] * 5
        assert ctl(d, "cancel", "--all", "--yes").returncode == 0
        assert states(d) == ["cancelled"] * 6
        assert ctl(d, "cancel", "--all", "--yes").stdout == "nothing to cancel\n"


# ---- wait ----

def test_wait_for_any(daemon):
    with daemon() as d:
        long = begun(d, submit(d, spec("long-ms20", 100000)))
        queued = submit(d, spec("queued"))
        waiting = started(d, "wait", "--any", long, queued)
        assert ctl(d, "cancel", queued).returncode == 0
        out, _ = waiting.communicate(timeout=PATIENCE_S)
        assert waiting.returncode == 6 and out == f"run {queued} queued: cancelled: asked for\n"
        result = one_object(ctl(d, "wait", "--any", long, queued, queued, "--json"))
        assert [row["id"] for row in result["runs"]] == [queued]
        ctl(d, "cancel", long)


def test_others_may_not(daemon):
    """Another user may not change the queue; the error says who may."""
    if os.getuid() != 0:
        pytest.skip("needs two users")
    nobody = 65534
    with daemon(options=["--socket-mode", "0666"]) as d:
        d.home.chmod(0o755)
        d.socket.parent.chmod(0o755)
        run = begun(d, submit(d, spec("long-ms20", 100000)))
        queued = submit(d, spec("queued"))

        def other(*args):
            return subprocess.run([CTL, *map(str, args)], capture_output=True, text=True, env=environment(d),
                timeout=60, user=nobody, group=nobody, extra_groups=[])
        for verb in ("drain", "resume", "release", "warm"):
            result = other(verb)
            assert result.returncode == 9 and f"{verb}: only root, the user of gpt2d" in result.stderr, result
        for words in (("priority", queued, -5), ("cancel", queued), ("cancel", run), ("keep", queued)):
            said = f"run {words[1]}: belongs to another user; ask uid {os.geteuid()}, or an admin"
            assert said in other(*words).stderr, words
        assert other("cancel", "--all", "--yes").stdout == "nothing to cancel\n"
        assert other("wait", run, "-t", 0.1).returncode == 124
        assert states(d) == ["running", "queued"]
        refused = other("rerun", queued, "--priority", 9)
        assert refused.returncode == 9 and "priority: 9: only root, gpt2d's own user" in refused.stderr
        assert states(d) == ["running", "queued"]
        again = int(json.loads(other("rerun", queued, "--json", "--priority", -1).stdout)["id"])
        shown = one_object(ctl(d, "show", again, "--json"))["run"]
        assert shown["uid"] == nobody and shown["rerun_of"] == queued and shown["priority"] == -1
        assert other("priority", again, -9).returncode == 0
        assert other("priority", again, 0).returncode == 0
        refused = other("priority", again, 1)
        assert refused.returncode == 9 and f"run {again}: priority: 1: only root" in refused.stderr
        assert ctl(d, "priority", again, 9).returncode == 0
        assert other("priority", again, 5).returncode == 0 and other("priority", again, 6).returncode == 9
        assert other("cancel", "--all", "--yes").stdout == f"run {again} is cancelled\n"
        ctl(d, "cancel", run)
