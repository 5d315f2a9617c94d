"""gpt2ctl data: what prepare writes, read back; odd inputs; nothing left behind; show and verify."""

import gzip
import hashlib
import json
import os
import random
import shutil
import signal
import stat
import struct
import subprocess
from pathlib import Path

import pytest

from bpe_reference import ALPHABET, Reference, small_vocabulary
from helpers import PATIENCE_S, Daemon, wait_for
from terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GPT2D_BUILD", ROOT / "build"))
CTL = BUILD / "ctl" / "gpt2ctl"


def prepare(*args, input=None, **more):
    return subprocess.run([CTL, "data", "prepare", *map(str, args)], input=input, capture_output=True, timeout=60, **more)


def data(verb, *args):
    return subprocess.run([CTL, "data", verb, *map(str, args)], capture_output=True, timeout=60, text=True)


def zstd(text, *args):
    return subprocess.run(["zstd", "-c", *args], input=text, check=True, capture_output=True, timeout=60).stdout


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
    (["text", "-o", "no/such/folder/o.bin"], "gpt2ctl: no/such/folder/o.bin: parent directory does not exist\n"
        "make it: mkdir -p no/such/folder\n"),
    (["text", "-o", "text/o.bin"], "gpt2ctl: text/o.bin: text: Not a directory"),
    (["text", "-o", "o.bin", "--tokenizer", "byte"], "did you mean bytes"),
    (["text", "-o", "o.bin", "--vocab", "."], "--vocab: the tokenizer bytes has no vocabulary file; use --tokenizer gpt2"),
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


