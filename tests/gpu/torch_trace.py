#!/usr/bin/env python3
"""Repeats gpu_trace's training in PyTorch, from the same parameters and tokens: torch_trace.py DIR [cpu]

The script compares losses and gradient norms of each step, and the gradients of the first step. The last line is "N passed, N
failed". Without PyTorch the script fails. The model is GPT-2, made of PyTorch's own operations.

In 16 bits the reference uses the engine's arithmetic: weights, gradients and residual of that type, and fp32 masters. The reference
sets PyTorch to add up products in fp32. By default PyTorch lets cuBLAS round the parts of a split bf16 product to bf16 before it
adds them. That default changed the first gradient of the final norm's weight by 6e-2 of its length (without it: 6e-3) and, at a
learning rate of 1e-4, losses by 5e-2. The script also prints the results under autocast (fp32 weights, gradients and residual).

Tolerances are relative, per step: about ten times the differences on an H200. Where a gradient is near zero, rounding decides the
direction of AdamW's step, which has full length there, and every step adds to that difference. The error of a tensor's gradient x
is |x - g| / |g|, where g is its gradient in fp32. In fp32 the error must be at most 1e-5. In 16 bits it must be at most 1.2
times the reference's error; on an H200 it was at most 1.04 times.
"""

import json
import math
import pathlib
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"no PyTorch: {error} FAILED")
    print("0 passed, 1 failed")
    sys.exit(1)

TOLERANCE = {"fp32": (1e-5, 1e-4), "bf16": (1e-3, 1e-2), "fp16": (5e-4, 5e-3)}
GRADIENTS_FP32, GRADIENTS_RATIO = 1e-5, 1.2
EAGER_STEPS, LOOK_STEPS = 3, 100
DTYPE = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def tensors(trace, flat):
    """{(name, layer): part of an arena} that PyTorch trains. Vectors have one dimension. The vocabulary has its real size."""
    parts = {}
    for t in trace["tensors"]:
        x = flat[t["first"]:t["first"] + t["rows"] * t["cols"]].view(t["rows"], t["cols"])
        if t["name"] in ("wte.weight", "lm_head.weight"):
            x = x[:trace["config"]["vocab_size"]]
        if not (t["name"].endswith("weight") and "ln_" not in t["name"]):
            x = x.reshape(-1)
        parts[t["name"], t["layer"]] = x
    return parts


def read(path, dtype):
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=dtype)


def attend(q, k, v, fused):
    if fused and hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    above = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.transpose(2, 3)) / math.sqrt(q.shape[-1])
    return torch.softmax(scores.float().masked_fill(above, -math.inf), -1).to(v.dtype) @ v


def loss_of(p, c, tokens, targets, fused):
    def norm(x, name, layer):
        return F.layer_norm(x, x.shape[-1:], p[f"{name}.weight", layer], p[f"{name}.bias", layer], 1e-5)

    def linear(x, name, layer):
        return F.linear(x, p[f"{name}.weight", layer], p[f"{name}.bias", layer])

    rows, length = tokens.shape
    x = F.embedding(tokens, p["wte.weight", 0]) + p["wpe.weight", 0][:length]
    for layer in range(c["n_layer"]):
        q, k, v = (a.view(rows, length, c["n_head"], -1).transpose(1, 2)
                   for a in linear(norm(x, "ln_1", layer), "attn.c_attn", layer).split(c["n_embd"], dim=2))
        y = attend(q, k, v, fused)
        x = x + linear(y.transpose(1, 2).reshape(rows, length, -1), "attn.c_proj", layer)
        y = F.gelu(linear(norm(x, "ln_2", layer), "mlp.c_fc", layer), approximate="tanh")
        x = x + linear(y, "mlp.c_proj", layer)
    logits = F.linear(norm(x, "ln_f", 0), p["wte.weight", 0])
    return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.reshape(-1).long())


