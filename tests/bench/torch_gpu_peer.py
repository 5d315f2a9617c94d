#!/usr/bin/env python3
"""The same training as bench_step --lines in PyTorch on GPUs:

    torch_gpu_peer.py [--ranks N [--zero1]] [--compiled MODE] < LINES

For each line "SPEC" of standard input one JSON object. The model is compiled, and a whole step (every
micro-batch forward and backward, clipping, fused AdamW) is one CUDA graph; tokens are copied in before each launch,
and the host waits once, after the last step: more favourable than bench_step, which waits for each step's loss. The
vocabulary is padded to a multiple of 128. Weights are fp32 under autocast for bf16 and fp16, and what is summed over
micro-batches is fp32. fp16 has the spec's first loss scale, and keeps it: without one small gradients become zeros, with
which products are faster. Unscaling goes along with clipping, and AdamW skips what overflowed. With several ranks, one
process each, the model is in DistributedDataParallel, which reduces fp32 in its own buckets; the graph holds the
collectives too. With --zero1 each rank keeps the moments of a part of the parameters and updates it
(ZeroRedundancyOptimizer, which broadcasts the parts); where that cannot be captured the step is launched as it is, and
"captured" is false. The spec's model must be written out.

With --compiled no step is captured: the model is compiled in that mode of torch.compile (default, reduce-overhead, whose
graphs are of forward and of backward, max-autotune-no-cudagraphs), and the host launches clipping and AdamW. Where a
step is long that costs nothing, and memory and kernels are not bound by a capture.
"""

import contextlib
import ctypes
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time

os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")  # its watchdog may not query events during a capture

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.optim import ZeroRedundancyOptimizer

WARM_UP = 3  # steps before the capture
WARM_UP_DDP = 11  # what DistributedDataParallel asks for


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        c = m["n_embd"]
        self.heads = m["n_head"]
        self.ln_1, self.ln_2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.fc, self.fcproj = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (a.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for a in self.qkv(self.ln_1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.fcproj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.vocab = m["vocab_size"]
        padded = (self.vocab + 127) // 128 * 128
        self.wte = nn.Embedding(padded, m["n_embd"])
        self.wpe = nn.Embedding(m["n_positions"], m["n_embd"])
        self.blocks = nn.ModuleList(Block(m) for _ in range(m["n_layer"]))
        self.ln_f = nn.LayerNorm(m["n_embd"])
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * m["n_layer"]) if "proj.weight" in name else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def precision(spec):
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        if spec.get(name, {}).get("enabled"):
            return name, dtype
    return ("tf32" if spec.get("tf32") else "fp32"), None


def loss_scale(spec):
    fp16 = spec.get("fp16", {})
    if not fp16.get("enabled"):
        return 1.0
    return fp16.get("loss_scale", 0) or 2.0 ** fp16.get("initial_scale_power", 16)


class Peer:
    """One spec: compiled, captured, ready to be timed."""

    def __init__(self, spec, zero1, mode):
        self.spec, self.mode = spec, mode
        self.name, self.dtype = precision(spec)
        self.scale = loss_scale(spec)
        torch.backends.cuda.matmul.allow_tf32 = self.name == "tf32"
        torch.backends.cudnn.allow_tf32 = self.name == "tf32"
        torch.manual_seed(1)
        self.micros = spec.get("gradient_accumulation_steps", 1)
        self.rows, self.t = spec["train_micro_batch_size_per_gpu"], spec["seq_len"]
        self.ranks = dist.get_world_size() if dist.is_initialized() else 1
        self.model = GPT2(spec["model"]).cuda()
        side = torch.cuda.Stream()
        if self.ranks > 1:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.model = nn.parallel.DistributedDataParallel(self.model, gradient_as_bucket_view=True)
            torch.cuda.current_stream().wait_stream(side)
        self.forward = torch.compile(self.model, dynamic=False, mode=mode)
        p = spec["optimizer"]["params"]
        options = {"lr": torch.tensor(p["lr"], device="cuda"), "betas": tuple(p.get("betas", (0.9, 0.999))),
                   "weight_decay": p.get("weight_decay", 0.01), "fused": True, "capturable": True}
        # what a graph of backward puts out is overwritten by the next micro-batch's: gradients have memory of their own
        self.keeps_grads = self.ranks > 1 or mode == "reduce-overhead"
        if self.keeps_grads and self.ranks == 1:
            for parameter in self.model.parameters():
                parameter.grad = torch.zeros_like(parameter)
        if zero1:
            self.adamw = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.AdamW,
                                                 parameters_as_bucket_view=True, **options)
        else:
            self.adamw = torch.optim.AdamW(self.model.parameters(), **options)
        shape = (self.micros, self.rows, self.t + 1)
        self.batches = [torch.randint(0, spec["model"]["vocab_size"], shape).pin_memory() for _ in range(8)]
        self.batch = self.batches[0].cuda()
        self.loss = torch.zeros((), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side) if mode is None else contextlib.nullcontext():
            for _ in range(WARM_UP if self.ranks == 1 else WARM_UP_DDP):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph = None
        if mode is None and (not zero1 or self.can_capture()):
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.step()

    def can_capture(self):
        """Whether all ranks could capture a step; one that fails leaves nothing that the others wait for."""
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
                self.step()
            failed = 0.0
        except Exception as e:
            print(f"not captured: {type(e).__name__}: {e}"[:300], file=sys.stderr)
            failed = 1.0
        torch.cuda.synchronize()
        failures = torch.tensor(failed, device="cuda")
        dist.all_reduce(failures)
        return failures.item() == 0

    def step(self):
        self.adamw.zero_grad(set_to_none=not self.keeps_grads)
        self.loss.zero_()
        for micro in range(self.micros):
            x = self.batch[micro]
            alone = self.ranks > 1 and micro < self.micros - 1
            if self.mode:
                torch.compiler.cudagraph_mark_step_begin()
            with self.model.no_sync() if alone else contextlib.nullcontext():
                with torch.autocast("cuda", dtype=self.dtype or torch.bfloat16, enabled=self.dtype is not None,
                                    cache_enabled=False):
                    loss = self.forward(x[:, :-1].contiguous(), x[:, 1:].contiguous()) / self.micros
                (loss * self.scale if self.scale != 1 else loss).backward()
            self.loss += loss.detach()
        clip = self.spec.get("gradient_clipping", 0)
        if self.scale != 1:
            self.unscale(clip)
        elif clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), clip, foreach=True)
        self.adamw.step()

    def unscale(self, clip):
        grads = [p.grad for p in self.model.parameters()]
        norm = nn.utils.get_total_norm(grads, foreach=True) / self.scale
        times = torch.clamp(clip / (norm + 1e-6), max=1.0) if clip else torch.ones_like(norm)
        torch._foreach_mul_(grads, times / self.scale)
        self.adamw.found_inf = (~torch.isfinite(norm)).float()

    def launch(self, steps):
        for i in range(steps):
            self.batch.copy_(self.batches[i % len(self.batches)], non_blocking=True)
            if self.graph:
                self.graph.replay()
            else:
                self.step()

    def run(self):
        work = self.spec["work"]
        warm = work.get("warmup_steps", 0)
        steps = work["optimizer_steps"] - warm
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.launch(warm)
        begin.record()
        self.launch(steps)
        end.record()
        torch.cuda.synchronize()
        ms = begin.elapsed_time(end) / steps
        tokens = self.micros * self.rows * self.t * self.ranks
        return {"tokens_per_s": 1e3 * tokens / ms, "step_ms_mean": ms, "steps": steps, "ranks": self.ranks,
                "loss_last": float(self.loss), "precision": self.name, "grad_dtype": "fp32", "captured": self.graph is not None,
                "mode": self.mode or "graph",
                "memory_mib": torch.cuda.max_memory_allocated() / 2**20, "torch": torch.__version__,
                "device": torch.cuda.get_device_name()}


