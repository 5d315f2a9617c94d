"""Figures for a monitoring system: Prometheus text, which a strict parser reads."""

import json
import math
import os
import pwd
import re
import stat
import subprocess
from pathlib import Path

import pytest

from helpers import BUILD, ROOT, spec, wait_for
from test_ctl_daemon import ctl

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SUFFIXES = {"gauge": "", "counter": "_total"}


def digits(number):
    """What is significant in a number's text."""
    return re.sub(r"e.*|[-.]", "", number).strip("0")


def parse(text):
    """{(name, labels): value} of OpenMetrics text with gauges and counters; AssertionError for other text."""
    assert text.endswith("# EOF\n"), "no end"
    lines = text[:-len("# EOF\n")].split("\n")
    assert lines.pop() == ""
    samples, families, family = {}, {}, None
    for line in lines:
        assert line and line == line.strip(), repr(line)
        comment = re.fullmatch(rf"# (TYPE|UNIT|HELP) ({NAME}) (.*)", line)
        if comment:
            kind, name, value = comment.groups()
            if name != family:
                assert name not in families, f"{name} is interleaved"
                families[name], family = {}, name
            assert kind not in families[name], f"{kind} of {name} twice"
            assert not any(key[0].startswith(name) and key[0] in (name, name + "_total") for key in samples), line
            assert value, line
            if kind == "TYPE":
                assert value in SUFFIXES
            if kind == "UNIT":
                assert name.endswith("_" + value)
            families[name][kind] = value
            continue
        match = re.fullmatch(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (NaN|[+-]Inf|-?[0-9][0-9.]*(?:e[+-]?[0-9]+)?)",
            line)
        assert match, repr(line)
        name, labels, value = match[1], tuple(re.findall(LABEL, match[2] or "")), float(match[match.lastindex])
        assert family and name == family + SUFFIXES[families[family]["TYPE"]], f"{name} in {family}"
        assert len({key for key, _ in labels}) == len(labels), line
        assert (name, labels) not in samples, f"{line} twice"
        assert families[family]["TYPE"] != "counter" or value >= 0
        assert not math.isfinite(value) or digits(match[match.lastindex]) == digits(repr(value)), f"{line}: not the shortest"
        samples[name, labels] = value
    for name, described in families.items():
        assert {"TYPE", "HELP"} <= set(described), name
        assert any(key[0].startswith(name) for key in samples), f"{name} has no sample"
    return samples


@pytest.mark.parametrize("text", [
    "", "a 1\n", "# EOF", "# EOF\n# EOF\n", "# TYPE a gauge\n# HELP a x\na 1\n",
    "# TYPE a gauge\n# HELP a x\na  1\n# EOF\n", "# TYPE a counter\n# HELP a x\na 1\n# EOF\n",
    "# TYPE a gauge\na 1\n# EOF\n", "# TYPE a gauge\n# HELP a x\na 1\na 2\n# EOF\n",
    "# TYPE a gauge\n# UNIT a seconds\n# HELP a x\na 1\n# EOF\n", "# TYPE a gauge\n# HELP a x\na{b=c} 1\n# EOF\n",
    "# TYPE a gauge\n# HELP a x\na 1,5\n# EOF\n", "# TYPE a gauge\n# HELP a x\nb 1\n# EOF\n",
    "# TYPE a gauge\n# HELP a x\n# EOF\n", "\n# EOF\n", "# TYPE a gauge\n# HELP a x\na 0.10000000000000001\n# EOF\n",
])
def test_the_parser_is_strict(text):
    with pytest.raises(AssertionError):
        parse(text)


def figures(text, socket):
    """parse(text) without the label that each sample has: the daemon's socket."""
    values = parse(as_openmetrics(text))
    assert all(labels[0] == ("socket", str(socket)) for _, labels in values)
    return {(name, labels[1:]): value for (name, labels), value in values.items()}