class Training:
    """form "autocast" has fp32 weights, gradients and residual. "own" has all of them in the type, and fp32
    masters. In fp32 both are the same. captured: except for the first ones, a step is one CUDA graph with
    PyTorch's fused AdamW, for so many seconds."""

    def __init__(self, trace, directory, name, device, form="own", fused=True, captured=False, seconds=math.inf):
        self.c = c = trace["config"]
        self.fused, self.device, self.captured, self.seconds = fused, device, captured, seconds
        self.autocast = DTYPE[name] if form == "autocast" and name != "fp32" else None
        self.scale = c["loss_scale"] if name == "fp16" else 1.0
        start = tensors(trace, read(directory / "params.f32", torch.float32))
        self.masters = {k: x.clone().to(device).requires_grad_() for k, x in start.items()}
        self.weights = self.masters
        if form == "own" and name != "fp32":
            self.weights = {k: x.detach().to(DTYPE[name]).requires_grad_() for k, x in self.masters.items()}
        self.lr = trace["traces"][name]["lr"]
        self.adamw = torch.optim.AdamW(
            [{"params": [x for x in self.masters.values() if x.dim() == 2], "weight_decay": c["weight_decay"]},
             {"params": [x for x in self.masters.values() if x.dim() == 1], "weight_decay": 0.0}],
            betas=(c["beta1"], c["beta2"]), eps=c["eps"],
            **({"lr": torch.tensor(self.lr[0], device=device), "fused": True, "capturable": True} if captured else {}))
        self.losses, self.norms, self.first = [], [], None

    def backward(self, step):
        total = 0.0
        for inputs, targets in zip(*step):
            with torch.autocast(self.device, self.autocast, enabled=self.autocast is not None,
                                cache_enabled=not self.captured):
                loss = loss_of(self.weights, self.c, inputs, targets, self.fused) / self.c["accumulation"]
            (loss * self.scale).backward()
            total += loss.detach()
        return total

    def set_rate(self):
        for group in self.adamw.param_groups:
            if self.captured:
                group["lr"].fill_(self.lr[len(self.losses)])
            else:
                group["lr"] = self.lr[len(self.losses)]

    def step(self, step):
        """The loss and the gradient norm, on the device."""
        loss = self.backward(step)
        for k, x in self.weights.items():
            self.masters[k].grad = x.grad.float() / self.scale
            if x is not self.masters[k]:
                x.grad = None
        if self.first is None:
            self.first = {k: x.grad.clone() for k, x in self.masters.items()}
        norm = torch.nn.utils.clip_grad_norm_(list(self.masters.values()), self.c["clip"])
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        with torch.no_grad():
            for k, x in self.weights.items():
                if x is not self.masters[k]:
                    x.copy_(self.masters[k])
        return loss, norm

    def keep(self, loss, norm):
        self.losses.append(loss)
        self.norms.append(norm)

    def run_captured(self, tokens):
        batch = tokens[0].to(self.device).long()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # allocates a step's permanent memory before the capture
            for step in tokens[:EAGER_STEPS]:
                self.set_rate()
                batch.copy_(step.to(self.device))
                self.keep(*self.step(batch))
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss, norm = self.step(batch)
        until = time.monotonic() + self.seconds
        for i, step in enumerate(tokens[EAGER_STEPS:]):
            if i % LOOK_STEPS == 0:
                torch.cuda.synchronize()  # the queue runs far ahead of the device
                if time.monotonic() >= until:
                    break
            self.set_rate()
            batch.copy_(step.to(self.device))
            graph.replay()
            self.keep(loss.clone(), norm.clone())

    def run(self, tokens):
        if self.captured:
            self.run_captured(tokens)
        else:
            for step in tokens:
                self.set_rate()
                self.keep(*self.step(step.to(self.device).long()))
        self.losses, self.norms = ([float(x) for x in xs] for xs in (self.losses, self.norms))
        return self


def read_tokens(trace, directory):
    """(step, inputs or targets, micro-batch, row, position)"""
    c = trace["config"]
    return read(directory / "tokens.i32", torch.int32).view(c["steps"], 2, c["accumulation"], c["micro_batch"], c["seq_len"])


def read_gradients(trace, directory, name, device):
    scale = trace["config"]["loss_scale"] if name == "fp16" else 1.0
    flat = read(directory / f"grads.{name}", DTYPE[name])
    return {k: x.to(device).float() / scale for k, x in tensors(trace, flat).items()}


