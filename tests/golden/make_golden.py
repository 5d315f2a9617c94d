#!/usr/bin/python3
"""Writes model.golden: a small GPT-2 in plain torch, double precision, with its losses, every gradient and
five AdamW steps. Run with Debian's python3-torch (1.13): make_golden.py OUT

Format, little-endian: b"GPT2GOLD", then records: int32 length of the name, the name, int32 kind
(0 int32, 1 float32, 2 float64), int64 number of elements, the elements. Weights are rounded to float32
before anything is computed, so both sides start from the same values.

Records: config (n_layer n_head n_embd vocab positions batch seq steps), adamw (lr beta1 beta2 eps decay
clip), tokens (steps, batch, seq + 1), w/NAME; per variant V = {tanh,exact}_{tied,untied}: V/loss,
V/g/NAME of the first batch; per decay D = {all,matrices}: V/D/losses, V/D/norms, V/D/p/NAME after the last
step. NAME is GPT-2's own, linear weights stored (out, in).
"""

import math
import struct
import sys

import torch

N_LAYER, N_HEAD, N_EMBD, VOCAB, POSITIONS, BATCH, SEQ, STEPS = 2, 3, 12, 37, 11, 3, 9, 5
LR, BETA1, BETA2, EPS, DECAY, CLIP = 3e-3, 0.9, 0.95, 1e-6, 0.1, 0.25


def shapes():
    c = N_EMBD
    out = {"wte.weight": (VOCAB, c), "wpe.weight": (POSITIONS, c)}
    for i in range(N_LAYER):
        h = f"h.{i}."
        out[h + "ln_1.weight"] = out[h + "ln_1.bias"] = (c,)
        out[h + "attn.c_attn.weight"], out[h + "attn.c_attn.bias"] = (3 * c, c), (3 * c,)
        out[h + "attn.c_proj.weight"], out[h + "attn.c_proj.bias"] = (c, c), (c,)
        out[h + "ln_2.weight"] = out[h + "ln_2.bias"] = (c,)
        out[h + "mlp.c_fc.weight"], out[h + "mlp.c_fc.bias"] = (4 * c, c), (4 * c,)
        out[h + "mlp.c_proj.weight"], out[h + "mlp.c_proj.bias"] = (c, 4 * c), (c,)
    out["ln_f.weight"] = out["ln_f.bias"] = (c,)
    out["lm_head.weight"] = (VOCAB, c)
    return out


def make_weights():
    torch.manual_seed(20240)
    weights = {}
    for name, shape in shapes().items():
        w = 0.3 * torch.randn(shape, dtype=torch.float64)
        if ".ln_" in name or name.startswith("ln_"):
            w = w + (1.0 if name.endswith("weight") else 0.0)
        weights[name] = w.float().double()
    return weights


def norm(x, w, b):
    mean = x.mean(-1, keepdim=True)
    var = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(var + 1e-5) * w + b


def gelu(x, exact):
    if exact:
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def attention(x, p, h):
    b, t, c = x.shape
    q, k, v = (x @ p[h + "attn.c_attn.weight"].T + p[h + "attn.c_attn.bias"]).split(c, dim=2)
    q, k, v = (a.view(b, t, N_HEAD, c // N_HEAD).transpose(1, 2) for a in (q, k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(c // N_HEAD)
    above = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
    weights = torch.softmax(scores.masked_fill(above, -math.inf), -1)
    y = (weights @ v).transpose(1, 2).reshape(b, t, c)
    return y @ p[h + "attn.c_proj.weight"].T + p[h + "attn.c_proj.bias"]


def loss_of(p, tokens, exact, tied):
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    x = p["wte.weight"][inputs] + p["wpe.weight"][: inputs.shape[1]]
    for i in range(N_LAYER):
        h = f"h.{i}."
        x = x + attention(norm(x, p[h + "ln_1.weight"], p[h + "ln_1.bias"]), p, h)
        y = norm(x, p[h + "ln_2.weight"], p[h + "ln_2.bias"])
        y = gelu(y @ p[h + "mlp.c_fc.weight"].T + p[h + "mlp.c_fc.bias"], exact)
        x = x + y @ p[h + "mlp.c_proj.weight"].T + p[h + "mlp.c_proj.bias"]
    x = norm(x, p["ln_f.weight"], p["ln_f.bias"])
    logits = x @ p["wte.weight" if tied else "lm_head.weight"].T
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


def parameters(weights, tied):
    return {n: w.clone().requires_grad_(True) for n, w in weights.items()
            if not (tied and n == "lm_head.weight")}


def train(weights, batches, exact, tied, matrices_only):
    p = parameters(weights, tied)
    plain = [w for w in p.values() if matrices_only and w.dim() < 2]
    decayed = [w for w in p.values() if not (matrices_only and w.dim() < 2)]
    groups = [{"params": decayed, "weight_decay": DECAY}]
    if plain:
        groups.append({"params": plain, "weight_decay": 0.0})
    adamw = torch.optim.AdamW(groups, lr=LR, betas=(BETA1, BETA2), eps=EPS)
    losses, norms = [], []
    for tokens in batches:
        adamw.zero_grad()
        loss = loss_of(p, tokens, exact, tied)
        loss.backward()
        total = math.sqrt(sum(float((w.grad ** 2).sum()) for w in p.values()))
        for w in p.values():
            w.grad /= max(1.0, (total + 1e-6) / CLIP)
        adamw.step()
        losses.append(float(loss))
        norms.append(total)
    return p, losses, norms


class Writer:
    KINDS = {torch.int32: 0, torch.float32: 1, torch.float64: 2}

    def __init__(self, path):
        self.out = open(path, "wb")
        self.out.write(b"GPT2GOLD")

    def put(self, name, value):
        value = value.detach().contiguous().reshape(-1)
        raw = name.encode()
        self.out.write(struct.pack("<i", len(raw)) + raw)
        self.out.write(struct.pack("<iq", self.KINDS[value.dtype], value.numel()))
        self.out.write(value.numpy().tobytes())


def main():
    weights = make_weights()
    batches = torch.randint(0, VOCAB, (STEPS, BATCH, SEQ + 1))
    w = Writer(sys.argv[1])
    w.put("config", torch.tensor([N_LAYER, N_HEAD, N_EMBD, VOCAB, POSITIONS, BATCH, SEQ, STEPS],
                                 dtype=torch.int32))
    w.put("adamw", torch.tensor([LR, BETA1, BETA2, EPS, DECAY, CLIP], dtype=torch.float64))
    w.put("tokens", batches.int())
    for name, value in weights.items():
        w.put("w/" + name, value.float())
    for exact in (False, True):
        for tied in (True, False):
            variant = f"{'exact' if exact else 'tanh'}_{'tied' if tied else 'untied'}"
            p = parameters(weights, tied)
            loss = loss_of(p, batches[0], exact, tied)
            loss.backward()
            w.put(f"{variant}/loss", loss.reshape(1))
            for name, value in p.items():
                w.put(f"{variant}/g/{name}", value.grad)
            for rule in ("all", "matrices"):
                p, losses, norms = train(weights, batches, exact, tied, rule == "matrices")
                w.put(f"{variant}/{rule}/losses", torch.tensor(losses, dtype=torch.float64))
                w.put(f"{variant}/{rule}/norms", torch.tensor(norms, dtype=torch.float64))
                for name, value in p.items():
                    w.put(f"{variant}/{rule}/p/{name}", value.float())


main()