@pytest.mark.parametrize("pack", ["gzip", "gzip, two members", "zstd"])
def test_a_compressed_file_is_unpacked(tmp_path, pack):
    text = random.Random(5).randbytes(100000) + b"a" * 1000000
    if pack == "zstd":
        packed = zstd(text)
    elif pack == "gzip":
        packed = gzip.compress(text)
    else:
        packed = gzip.compress(text[:7]) + gzip.compress(text[7:])
    (tmp_path / "FILE").write_bytes(packed)
    result = prepare("FILE", "-o", "OUT", "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["inputs"][0]["bytes"] == len(text)
    assert bytes(read(tmp_path / "OUT")) == text
    (tmp_path / "FILE").write_bytes(packed[:-9])
    result = prepare("FILE", "-o", "OUT", cwd=tmp_path)
    assert result.returncode == 2 and b"FILE: " + pack[:4].encode() + b": the file is cut off" in result.stderr
    assert bytes(read(tmp_path / "OUT")) == text


def test_a_zstd_file_with_a_long_window_is_unpacked(tmp_path):
    packed = zstd(b"some text", "--long=31") # of a pipe: the frame keeps the window
    result = prepare("-", "-o", tmp_path / "OUT", input=packed)
    assert result.returncode == 0, result.stderr
    assert bytes(read(tmp_path / "OUT")) == b"some text"


@pytest.mark.parametrize("begin, says", [
    (b"\x1f\x8b\x08\x00", "gzip: invalid block type"),
    (b"\xfd7zXZ\x00", "an xz file; unpack it first: xz -dc FILE | gpt2ctl data prepare -o OUT -"),
    (b"BZh91AY", "a bzip2 file; unpack it first: bzip2 -dc FILE | gpt2ctl data prepare -o OUT -"),
    (b"PK\x03\x04", "a zip file; unpack it first"),
    (b"\x93NUMPY", "a numpy file, not text"),
    ((20240520).to_bytes(4, "little"), "already a token file; name it in data.train of a run spec"),
], ids=["gzip", "xz", "bzip2", "zip", "numpy", "tokens"])
def test_what_is_surely_no_text_is_refused(tmp_path, begin, says):
    (tmp_path / "in").write_bytes(begin + bytes(range(256)))
    result = prepare(tmp_path / "in", "-o", tmp_path / "out")
    assert (result.returncode, result.stderr) == (2, f"gpt2ctl: {tmp_path / 'in'}: {says}\n".encode())
    assert not (tmp_path / "out").exists()


# ---- GPT-2's tokens, over a small vocabulary, against a plain encoder in Python ----

VOCABULARY, MERGES = small_vocabulary()
END = VOCABULARY["<|endoftext|>"]
REFERENCE = Reference(VOCABULARY, MERGES)

MIXED = ("The quick brown fox's tail isn't 12 or \u0663\u0664; we'll see: x=1\n\n\tif (a  ==  b)\r\n"
    "\u00a0\u00a0caf\u00e9 \u3000 \u4f60\u597d\u4e16\u754c \U0001f600\U0001f468\u200d\U0001f469 \u180e \u0085 e\u0301 '" + " " * 70 + "end   ")


def write_vocabulary(folder, vocabulary, merges):
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    return folder


@pytest.fixture
def vocabulary(tmp_path):
    return write_vocabulary(tmp_path / "vocabulary", VOCABULARY, MERGES)


def gpt2(vocabulary, *args, **more):
    return prepare("--tokenizer", "gpt2", "--vocab", vocabulary, *args, **more)


def test_gpt2_tokens_of_text(tmp_path, vocabulary):
    texts = [MIXED * 3, "", "a" * 3000, "\ufeff" + MIXED[::-1]]
    for i, text in enumerate(texts):
        (tmp_path / f"{i}.txt").write_bytes(text.encode())
    result = gpt2(vocabulary, *(tmp_path / f"{i}.txt" for i in range(len(texts))), "-o", tmp_path / "o.bin", "--json")
    assert result.returncode == 0, result.stderr
    assert b"GPT-2's own vocabulary has 50257" in result.stderr
    expected = [REFERENCE.encode(text) for text in texts]
    assert read(tmp_path / "o.bin") == [id for ids in expected for id in [*ids, END]]
    value = json.loads(result.stdout)
    assert value["vocabulary"] == str(vocabulary / "vocab.json") and value["vocab_size"] == END + 1
    assert [row["tokens"] for row in value["inputs"]] == [len(ids) for ids in expected] and value["documents"] == 4


@pytest.mark.parametrize("seed", range(5))
def test_gpt2_merges_of_merged_tokens(tmp_path, seed):
    """Random merges of a, b and c, and of tokens that merges made; short and long pieces."""
    source, pool, merges = random.Random(seed), ["a", "b", "c"], []
    while len(merges) < 40:
        pair = source.choice(pool), source.choice(pool)
        if len("".join(pair)) <= 12 and "".join(pair) not in pool:
            merges.append(pair)
            pool.append("".join(pair))
    vocabulary = {token: id for id, token in enumerate([*ALPHABET.values(), *pool[3:], "<|endoftext|>"])}
    text = "\n".join("".join(source.choices("abc", k=source.choice([5, 20, 80, 600]))) for _ in range(200))
    (tmp_path / "a.txt").write_text(text)
    result = gpt2(write_vocabulary(tmp_path / "v", vocabulary, merges), tmp_path / "a.txt", "-o", tmp_path / "o.bin")
    assert result.returncode == 0, result.stderr
    assert read(tmp_path / "o.bin")[:-1] == Reference(vocabulary, merges).encode(text)


def test_gpt2_tokens_of_what_is_no_utf8(tmp_path, vocabulary):
    text = MIXED.encode()[:-1] + b"\xff\xe2\x82 \xed\xa0\x80\xf0\x9f\x98end"
    (tmp_path / "a").write_bytes(text)
    result = gpt2(vocabulary, tmp_path / "a", "-o", tmp_path / "o.bin")
    assert result.returncode == 0
    assert read(tmp_path / "o.bin") == [*REFERENCE.encode(text.decode(errors="replace")), END]
    places = text.decode(errors="replace").count("\ufffd") - MIXED.count("\ufffd")
    assert b"a: not all UTF-8; places that became U+FFFD: %d\n" % places in result.stderr
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "a"}\n{"text": "\xe9"}\n')
    (tmp_path / "c.jsonl").write_bytes('{"text": "\u00e9\ufffd"}'.encode())
    result = gpt2(vocabulary, tmp_path / "b.jsonl", tmp_path / "c.jsonl", "-o", tmp_path / "o.bin")
    assert b"b.jsonl: not all UTF-8; places that became U+FFFD: 1\n" in result.stderr and b"c.jsonl" not in result.stderr


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.ndjson.zst", "-"])
def test_json_lines(tmp_path, vocabulary, name):
    texts = [MIXED, "", "one\ntwo", "\ud83d\ude00 \ud83d"]
    lines = "\n".join(json.dumps({"id": i, "text": text, "more": {"text": 1}}) for i, text in enumerate(texts)) + "\n\n"
    packed = {"gz": gzip.compress, "st": zstd}.get(name[-2:], bytes)(lines.encode())
    (tmp_path / name).write_bytes(packed)
    for limit in (4, 3):
        result = gpt2(vocabulary, name, "-o", "o.bin", "--json", "--limit-docs", limit, *(["--field", "text"] if name == "-" else []),
            cwd=tmp_path, input=lines.encode() if name == "-" else None)
        assert result.returncode == 0, result.stderr
        # half of a surrogate pair becomes U+FFFD, as tiktoken has it
        clean = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts[:limit]]
        assert read(tmp_path / "o.bin") == [id for text in clean for id in [*REFERENCE.encode(text), END]]
        assert json.loads(result.stdout)["inputs"][0]["documents"] == limit