def as_openmetrics(text):
    """The text format of Prometheus as OpenMetrics: its families have the names of their samples."""
    families = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)
    assert "# UNIT" not in text and "# EOF" not in text
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in families)
    return re.sub(r"^(# (?:TYPE|HELP) \S+?)_total ", r"\1 ", text, flags=re.M) + "# EOF\n"


def test_it_says_what_is_so(daemon):
    with daemon(ranks=2) as d, d.client() as c:
        c.wait(c.submit(spec("a")))
        c.wait(c.submit(spec("fail.r0.s1")))
        values = figures(ctl(d, "metrics").stdout, d.socket)
        assert values["gpt2d_runs", (("state", "done"),)] == 1 == values["gpt2d_runs", (("state", "failed"),)]
        assert values["gpt2d_queue_length", ()] == 0 and values["gpt2d_ranks", ()] == 2
        assert values["gpt2d_engine_state", (("state", "ready"),)] == 1
        assert sum(value for (name, _), value in values.items() if name == "gpt2d_engine_state") == 1
        assert not any(name.startswith("gpt2d_run_") for name, _ in values)
        assert not any("gpu" in name for name, _ in values)
        assert values["gpt2d_clients", ()] == 2 and values["gpt2d_resident_memory_bytes", ()] > 1 << 20
        assert 0 < values["gpt2d_state_dir_free_bytes", ()] <= values["gpt2d_state_dir_size_bytes", ()]
        assert values["gpt2d_store_busy_seconds", ()] >= 0 == values["gpt2d_store_failing", ()]
        build = [labels for name, labels in values if name == "gpt2d_build_info"]
        assert dict(build[0])["build"] == c.greeting["build"]

        run = c.submit(spec("ms20", 100000))
        c.submit(spec("b"))
        wait_for(lambda: "gpt2d_run_loss{" in c.call("metrics")["text"], "a step")
        values = figures(c.call("metrics")["text"], d.socket)
        assert values["gpt2d_run_id", ()] == run and values["gpt2d_queue_length", ()] == 1
        assert values["gpt2d_run_steps", ()] == 100000 and values["gpt2d_run_tokens_per_second", ()] == 1000
        assert values["gpt2d_run_step_time_seconds", ()] == pytest.approx(0.02)
        assert values["gpt2d_run_segment", ()] == 1 == values["gpt2d_run_segments", ()]
        assert math.isfinite(values["gpt2d_run_remaining_seconds", ()])
        os.kill(d.engines()[1], 9)
        c.wait(run)
        wait_for(lambda: c.call("status")["engine"]["state"] == "ready", "the engines")
        assert figures(c.call("metrics")["text"], d.socket)["gpt2d_engine_restarts_total", ()] == 1


