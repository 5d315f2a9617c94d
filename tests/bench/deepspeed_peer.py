#!/usr/bin/env python3
"""The old harness's training in DeepSpeed: GPT-2 124M as the harness wrote it, on random tokens.

    torchrun --nproc-per-node N deepspeed_peer.py --config FILE.json --micro-steps 300 --out FILE [--first S] [--seq-len 512]

The model: untied head without bias, separate q, k, v with bias, exact GELU, dropout .1 (embedding,
attention weights, MLP output). FILE.json is a DeepSpeed configuration. Rank 0 appends one JSON line to --out:
tokens/s and seconds per update of the updates after the first --drop, seconds from the process's start to the first update,
peak device memory, and the versions.
"""

import argparse
import json
import os
import time

START = time.time()

import deepspeed  # noqa: E402  (the start is measured from before the imports)
import torch  # noqa: E402
from torch import nn  # noqa: E402

VOCABULARY, POSITIONS, WIDTH, HEADS, LAYERS, DROPOUT = 50257, 1024, 768, 12, 12, 0.1


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(DROPOUT)

    def attend(self, x, mask):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = (q @ k.transpose(-2, -1)) / (WIDTH // HEADS) ** 0.5
        weights = self.drop(scores.masked_fill(mask[:t, :t], float("-inf")).softmax(-1))
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, WIDTH))

    def forward(self, x, mask):
        x = x + self.attend(self.norm1(x), mask)
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm2(x)))))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.drop, self.blocks = nn.Dropout(DROPOUT), nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("mask", torch.ones(POSITIONS, POSITIONS, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, ids, targets):
        x = self.drop(self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device)))
        for block in self.blocks:
            x = block(x, self.mask)
        logits = self.head(self.norm(x))
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--micro-steps", type=int, default=300)
    parser.add_argument("--drop", type=int, default=5, help="updates before the measured ones")
    parser.add_argument("--seq-len", type=int, default=512)
    parser.add_argument("--name", default="")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    with open(args.config, encoding="utf-8") as file:
        config = json.load(file)
    micro, accumulation = config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    deepspeed.init_distributed()
    torch.manual_seed(1)
    model = Gpt2()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    generator = torch.Generator(device=device).manual_seed(int(os.environ["RANK"]))
    tokens = torch.randint(VOCABULARY, (64, micro, args.seq_len + 1), device=device, generator=generator)
    first = begun = None
    for step in range(args.micro_steps):
        if step == args.drop * accumulation:
            torch.cuda.synchronize()
            begun = time.perf_counter()
        batch = tokens[step % len(tokens)]
        loss = engine(batch[:, :-1], batch[:, 1:])
        engine.backward(loss)
        engine.step()
        if step == accumulation - 1:
            torch.cuda.synchronize()
            first = time.time() - START
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    updates = args.micro_steps // accumulation - args.drop
    world = int(os.environ["WORLD_SIZE"])
    if engine.global_rank == 0:
        row = {"name": args.name, "tokens_per_sec": updates * accumulation * micro * args.seq_len * world / seconds,
            "seconds_per_update": seconds / updates, "updates": updates, "world": world, "first_update_s": first,
            "wall_s": time.time() - START, "peak_bytes": torch.cuda.max_memory_allocated(), "loss": float(loss),
            "torch": torch.__version__, "deepspeed": deepspeed.__version__, "gpu": torch.cuda.get_device_name()}
        with open(args.out, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
