"""How gpt2d ends: by a signal or a shutdown, with a run in progress or nearly done."""

import json
import signal

import pytest

from helpers import BUILD, PATIENCE_S, Daemon, refusal, spec, wait_for


@pytest.mark.parametrize("number, environment, reason", [(signal.SIGTERM, {}, "daemon_stop: "), (signal.SIGINT, {}, "daemon_stop: "),
    (signal.SIGUSR1, {}, "daemon_stop: "), (signal.SIGUSR1, {"SLURM_JOB_ID": "7"}, "preempted: ")])
def test_stop_by_signal(tmp_path, number, environment, reason):
    with Daemon(ranks=2, home=tmp_path, environment=environment) as d:
        with d.client() as c:
            run = c.submit(spec("long-ms20", 100000))
            again = c.submit(spec("again", restart=True))
            wait_for(lambda: c.state(run) == "running", "running")
            c.call("follow", id=run)
            d.process.send_signal(number)
            events = []
            while (event := c.event()) is not None:
                events.append(event)
            assert events[-1]["method"] == "run.done"
            assert events[-1]["params"]["state"] == "interrupted" and events[-1]["params"]["reason"].startswith(reason)
        assert d.process.wait(PATIENCE_S) == 0
        assert not d.socket.exists()
        d.start()
        with d.client() as c:
            assert c.state(run) == "interrupted"
            assert c.wait(again)["state"] == "done"


def test_signals_that_come_together_are_one(tmp_path):
    """Slurm sends SIGTERM twice within milliseconds: the step in progress ends, and its metrics are kept."""
    with Daemon(home=tmp_path, engine=BUILD / "engine/gpt2-engine-cpu") as d:
        with d.client() as c:
            run = c.submit(spec("long", 100000, seq_len=256, train_micro_batch_size_per_gpu=8))
            c.call("follow", id=run)
            while c.event()["method"] != "run.step":
                pass
            d.process.terminate()
            wait_for(lambda: "signal 15" in d.said(), "the first signal")
            d.process.terminate()
            assert c.followed(run)[-1]["params"]["state"] == "interrupted"
        assert d.process.wait(PATIENCE_S) == 0
        kept = json.loads((d.state / "runs" / f"{run}-long" / "training_metrics.json").read_text())["gpt2d"]
        assert kept["status"] == "interrupted" and kept["reason"].startswith("daemon_stop: ")
        d.start()


def test_stop_leaves_a_run_its_time(tmp_path):
    """stop_timeout: a run that ends within it is done, another is interrupted, and no other run starts."""
    with Daemon(home=tmp_path, options=("--stop-timeout", "3600")) as d:
        with d.client() as c:
            run = c.submit(spec("held"))
            queued = c.submit(spec("queued"))
            wait_for(lambda: c.state(run) == "running", "running")
            c.call("follow", id=run)
            d.process.terminate()
            wait_for(lambda: c.call("status")["daemon"]["state"] == "stopping", "the stop")
            d.unhold()
            assert c.followed(run)[-1]["params"]["state"] == "done"
        assert d.process.wait(PATIENCE_S) == 0
        d.command[d.command.index("3600")] = "1"
        d.start()
        with d.client() as c:
            assert c.wait(queued)["state"] == "done"
            run = c.submit(spec("long-ms20", 100000))
            wait_for(lambda: c.state(run) == "running", "running")
            c.call("follow", id=run)
            d.process.terminate()
            assert c.followed(run)[-1]["params"]["state"] == "interrupted"
        assert d.process.wait(PATIENCE_S) == 0
        d.command[d.command.index("--stop-timeout") + 1] = "3600"
        d.start()
        with d.client() as c:
            run = c.submit(spec("long-ms20", 100000))
            wait_for(lambda: c.state(run) == "running", "running")
            c.call("follow", id=run)
            d.process.terminate()
            wait_for(lambda: c.call("status")["daemon"]["state"] == "stopping", "the stop")
            d.process.terminate()
            assert c.followed(run)[-1]["params"]["state"] == "interrupted"
        assert d.process.wait(PATIENCE_S) == 0
        d.start()


def test_stop_lets_a_finished_run_finish(tmp_path):
    """Its work is done and its artifacts are being written: gpt2d waits for them."""
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            run = c.submit(spec("endheld"))
            c.submit(spec("queued"))
            wait_for(lambda: c.state(run) == "finishing", "finishing")
        assert d.stop() == 0
        d.start()
        with d.client() as c:
            assert c.state(run) == "done"
            assert c.state(2) == "interrupted" or c.wait(2)["state"] == "done"


def test_shutdown_waits_for_the_run(tmp_path):
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            run = c.submit(spec("held"))
            queued = c.submit(spec("queued"))
            wait_for(lambda: c.state(run) == "running", "running")
            assert c.call("shutdown") == {"running": run, "stopping": False}
            assert refusal(c.submit, spec("late")).code == -32005
            c.call("follow", id=run)
            d.unhold()
            assert c.followed(run)[-1]["params"]["state"] == "done"
        assert d.process.wait(PATIENCE_S) == 0
        d.start()
        with d.client() as c:
            assert c.wait(queued)["state"] == "done"


def test_cancelled_while_it_goes_back_to_the_queue(tmp_path):
    """Cancelled while its engines end, after which it would be queued again: it is not, and ends once."""
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            run = c.submit(spec("long-ms20", 100000, restart=True))
            wait_for(lambda: c.state(run) == "running", "running")
            requests = [("shutdown", {"now": True}), ("shutdown", {"now": True}), ("cancel", {"id": run})]
            c.send_raw(b"".join(json.dumps({"jsonrpc": "2.0", "id": 90 + i, "method": method, "params": params})
                .encode() + b"\n" for i, (method, params) in enumerate(requests)))
            c.reply(90)
            c.reply(91)  # the second one waits for no step
            assert c.reply(92)["state"] == "cancelled"
        assert d.process.wait(PATIENCE_S) == 0
        d.start()
        with d.client() as c:
            shown = c.call("show", id=run)
        assert [t["state"] for t in shown["transitions"]][-3:] == ["starting", "running", "cancelled"]
        assert shown["run"]["state"] == "cancelled"


def test_shutdown_now(tmp_path):
    with Daemon(home=tmp_path) as d:
        with d.client() as c:
            run = c.submit(spec("long-ms20", 100000, restart=True))
            wait_for(lambda: c.state(run) == "running", "running")
            c.call("shutdown", now=True)
        assert d.process.wait(PATIENCE_S) == 0
        d.start()
        with d.client() as c:
            wait_for(lambda: c.state(run) == "running", "running again")
            assert [t["state"] for t in c.call("show", id=run)["transitions"]] == ["queued", "starting",
                "running", "interrupted", "queued", "starting", "running"]