def lines(rank, ranks):
    """Standard input's lines, which rank 0 reads and sends to the others: not by NCCL, whose kernels would wait on the GPU
    for the next line while another program is measured there."""
    idle = dist.new_group(backend="gloo") if ranks > 1 else None
    while True:
        line = [sys.stdin.readline() if rank == 0 else None]
        if ranks > 1:
            dist.broadcast_object_list(line, src=0, group=idle)
        if not line[0]:
            return
        yield line[0].strip()


def start_others(ranks):
    """The other ranks, as this program again; they end with this one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "RANK": "0"}
    return [subprocess.Popen([sys.executable] + sys.argv, env=os.environ | {"RANK": str(rank)}, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL) for rank in range(1, ranks)]


def end_with_parent():
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main():
    ranks = int(sys.argv[sys.argv.index("--ranks") + 1]) if "--ranks" in sys.argv else 1
    mode = sys.argv[sys.argv.index("--compiled") + 1] if "--compiled" in sys.argv else None
    others = start_others(ranks) if ranks > 1 and "RANK" not in os.environ else []
    rank = int(os.environ.get("RANK", "0"))
    if ranks > 1:
        if rank > 0:
            end_with_parent()
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", rank=rank, world_size=ranks)
    peers = {}
    for path in lines(rank, ranks):
        try:
            start = time.monotonic()
            if path not in peers:
                peers.clear()  # one model's memory at a time
                torch.cuda.empty_cache()
                with open(path, encoding="utf-8") as spec:
                    peers[path] = Peer(json.load(spec), "--zero1" in sys.argv, mode)
            made = time.monotonic() - start
            answer = peers[path].run() | {"made_s": made}
        except Exception as e:  # the driver goes on with its other works
            answer = {"error": f"{type(e).__name__}: {e}"[:300]}
        if rank == 0:
            print(json.dumps(answer), flush=True)
    for other in others:
        other.kill()  # capturing left them nothing to say
        other.wait()
    if ranks > 1:
        os._exit(0)  # a graph that holds collectives can keep the interpreter's end waiting


main()