def test_tokens_do_not_depend_on_the_threads(tmp_path, vocabulary):
    """Many parts: the text is cut where no token crosses, and lines keep their order."""
    source = random.Random(7)
    words = MIXED.split(" ") + ["", "\n", "isn't", "\u3000", "\u00a0 "]
    text = " ".join(source.choice(words) for _ in range(200000))
    (tmp_path / "a.txt").write_text(text, newline="")
    with open(tmp_path / "b.jsonl", "w") as file:
        for i in range(0, len(text), 999):
            file.write(json.dumps({"text": text[i:i + 999]}) + "\n")
    outputs = set()
    for threads in (1, 2, 7):
        result = gpt2(vocabulary, tmp_path / "a.txt", tmp_path / "b.jsonl", "-o", tmp_path / "o.bin", "--threads", threads)
        assert result.returncode == 0, result.stderr
        outputs.add((tmp_path / "o.bin").read_bytes())
    assert len(outputs) == 1
    n = len(REFERENCE.encode(text[:20000].rsplit(" ", 1)[0]))
    assert read(tmp_path / "o.bin")[:n] == REFERENCE.encode(text[:20000].rsplit(" ", 1)[0])


@pytest.mark.parametrize("args, says", [
    (["a.jsonl", "--field", "body"], 'a.jsonl:1: member "body" is missing\nname the member that holds the text with --field; '
        "the line has: text"),
    (["bad.jsonl"], "bad.jsonl:3: not JSON: column 4"),
    (["text.txt", "--field", "text"], "text.txt:1: not JSON"),
    (["a.jsonl", "--vocab", "missing"], "--vocab: missing: No such file"),
    (["a.jsonl", "--vocab", "."], "--vocab: .: no vocabulary in this folder (expected vocab.json and merges.txt"),
    (["a.jsonl", "--vocab", "text.txt"], "not a vocabulary (expected vocab.json, merges.txt, tokenizer.json"),
    (["a.jsonl", "--limit-docs", "0"], "--limit-docs: 0"),
    (["a.jsonl", "--threads", "0"], "--threads: 0"),
])
def test_gpt2_refusals(tmp_path, vocabulary, args, says):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    (tmp_path / "bad.jsonl").write_text('{"text": "x"}\n\ntext\n')
    (tmp_path / "text.txt").write_text("some text\n")
    if "--vocab" not in args:
        args = [*args, "--vocab", "vocabulary"]
    result = prepare("--tokenizer", "gpt2", "-o", "o.bin", *args, cwd=tmp_path)
    assert result.returncode == 2 and says in result.stderr.decode(), result.stderr
    assert not list(tmp_path.glob("o.bin*"))


