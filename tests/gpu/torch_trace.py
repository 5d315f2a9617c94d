#!/usr/bin/env python3
"""The training that gpu_trace wrote down, in PyTorch from the same parameters and tokens: torch_trace.py DIR [cpu]

Losses of each step are compared, and the last line is "N passed, N failed" ("0 passed, 0 failed" after a reason where there
is no PyTorch). The model is GPT-2's with PyTorch's own operations, fp32 weights under autocast for bf16 and fp16 (there with
the same fixed loss scale), gradients of micro-batches added up in fp32, clipping and AdamW as PyTorch has them.

Tolerances, of |loss - PyTorch's| / PyTorch's at each step: fp32 1e-5, for other orders of addition, grown over 20 steps in
which AdamW makes steps of full length out of gradients near zero. In 16 bits the engine keeps weights and gradients of that
type beside fp32 masters, where PyTorch keeps fp32: fp16 2e-3, bf16, which has three bits less, 1e-2. Norms before clipping:
ten times that.
"""

import json
import math
import pathlib
import sys

TOLERANCE = {"fp32": (1e-5, 1e-4), "bf16": (1e-2, 1e-1), "fp16": (2e-3, 2e-2)}

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"skipped: no PyTorch: {error}")
    print("0 passed, 0 failed")
    sys.exit(0)


def read_params(trace, directory, device):
    """{(name, layer): tensor} that PyTorch trains; vectors have one dimension, the vocabulary its real size."""
    flat = torch.frombuffer(bytearray((directory / "params.f32").read_bytes()), dtype=torch.float32)
    params = {}
    for t in trace["tensors"]:
        x = flat[t["first"]:t["first"] + t["rows"] * t["cols"]].view(t["rows"], t["cols"])
        if t["name"] in ("wte.weight", "lm_head.weight"):
            x = x[:trace["config"]["vocab_size"]]
        if not (t["name"].endswith("weight") and "ln_" not in t["name"]):
            x = x.reshape(-1)
        params[t["name"], t["layer"]] = x.clone().to(device).requires_grad_()
    return params


def loss_of(p, c, tokens, targets):
    def norm(x, name, layer):
        return F.layer_norm(x, x.shape[-1:], p[f"{name}.weight", layer], p[f"{name}.bias", layer], 1e-5)

    def linear(x, name, layer):
        return F.linear(x, p[f"{name}.weight", layer], p[f"{name}.bias", layer])

    rows, length = tokens.shape
    x = p["wte.weight", 0][tokens] + p["wpe.weight", 0][:length]
    above = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
    for layer in range(c["n_layer"]):
        q, k, v = (a.view(rows, length, c["n_head"], -1).transpose(1, 2)
                   for a in linear(norm(x, "ln_1", layer), "attn.c_attn", layer).split(c["n_embd"], dim=2))
        scores = (q @ k.transpose(2, 3)) / math.sqrt(q.shape[-1])
        y = torch.softmax(scores.float().masked_fill(above, -math.inf), -1).to(v.dtype) @ v
        x = x + linear(y.transpose(1, 2).reshape(rows, length, -1), "attn.c_proj", layer)
        y = F.gelu(linear(norm(x, "ln_2", layer), "mlp.c_fc", layer), approximate="tanh")
        x = x + linear(y, "mlp.c_proj", layer)
    logits = F.linear(norm(x, "ln_f", 0), p["wte.weight", 0])
    return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.reshape(-1).long())


def train(trace, directory, name, device):
    c = trace["config"]
    p = read_params(trace, directory, device)
    scale = c["loss_scale"] if name == "fp16" else 1.0
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(name)
    adamw = torch.optim.AdamW(
        [{"params": [x for x in p.values() if x.dim() == 2], "weight_decay": c["weight_decay"]},
         {"params": [x for x in p.values() if x.dim() == 1], "weight_decay": 0.0}],
        lr=c["lr"], betas=(c["beta1"], c["beta2"]), eps=c["eps"])
    shape = (c["steps"], 2, c["accumulation"], c["micro_batch"], c["seq_len"])
    tokens = torch.frombuffer(bytearray((directory / "tokens.i32").read_bytes()), dtype=torch.int32).view(shape)
    losses, norms = [], []
    for step in tokens.to(device).long():
        adamw.zero_grad()
        total = 0.0
        for inputs, targets in zip(*step):
            with torch.autocast(device, dtype, enabled=dtype is not None):
                loss = loss_of(p, c, inputs, targets) / c["accumulation"]
            (loss * scale).backward()
            total += loss.item()
        for x in p.values():
            x.grad /= scale
        norms.append(float(torch.nn.utils.clip_grad_norm_(list(p.values()), c["clip"])))
        losses.append(total)
        adamw.step()
    return losses, norms


def worst(ours, theirs):
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))


def main():
    directory = pathlib.Path(sys.argv[1])
    device = "cpu" if sys.argv[2:] == ["cpu"] else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        print("skipped: PyTorch sees no GPU")
        print("0 passed, 0 failed")
        return 0
    torch.backends.cuda.matmul.allow_tf32 = False
    trace = json.loads((directory / "trace.json").read_text())
    passed = failed = 0
    for name, ours in trace["traces"].items():
        losses, norms = train(trace, directory, name, device)
        for step, (a, b, m, n) in enumerate(zip(ours["loss"], losses, ours["norm"], norms), 1):
            print(f"{name} step {step:2} loss {a:.6f} PyTorch {b:.6f} off {(a - b) / b:+.1e}   norm {m:.5f} {n:.5f}")
        for what, a, b, tolerance in zip(("losses", "norms"), (ours["loss"], ours["norm"]), (losses, norms), TOLERANCE[name]):
            off = worst(a, b)
            good = len(a) == len(b) == trace["config"]["steps"] and off <= tolerance
            print(f"{name} {what} of {len(a)} steps: off by {off:.1e} at most, {tolerance:.0e} allowed {'ok' if good else 'FAILED'}")
            passed, failed = passed + good, failed + (not good)
        learns = losses[-1] < losses[0] - 0.05
        print(f"{name} PyTorch learns: {losses[0]:.4f} to {losses[-1]:.4f} {'ok' if learns else 'FAILED'}")
        passed, failed = passed + learns, failed + (not learns)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
