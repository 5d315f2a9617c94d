"""gpt2ctl data prepare: what it writes, read back; odd inputs; nothing left behind."""

import gzip
import json
import os
import re
import signal
import stat
import struct
import subprocess
from pathlib import Path

import pytest

from helpers import PATIENCE_S, wait_for

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GPT2D_BUILD", ROOT / "build"))
CTL = BUILD / "ctl" / "gpt2ctl"


def prepare(*args, input=None, **more):
    return subprocess.run([CTL, "data", "prepare", *map(str, args)], input=input, capture_output=True, timeout=60, **more)


def read(path, headed=True):
    raw = Path(path).read_bytes()
    if headed:
        header = struct.unpack("<256i", raw[:1024])
        assert header[:2] == (20240520, 1) and not any(header[3:])
        assert header[2] * 2 == len(raw) - 1024
        raw = raw[1024:]
    return list(struct.unpack(f"<{len(raw) // 2}H", raw))


def test_round_trip(tmp_path):
    text = bytes(range(256)) * 300 # past one chunk, and no UTF-8
    (tmp_path / "a.txt").write_bytes(text)
    out = tmp_path / "a.bin"
    result = prepare(tmp_path / "a.txt", "-o", out)
    assert result.returncode == 0, result.stderr
    assert read(out) == list(text)
    assert b"76,800 tokens" in result.stdout and b"vocab_size 257, largest id found 255" in result.stdout
    assert prepare(tmp_path / "a.txt", "-o", out, "--format", "raw").returncode == 0
    assert read(out, headed=False) == list(text)


def test_documents_are_separated(tmp_path):
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"")
    out = tmp_path / "o.bin"
    result = prepare(tmp_path / "a", tmp_path / "b", "-", "-o", out, "--json", input=b"two")
    assert result.returncode == 0
    assert read(out) == [*b"one", 256, 256, *b"two"]
    value = json.loads(result.stdout)
    assert value["schema"] == 1 and value["vocab_size"] == 257 and value["largest_token"] == 256
    assert [row["tokens"] for row in value["inputs"]] == [3, 0, 3]
    assert value["files"] == [{"use": "train", "path": str(out), "tokens": 8, "bytes": 1040, "format": "headed"}]


def test_validation_split(tmp_path):
    text = bytes(i % 251 for i in range(100001))
    (tmp_path / "a.txt").write_bytes(text)
    result = prepare("--val-fraction", "0.1", tmp_path / "a.txt", "--output", tmp_path / "a.bin")
    assert result.returncode == 0, result.stderr
    train, val = read(tmp_path / "a_train.bin"), read(tmp_path / "a_val.bin")
    assert len(val) == 10000 and bytes(train + val) == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "a_train.bin", "a_val.bin"]


def test_one_huge_line(tmp_path):
    with open(tmp_path / "a.txt", "wb") as file:
        file.write(b"x" * 5000000)
    assert prepare(tmp_path / "a.txt", "-o", tmp_path / "a.bin").returncode == 0
    assert len(read(tmp_path / "a.bin")) == 5000000


@pytest.mark.parametrize("args, says", [
    (["", "-o", "o.bin"], 'gpt2ctl: "": No such file or directory'),
    (["missing", "-o", "o.bin"], "missing: No such file or directory"),
    ([".", "-o", "o.bin"], "Is a directory"),
    (["empty", "-o", "o.bin"], "o.bin: 0 tokens, at least 2 needed"),
    (["one", "-o", "o.bin"], "o.bin: 1 tokens, at least 2 needed"),
    (["text", "-o", "o.bin", "--val-fraction", "0.1"], "--val-fraction: 0.1 of 9 tokens: o_val.bin: 0 tokens, at least 2 needed"),
    (["text", "-o", "o.bin", "--val-fraction", "0.9"], "--val-fraction: 0.9 of 9 tokens: o_train.bin: 1 tokens, at least 2 needed"),
    (["text"], "missing --output OUT"),
    (["text", "-o", "-"], "--output: -: cannot write to standard output (./- is a file)"),
    (["-o", "o.bin"], "missing argument (expected IN..., found 0)"),
    (["text", "-o", "text"], "is also the output"),
    (["-", "text", "-", "-", "-o", "o.bin"], 'data prepare: "-" was given 3 times; standard input can be read once'),
    (["text", "-o", "no/such/folder/o.bin"], "gpt2ctl: no/such/folder/o.bin: the folder no/such/folder is not there, "
        "and is not made: make it, or name a file in another one"),
    (["text", "-o", "text/o.bin"], "gpt2ctl: text/o.bin: text: Not a directory"),
    (["text", "-o", "o.bin", "--tokenizer", "byte"], "did you mean bytes"),
    (["text", "-o", "o.bin", "--format", "csv"], "--format: csv: headed or raw is needed"),
    (["text", "-o", "o.bin", "--format", ""], '--format: "": headed or raw is needed'),
    (["text", "-o", "o.bin", "--format", "head"], "--format: head: headed or raw is needed"),
    (["text", "-o", "o.bin", "--val-fraction", "1.5"], "from 0 to 0.999"),
])
def test_refusals(tmp_path, args, says):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "one").write_bytes(b"x")
    (tmp_path / "text").write_bytes(b"some text")
    result = prepare(*args, cwd=tmp_path)
    assert result.returncode == 2
    assert says in result.stderr.decode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "one", "text"]
    assert (tmp_path / "text").read_bytes() == b"some text"