def test_gpus(daemon):
    """Figures that a driver reports are there with their unit, others are not; they end with the engines."""
    gpus = [{"utilization": 0.98, "memory_used_bytes": 61000000000, "memory_total_bytes": 85000000000, "temperature_c": 54.0,
        "power_w": 412.345, "other_processes": 2, "other_pid": os.getpid(), "other_memory_bytes": 12000000000,
        "serial": "x"}, {"utilization": 0.5, "memory_used_bytes": None,
        "memory_total_bytes": "many", "temperature_c": [], "power_w": None, "other_processes": None}]
    with daemon(ranks=2, environment={"GPT2D_FAKE_GPU": json.dumps(gpus)}) as d, d.client() as c:
        ranks = wait_for(lambda: all(rank["gpu"] for rank in c.call("status")["engine"]["ranks"]) and
            c.call("status")["engine"]["ranks"], "what both ranks tell")
        name = Path("/proc/self/comm").read_text().strip()
        del gpus[0]["serial"]
        assert ranks[0]["gpu"] == {**gpus[0], "other_uid": os.geteuid(), "other_command": name}
        assert ranks[1]["gpu"] == {**dict.fromkeys([*gpus[1], "other_pid", "other_memory_bytes"]), "utilization": 0.5}
        values = {name: value for (name, labels), value in figures(c.call("metrics")["text"], d.socket).items()
            if "_gpu_" in name and dict(labels) == {"rank": "0", "name": "fake"}}
        assert values == {"gpt2d_gpu_memory_bytes": 1, "gpt2d_gpu_memory_used_bytes": 61000000000,
            "gpt2d_gpu_utilization_ratio": 0.98, "gpt2d_gpu_temperature_celsius": 54,
            "gpt2d_gpu_power_watts": 412.345, "gpt2d_gpu_other_processes": 2}
        assert {name for name, labels in figures(c.call("metrics")["text"], d.socket) if dict(labels).get("rank") == "1"} == \
            {"gpt2d_gpu_memory_bytes", "gpt2d_gpu_utilization_ratio"}
        text = ctl(d, "status").stdout
        who = f"{pwd.getpwuid(os.geteuid()).pw_name} (uid {os.geteuid()}), pid {os.getpid()}, 12.0 GB"
        assert f"rank 0: 2 other processes on its GPU disturb the measurement: {name} of {who}\n" in text
        assert "rank 1: " not in text
        line = next(line for line in ctl(d, "top").stdout.splitlines() if "61.0 GB" in line)
        assert "98%" in line and "54 C" in line and "412 W" in line and "\u2588" in line
        c.call("release", wait=True)
        assert [rank["gpu"] for rank in c.call("status")["engine"]["ranks"]] == [None, None]
        values = figures(c.call("metrics")["text"], d.socket)
        assert values["gpt2d_engine_state", (("state", "released"),)] == 1
        assert not any(name.startswith("gpt2d_gpu_power") for name, _ in values)


def test_file(daemon, tmp_path):
    path = tmp_path / "gpt2d.prom"
    with daemon(options=["--metrics-file", str(path), "--metrics-period", "1"]) as d:
        wait_for(path.exists, "the file")
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        first = parse(as_openmetrics(path.read_text()))
        wait_for(lambda: parse(as_openmetrics(path.read_text())) != first, "another one")
        assert [entry.name for entry in tmp_path.iterdir() if not entry.name.startswith(".")] == ["gpt2d.prom"]
        with d.client() as c:
            assert c.wait(c.submit(spec("a")))["state"] == "done"
    assert not path.exists()


def test_a_file_that_cannot_be_written(daemon, tmp_path):
    with daemon(options=["--metrics-file", str(tmp_path / "none" / "gpt2d.prom"), "--metrics-period", "1"]) as d:
        wait_for(lambda: "metrics_file: " in d.said(), "a word about it")
        with d.client() as c:
            assert c.wait(c.submit(spec("a")))["state"] == "done"
        (tmp_path / "none").mkdir()
        wait_for((tmp_path / "none" / "gpt2d.prom").exists, "the file")
        assert d.said().count("tried again each period") == 1 and "metrics_file: /" in d.said()
        assert "//" not in d.said().replace(str(tmp_path), "")


def test_no_settings_and_no_log():
    """With -c /dev/null no file is read. The figures must not replace a device."""
    command = [BUILD / "daemon" / "gpt2d", "-c", "/dev/null", "-n"]
    assert subprocess.run([*command, "--log-file", "/dev/null"], capture_output=True, timeout=60, check=False).returncode == 0
    done = subprocess.run([*command, "--metrics-file", "/dev/null"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and done.stderr.startswith("gpt2d: metrics_file: /dev/null: is not a regular file")


def test_every_name_is_in_the_manual(daemon):
    page = (ROOT / "daemon" / "gpt2d.8").read_text()
    source = (ROOT / "daemon" / "metrics.c").read_text()
    names = set(re.findall(r'"(gpt2d_[a-z_]+)"', source))
    assert len(names) > 20
    assert names == set(re.findall(r"\bgpt2d_[a-z_]+", page))
    with daemon() as d:
        assert json.loads(ctl(d, "metrics", "--json").stdout)["text"].startswith("# TYPE gpt2d_build_info gauge\n")
