#!/usr/bin/env python3
"""PyTorch's causal attention on a GPU, for the shapes of bench_kernels_cuda: torch_attention.py [bf16|fp16]

FlashAttention-2 and cuDNN in turn, seven rounds, each of as many calls as take some milliseconds, timed by events of
the device; the median, and the lowest and highest round. q, k and v are what a model's product gives: parts of one
tensor (B,T,3C). Backward is called on a graph that is kept. FLOPs: the causal half, two products forward, five
backward.
"""

import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ROUNDS, ROUND_MS = 7, 4.0
SHAPES = [("micro 2, T 512", 2, 512, 12, 64), ("B 16, T 512", 16, 512, 12, 64),
          ("B 64, T 1024", 64, 1024, 12, 64)]
BACKENDS = [("FlashAttention-2", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION)]


def time_us(call, times):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(times):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / times


def calls(backend, b, t, heads, size, dtype):
    qkv = torch.randn(b, t, 3, heads, size, device="cuda", dtype=dtype).requires_grad_()
    q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
    dout = torch.randn(b, t, heads, size, device="cuda", dtype=dtype).transpose(1, 2)

    def forward():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    out = forward()
    return forward, lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)


def main():
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[sys.argv[1] if len(sys.argv) > 1 else "bf16"]
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__, "cuDNN", torch.backends.cudnn.version(), dtype)
    for name, b, t, heads, size in SHAPES:
        found = {}
        for backend_name, backend in BACKENDS:
            for direction, call in zip(("forward", "backward"), calls(backend, b, t, heads, size, dtype)):
                time_us(call, 3)
                found[backend_name, direction] = (call, 1 + int(ROUND_MS * 1e3 / time_us(call, 3)), [])
        for _ in range(ROUNDS):
            for call, times, took in found.values():
                took.append(time_us(call, times))
        print(name)
        for (backend_name, direction), (_, _, took) in found.items():
            median = sorted(took)[ROUNDS // 2]
            flops = (2 if direction == "forward" else 5) * b * t * heads * size * (t + 1)
            print(f"{backend_name:17} {direction:8} {median:9.2f} us  {flops / median * 1e-6:7.1f} TFLOP/s"
                  f"  {min(took):.2f} .. {max(took):.2f} us", flush=True)


if __name__ == "__main__":
    main()