def test_the_vocabulary_is_found_in_the_usual_places(tmp_path, vocabulary):
    (tmp_path / "a.txt").write_text("some text")
    home = tmp_path / "home"
    home.mkdir()
    plain = {key: value for key, value in os.environ.items() if key not in (
        "GPT2D_VOCAB", "XDG_DATA_HOME", "HF_HOME", "HF_HUB_CACHE", "TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")}
    plain |= {"HOME": str(home), "TMPDIR": str(home)}
    none = prepare("--tokenizer", "gpt2", tmp_path / "a.txt", "-o", tmp_path / "o.bin", env=plain)
    if none.returncode == 0:
        pytest.skip("this machine has a vocabulary in /usr/share/gpt2d")
    assert none.returncode == 2 and b"no vocabulary found" in none.stderr and b"--vocab PATH or GPT2D_VOCAB" in none.stderr
    snapshot = home / ".cache/huggingface/hub/models--openai-community--gpt2/snapshots/0123"
    for folder in (snapshot, home / ".local/share/gpt2d/gpt2"):
        shutil.copytree(vocabulary, folder)
        result = prepare("--tokenizer", "gpt2", tmp_path / "a.txt", "-o", tmp_path / "o.bin", "--json", env=plain)
        assert json.loads(result.stdout)["vocabulary"] == str(folder / "vocab.json")
    named = plain | {"GPT2D_VOCAB": str(vocabulary)}
    result = prepare("--tokenizer", "gpt2", tmp_path / "a.txt", "-o", tmp_path / "o.bin", "--json", env=named)
    assert json.loads(result.stdout)["vocabulary"] == str(vocabulary / "vocab.json")


def test_progress_on_a_terminal(tmp_path, vocabulary):
    (tmp_path / "a.txt").write_text("some words and more of them\n" * 200000)
    command = [CTL, "data", "prepare", "-t", "gpt2", "--vocab", vocabulary, "-o", tmp_path / "o.bin", tmp_path / "a.txt"]
    with Terminal(list(map(str, command)), os.environ) as terminal:
        assert terminal.end() == 0
        assert "tok/s" in terminal.seen and " left" in terminal.seen and "%" in terminal.seen


def test_bucket200_takes_these_tokens_on_cpu_ranks(tmp_path, vocabulary):
    """As it is but for its data, and fp32."""
    (tmp_path / "a.txt").write_text(MIXED * 100)
    assert gpt2(vocabulary, tmp_path / "a.txt", "--val-fraction", "0.5", "-o", tmp_path / "a.bin").returncode == 0
    settings = [f"data.train={tmp_path}/a_train.bin", f"data.val={tmp_path}/a_val.bin", "fp16.enabled=false"]
    with Daemon(engine=BUILD / "engine/gpt2-engine-cpu", options=("--data-roots", str(tmp_path))) as d:
        result = subprocess.run([CTL, "--socket", d.socket, "submit", "--dry-run", ROOT / "etc/runs/bucket200.json",
            *(word for setting in settings for word in ("--set", setting))], capture_output=True, timeout=60, text=True)
    assert result.returncode == 0, result.stderr
    assert "163,037,184 parameters" in result.stdout and "64 segments" in result.stdout and "a_val.bin" in result.stdout


# ---- show and verify ----

def test_show(tmp_path, vocabulary):
    (tmp_path / "a.jsonl").write_text('{"text": "the fox isn\'t"}\n{"text": "12"}\n')
    assert gpt2(vocabulary, tmp_path / "a.jsonl", "-o", tmp_path / "o.bin", "--format", "raw").returncode == 0
    shown = json.loads(data("show", tmp_path / "o.bin", "--vocab", vocabulary, "--json").stdout)
    tokens = read(tmp_path / "o.bin", headed=False)
    assert shown["first_tokens"] == tokens and shown["text"] == "the fox isn't<|endoftext|>12<|endoftext|>"
    assert (shown["tokens"], shown["separators"], shown["format"]) == (len(tokens), 2, "raw")
    assert shown["sha256"] == hashlib.sha256((tmp_path / "o.bin").read_bytes()).hexdigest()
    text = data("show", tmp_path / "o.bin", "--vocab", vocabulary, "--first", 3).stdout
    assert f"first      {' '.join(map(str, tokens[:3]))}\n" in text and shown["sha256"] in text
    (tmp_path / "b.txt").write_bytes(b"a\n\033[31m\xff")
    assert prepare(tmp_path / "b.txt", "-o", tmp_path / "b.bin").returncode == 0
    assert 'text       "a\\n\\u001B[31m' in data("show", tmp_path / "b.bin").stdout
    (tmp_path / "empty.bin").write_bytes(b"")
    empty = data("show", tmp_path / "empty.bin")
    assert empty.returncode == 2 and empty.stderr == f"gpt2ctl: {tmp_path}/empty.bin: no tokens\n"