def test_a_compressed_file_is_unpacked_as_the_help_says(tmp_path):
    (tmp_path / "FILE").write_bytes(gzip.compress(b"some text"))
    said = " ".join(prepare("--help").stdout.decode().split())
    command = re.search("Unpack a compressed file first: (gzip .*? -)[.]", said)[1]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path, timeout=60,
        env={**os.environ, "PATH": f"{CTL.parent}:{os.environ['PATH']}"})
    assert read(tmp_path / "OUT") == list(b"some text")
    assert prepare("FILE", "-o", "OUT", cwd=tmp_path).returncode == 2
    assert read(tmp_path / "OUT") == list(b"some text")


@pytest.mark.parametrize("begin, says", [
    (b"\x1f\x8b\x08\x00", "a gzip file; unpack it first: gzip -dc FILE | gpt2ctl data prepare -o OUT -"),
    (b"PK\x03\x04", "a zip file; unpack it first"),
    (b"\x93NUMPY", "a numpy file, not text"),
    ((20240520).to_bytes(4, "little"), "already a token file; name it in data.train of a run spec"),
], ids=["gzip", "zip", "numpy", "tokens"])
def test_what_is_surely_no_text_is_refused(tmp_path, begin, says):
    (tmp_path / "in").write_bytes(begin + bytes(range(256)))
    result = prepare(tmp_path / "in", "-o", tmp_path / "out")
    assert (result.returncode, result.stderr) == (2, f"gpt2ctl: {tmp_path / 'in'}: {says}\n".encode())
    assert not (tmp_path / "out").exists()


def test_failure_keeps_the_older_file(tmp_path):
    (tmp_path / "o.bin").write_bytes(b"older")
    assert prepare("missing", "-o", "o.bin", cwd=tmp_path).returncode == 2
    assert (tmp_path / "o.bin").read_bytes() == b"older"


def test_only_a_regular_file_is_replaced(tmp_path):
    text, pipe, link, target = tmp_path / "text", tmp_path / "pipe", tmp_path / "link", tmp_path / "target.bin"
    text.write_text("some text\n")
    os.mkfifo(pipe)
    link.symlink_to(target)
    for path, what in ((pipe, "pipe"), (link, "symbolic link to nothing"), (tmp_path, "directory")):
        result = prepare(text, "-o", path)
        assert result.returncode == 2
        assert result.stderr.decode() == f"gpt2ctl: {path}: a {what}, a regular file or none is expected\n"
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    target.write_bytes(b"older")
    assert prepare(text, "-o", link).returncode == 0
    assert link.is_symlink() and read(target)[:4] == list(b"some")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "pipe", "target.bin", "text"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_of_one_that_is_interrupted(tmp_path, number):
    """Not even a part of the file, and an older one stays."""
    (tmp_path / "o.bin").write_bytes(b"older")
    with subprocess.Popen([CTL, "data", "prepare", "-o", tmp_path / "o.bin", "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(b"abc" * 100000)
        process.stdin.flush()
        wait_for(lambda: (tmp_path / "o.bin.tmp").exists(), "the part of the file")
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 6
        assert b"interrupted; nothing was written" in process.stderr.read()
    assert [path.name for path in tmp_path.iterdir()] == ["o.bin"] and (tmp_path / "o.bin").read_bytes() == b"older"
