#!/usr/bin/python3
"""The same training as bench_step in PyTorch on the CPU: torch_peer.py SPEC [THREADS [BLAS_THREADS]]

Reads the spec's own keys (the model written out, not a preset); tokens are random. Attention, GELU and loss
are PyTorch's own operations, scaled_dot_product_attention where this PyTorch has it; AdamW is PyTorch's,
its fastest form that runs here. Prints one JSON object.
"""

import json
import math
import os
import re
import sys
import time

THREADS = int(sys.argv[2]) if len(sys.argv) > 2 else 2
# set_num_threads does not reach OpenBLAS's own threads: they are counted when it is loaded
os.environ["OPENBLAS_NUM_THREADS"] = sys.argv[3] if len(sys.argv) > 3 else str(THREADS)

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        c = m["n_embd"]
        self.heads = m["n_head"]
        self.tanh = m.get("gelu", "tanh") == "tanh"
        self.ln_1, self.ln_2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.fc, self.fcproj = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

    def attend(self, q, k, v, above):
        if hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = (q @ k.transpose(2, 3)) * (1 / math.sqrt(q.shape[-1]))
        return torch.softmax(scores.masked_fill(above, float("-inf")), -1) @ v

    def forward(self, x, above):
        b, t, c = x.shape
        q, k, v = (a.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for a in self.qkv(self.ln_1(x)).split(c, dim=2))
        x = x + self.proj(self.attend(q, k, v, above).transpose(1, 2).reshape(b, t, c))
        y = F.gelu(self.fc(self.ln_2(x)), approximate="tanh" if self.tanh else "none")
        return x + self.fcproj(y)


class GPT2(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.wte = nn.Embedding(m["vocab_size"], m["n_embd"])
        self.wpe = nn.Embedding(m["n_positions"], m["n_embd"])
        self.blocks = nn.ModuleList(Block(m) for _ in range(m["n_layer"]))
        self.ln_f = nn.LayerNorm(m["n_embd"])
        self.head = nn.Linear(m["n_embd"], m["vocab_size"], bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                std = 0.02 / math.sqrt(2 * m["n_layer"]) if "proj.weight" in name else 0.02
                nn.init.normal_(p, std=std)
            elif name.endswith("bias"):
                nn.init.zeros_(p)
        if m.get("tied_head", True):
            self.head.weight = self.wte.weight

    def forward(self, tokens, targets, above):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, above)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def make_adamw(model, spec):
    p = spec["optimizer"]["params"]
    keys = dict(lr=p["lr"], betas=tuple(p.get("betas", (0.9, 0.999))), eps=p.get("eps", 1e-8),
                weight_decay=p.get("weight_decay", 0.01))
    for form in ({"fused": True}, {"foreach": True}, {}):
        try:
            adamw = torch.optim.AdamW(model.parameters(), **keys, **form)
            return adamw, next(iter(form), "loop")
        except (RuntimeError, TypeError):
            continue
    raise SystemExit("no AdamW")


def blas_libraries():
    """Names of the libraries in this process that matrix products may come from."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        files = {os.path.realpath(line.split()[-1]) for line in maps if "/" in line}
    names = (os.path.basename(f) for f in files)
    return sorted(n for n in names if re.search("blas|mkl|dnn", n))


def main():
    spec = json.load(open(sys.argv[1], encoding="utf-8"))
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    m, work = spec["model"], spec["work"]
    rows, t = spec["train_micro_batch_size_per_gpu"], spec["seq_len"]
    accumulation = spec.get("gradient_accumulation_steps", 1)
    model = GPT2(m)
    adamw, form = make_adamw(model, spec)
    above = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
    clip = spec.get("gradient_clipping", 0)
    times, losses = [], []
    for step in range(work["optimizer_steps"]):
        batch = torch.randint(0, m["vocab_size"], (accumulation, rows, t + 1))
        start = time.perf_counter()
        adamw.zero_grad(set_to_none=True)
        total = 0.0
        for micro in batch:
            loss = model(micro[:, :-1], micro[:, 1:], above) / accumulation
            loss.backward()
            total += float(loss.detach())
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        adamw.step()
        if step >= work.get("warmup_steps", 0):
            times.append(time.perf_counter() - start)
        losses.append(total)
    print(json.dumps({
        "tokens_per_s": len(times) * accumulation * rows * t / sum(times),
        "step_ms_median": 1e3 * sorted(times)[(len(times) + 1) // 2 - 1],
        "steps": len(times), "threads": torch.get_num_threads(),
        "blas_threads": int(os.environ["OPENBLAS_NUM_THREADS"]), "torch": torch.__version__,
        "adamw": form, "sdpa": hasattr(F, "scaled_dot_product_attention"), "blas": blas_libraries(),
        "params": sum(p.numel() for p in model.parameters()), "loss_first": losses[0], "loss_last": losses[-1],
    }))


main()