def test_json_lines_may_begin_with_a_byte_order_mark(tmp_path):
    mark = b"\xef\xbb\xbf"
    (tmp_path / "a.jsonl").write_bytes(mark + b'{"text": "a"}\r\n{"text": "b"}\r\n')
    (tmp_path / "b.jsonl").write_bytes(mark)
    (tmp_path / "c.jsonl").write_bytes(mark + b'{"text": "c"}')
    result = prepare("a.jsonl", "b.jsonl", "c.jsonl", "-o", "o.bin", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert read(tmp_path / "o.bin") == [*b"a", 256, *b"b", 256, *b"c"]
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n' + mark + b'{"text": "b"}\n')
    result = prepare("a.jsonl", "-o", "o.bin", cwd=tmp_path)
    assert result.returncode == 2 and b"a.jsonl:2: not JSON" in result.stderr


def test_verify_takes_the_tokenizer_that_fits(tmp_path, vocabulary):
    (tmp_path / "a.txt").write_text(MIXED, newline="")
    for tokenizer in (["bytes"], ["gpt2", "--vocab", vocabulary]):
        assert prepare(tmp_path / "a.txt", "-o", tmp_path / "o.bin", "-t", *tokenizer).returncode == 0
        result = data("verify", tmp_path / "o.bin", tmp_path / "a.txt", *tokenizer[1:])
        assert ", equal to the tokens of the inputs" in result.stdout, result.stderr


def test_verify(tmp_path, vocabulary):
    out = tmp_path / "o.bin"
    (tmp_path / "a.txt").write_text(MIXED, newline="")
    assert gpt2(vocabulary, tmp_path / "a.txt", "-o", out).returncode == 0
    good = out.read_bytes()
    against = [out, tmp_path / "a.txt", "-t", "gpt2", "--vocab", vocabulary]
    assert ", equal to the tokens of the inputs" in data("verify", *against).stdout
    assert data("verify", out, "--sha256", hashlib.sha256(good).hexdigest()).returncode == 0
    for raw, args, says in [
        (good, [out, "--vocab-size", 100], f"has ID {max(read(out))}, outside the vocabulary (expected 0 to 99)"),
        (good, [out, "--sha256", "00"], "the SHA-256 is " + hashlib.sha256(good).hexdigest() + " (expected 00)"),
        (good[:-2], [out], f"{len(good) - 2} bytes, but its header has {len(read(out))} tokens (expected {len(good)} bytes)"),
        (good[:1000], [out], "cut off within its header"),
        (good[1024:-1], [out], "an odd number"),
        (good[1024:-2], against, f"{len(read(out)) - 1} tokens, the inputs give more"),
        (good[1024:] + b"\1\0", against, f"{len(read(out)) + 1} tokens, the inputs give {len(read(out))}"),
        (good[:1030] + b"\1\0" + good[1032:], against, "token 3 has ID 1, the inputs give "),
        (MIXED.encode(), [out], "text, not tokens; gpt2ctl data prepare makes tokens of it"),
        (gzip.compress(good), [out], "a gzip file, not tokens"),
        (b"", [out], "0 tokens, at least 2 needed"),
    ]:
        out.write_bytes(raw)
        result = data("verify", *args)
        assert result.returncode == 2 and says in result.stderr, (says, result.stderr)


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
        assert result.stderr.decode() == f"gpt2ctl: {path}: a {what} (expected a regular file, or none)\n"
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