def prepare(device):
    """Sums of products are in fp32, as in the engine."""
    if device == "cpu":
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def worst(ours, theirs):
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))


def gradient_errors(gradients, exact):
    return {k: float((gradients[k] - g).norm() / g.norm()) for k, g in exact.items()}


class Comparison:
    def __init__(self, directory, device):
        self.directory, self.device = directory, device
        self.trace = json.loads((directory / "trace.json").read_text())
        self.tokens = read_tokens(self.trace, directory)
        self.passed = self.failed = 0
        prepare(device)
        self.exact = self.train("fp32")

    def train(self, name, **how):
        return Training(self.trace, self.directory, name, self.device, **how).run(self.tokens)

    def check(self, what, good):
        self.passed, self.failed = self.passed + bool(good), self.failed + (not good)
        print(f"{what} {'ok' if good else 'FAILED'}", flush=True)

    def curves(self, name, ours, theirs):
        for step, (a, b, m, n) in enumerate(zip(ours["loss"], theirs.losses, ours["norm"], theirs.norms), 1):
            print(f"{name} step {step:2} loss {a:.6f} PyTorch {b:.6f} off {(a - b) / b:+.1e}   norm {m:.5f} {n:.5f}")
        for what, a, b, tolerance in (("losses", ours["loss"], theirs.losses, TOLERANCE[name][0]),
                                      ("norms", ours["norm"], theirs.norms, TOLERANCE[name][1])):
            off = worst(a, b)
            self.check(f"{name} {what} of {len(a)} steps: off by {off:.1e} at most, {tolerance:.0e} allowed",
                       len(a) == len(b) == self.trace["config"]["steps"] and off <= tolerance)
        first, last = theirs.losses[0], theirs.losses[-1]
        self.check(f"{name} PyTorch learns: {first:.4f} to {last:.4f}", last < first - 0.05)

    def gradients(self, name, theirs):
        ours = gradient_errors(read_gradients(self.trace, self.directory, name, self.device), self.exact.first)
        reference = gradient_errors(theirs.first, self.exact.first)
        if name == "fp32":
            at = max(ours, key=ours.get)
            self.check(f"fp32 first gradients of {len(ours)} tensors: off by {ours[at]:.1e} at most ({at[0]} {at[1]}), "
                       f"{GRADIENTS_FP32:.0e} allowed", ours[at] <= GRADIENTS_FP32)
            return
        ratio = {k: ours[k] / reference[k] for k in ours}
        at = max(ratio, key=ratio.get)
        self.check(f"{name} first gradients of {len(ours)} tensors: error {ratio[at]:.2f} times the reference's at most ({at[0]} "
                   f"{at[1]}: {ours[at]:.1e}, {reference[at]:.1e}), {GRADIENTS_RATIO} allowed", ratio[at] <= GRADIENTS_RATIO)

    def compare(self, name):
        ours = self.trace["traces"][name]
        theirs = self.exact if name == "fp32" else self.train(name)
        self.curves(name, ours, theirs)
        self.gradients(name, theirs)
        if name == "fp32":
            return
        autocast = self.train(name, form="autocast")
        print(f"{name} off fp32 at most, losses and norms: "
              + "; ".join(f"{who} {worst(a, self.exact.losses):.1e}, {worst(b, self.exact.norms):.1e}" for who, a, b in (
                  ("engine", ours["loss"], ours["norm"]), ("reference", theirs.losses, theirs.norms),
                  ("autocast", autocast.losses, autocast.norms))), flush=True)


def main():
    device = "cpu" if sys.argv[2:] == ["cpu"] else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        print("PyTorch sees no GPU FAILED")
        print("0 passed, 1 failed")
        return 1
    comparison = Comparison(pathlib.Path(sys.argv[1]), device)
    for name in comparison.trace["traces"]:
        comparison.compare(name)
    print(f"{comparison.passed} passed, {comparison.failed} failed")
    return 1 if comparison.failed else 0


if __name__ == "__main__":
    sys.exit(main())
