#!/usr/bin/env python3
"""MB/s of gpt2ctl data prepare --tokenizer gpt2 on one thread and of tiktoken, in turn, and the ratio.

usage: token_rate.py [MB [ROUNDS]]

gpt2ctl's time is that of the whole process: its start, the vocabulary, reading and writing. tiktoken's is that of
encode_ordinary on a text in memory. The tokens are compared first.
"""

import array
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import peer_text
import token_peers


def measure(name, text, rounds, folder):
    encoding = token_peers.tiktoken_gpt2()
    source, out = Path(folder) / "text", Path(folder) / "tokens"
    source.write_bytes(text)
    decoded = text.decode(errors="replace")
    rates = {"gpt2ctl": [], "tiktoken": []}, {"gpt2ctl": [], "tiktoken": []}

    def timed(who, work):
        """MB a second of time, and of CPU time, which a busy machine changes less."""
        clocks = time.perf_counter, lambda: sum(os.times()[:4])
        before = [clock() for clock in clocks]
        result = work()
        for kind, clock, begin in zip(rates, clocks, before):
            kind[who].append(len(text) / 1e6 / max(clock() - begin, 0.01))
        return result

    for _ in range(rounds):
        timed("gpt2ctl", lambda: token_peers.prepare(out, source, more=["--threads", "1"]))
        expected = timed("tiktoken", lambda: encoding.encode_ordinary(decoded))
        if token_peers.tokens(out) != array.array("H", [*expected, token_peers.END]):
            sys.exit(f"{name}: the tokens differ")
    print(f"{name}: {len(text) / 1e6:.1f} MB, {len(expected):,} tokens, equal")
    for unit, kind in zip(("MB/s", "MB per CPU second"), rates):
        ratios = [a / b for a, b in zip(kind["gpt2ctl"], kind["tiktoken"])]
        print(f"  {unit}: gpt2ctl {statistics.median(kind['gpt2ctl']):.1f}, tiktoken {statistics.median(kind['tiktoken']):.1f}; "
            f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def main():
    size = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 20_000_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        measure("plain", peer_text.plain(size), rounds, folder)
        measure("mixed", peer_text.mixed(size), rounds, folder)


main()
