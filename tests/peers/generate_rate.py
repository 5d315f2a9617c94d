#!/usr/bin/env python3
"""Tokens/s of gpt2ctl's generate and of transformers' generate with the same random GPT-2, in turn, and the ratio.

usage: generate_rate.py [TOKENS [ROUNDS [PRESET]]]

Greedy, a prompt of 16 tokens, keys and values kept by both, fp32, as many CPU threads as there are processors. The rates leave out
the time to read the weights. The tokens are compared.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

import engines  # noqa: E402
from helpers import Daemon, spec  # noqa: E402

SHAPES = {"gpt2": (12, 12, 768), "gpt2-medium": (24, 16, 1024), "gpt2-large": (36, 20, 1280), "gpt2-xl": (48, 25, 1600)}
PROMPT = list(range(100, 116))


def main():
    tokens = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    preset = sys.argv[3] if len(sys.argv) > 3 else "gpt2"
    threads = len(os.sched_getaffinity(0))
    layers, heads, width = SHAPES[preset]
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=layers, n_head=heads, n_embd=width)).eval()
    rates = {"gpt2d": [], "transformers": []}
    with tempfile.TemporaryDirectory() as folder, Daemon(engine=engines.PROGRAM, options=("--threads", str(threads))) as d, d.client() as c:
        model.save_pretrained(folder, safe_serialization=True)
        run = c.submit(spec("rate", 1, model=preset, seq_len=16, init_from={"safetensors": f"{folder}/model.safetensors"},
            optimizer={"params": {"lr": 0}}, checkpoint={"at_end": True}))
        assert c.wait(run)["state"] == "done"
        for _ in range(rounds):
            ours = c.call("generate", id=run, prompt=PROMPT, tokens=tokens)
            rates["gpt2d"].append(ours["tokens_per_sec"])
            begin = time.perf_counter()
            theirs = model.generate(torch.tensor([PROMPT]), max_new_tokens=tokens, do_sample=False, eos_token_id=None, pad_token_id=50256)
            rates["transformers"].append(tokens / (time.perf_counter() - begin))
            if ours["tokens"] != theirs[0, len(PROMPT):].tolist():
                sys.exit("the tokens differ")
    ratios = [a / b for a, b in zip(rates["gpt2d"], rates["transformers"])]
    print(json.dumps({"preset": preset, "tokens": tokens, "threads": threads, "torch": torch.__version__,
        "transformers": transformers.__version__, "gpt2d_tokens_per_sec": round(statistics.median(rates["gpt2d"]), 2),
        "transformers_tokens_per_sec": round(statistics.median(rates["transformers"]), 2),
        "ratio": round(statistics.median(ratios), 2), "ratio_lowest": round(min(ratios), 2), "ratio_highest": round(max(ratios), 2)}))


main()
