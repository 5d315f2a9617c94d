"""A small GPT-2 in plain Python: random weights, forward pass, and Hugging Face's safetensors files of it.

The forward pass follows Radford et al. 2019 and the names and layouts of transformers 4: Conv1D weights are (inputs, outputs).
"""

import json
import math
import random
import struct


def tensor(rng, rows, cols, std=0.2, mean=0.0):
    """Nested lists of numbers that fp32 holds exactly; rows 0: a vector."""
    def row():
        return [round((mean + rng.gauss(0, std)) * 4096) / 4096 for _ in range(cols)]
    return row() if rows == 0 else [row() for _ in range(rows)]


class Model:
    def __init__(self, n_layer=2, n_head=2, n_embd=16, vocab=257, positions=64, tied=True, gelu="tanh", seed=1):
        rng = random.Random(seed)
        self.n_layer, self.n_head, self.n_embd, self.vocab, self.positions = n_layer, n_head, n_embd, vocab, positions
        self.tied, self.gelu = tied, gelu
        c = n_embd
        w = {"wte.weight": tensor(rng, vocab, c, 0.5), "wpe.weight": tensor(rng, positions, c, 0.5)}
        for layer in range(n_layer):
            shapes = {
                "ln_1.weight": (0, c), "ln_1.bias": (0, c), "attn.c_attn.weight": (c, 3 * c), "attn.c_attn.bias": (0, 3 * c),
                "attn.c_proj.weight": (c, c), "attn.c_proj.bias": (0, c), "ln_2.weight": (0, c), "ln_2.bias": (0, c),
                "mlp.c_fc.weight": (c, 4 * c), "mlp.c_fc.bias": (0, 4 * c), "mlp.c_proj.weight": (4 * c, c), "mlp.c_proj.bias": (0, c),
            }
            for name, (rows, cols) in shapes.items():
                norm = name in ("ln_1.weight", "ln_2.weight")
                w[f"h.{layer}.{name}"] = tensor(rng, rows, cols, 0.3, 1.0 if norm else 0.0)
        w["ln_f.weight"], w["ln_f.bias"] = tensor(rng, 0, c, 0.3, 1.0), tensor(rng, 0, c)
        if not tied:
            w["lm_head.weight"] = tensor(rng, vocab, c, 0.5)
        self.weights = w

    def spec(self):
        """The key model of a run spec."""
        return {"n_layer": self.n_layer, "n_head": self.n_head, "n_embd": self.n_embd, "vocab_size": self.vocab,
            "n_positions": self.positions, "tied_head": self.tied, "gelu": self.gelu}

    def logits(self, tokens):
        """Of what follows each of the tokens: a list of vocab numbers for each."""
        w = self.weights
        x = [[a + b for a, b in zip(w["wte.weight"][token], w["wpe.weight"][i])] for i, token in enumerate(tokens)]
        for layer in range(self.n_layer):
            at = f"h.{layer}."
            hidden = [norm(row, w[at + "ln_1.weight"], w[at + "ln_1.bias"]) for row in x]
            mixed = self.attention([linear(row, w[at + "attn.c_attn.weight"], w[at + "attn.c_attn.bias"]) for row in hidden])
            x = [add(row, linear(m, w[at + "attn.c_proj.weight"], w[at + "attn.c_proj.bias"])) for row, m in zip(x, mixed)]
            hidden = [norm(row, w[at + "ln_2.weight"], w[at + "ln_2.bias"]) for row in x]
            hidden = [[self.activation(v) for v in linear(row, w[at + "mlp.c_fc.weight"], w[at + "mlp.c_fc.bias"])] for row in hidden]
            x = [add(row, linear(h, w[at + "mlp.c_proj.weight"], w[at + "mlp.c_proj.bias"])) for row, h in zip(x, hidden)]
        head = w["wte.weight" if self.tied else "lm_head.weight"]
        return [[dot(h, token) for token in head] for h in (norm(row, w["ln_f.weight"], w["ln_f.bias"]) for row in x)]

    def attention(self, qkv):
        c, size = self.n_embd, self.n_embd // self.n_head
        out = [[0.0] * c for _ in qkv]
        for head in range(self.n_head):
            q, k, v = (slice(part * c + head * size, part * c + (head + 1) * size) for part in range(3))
            for i, row in enumerate(qkv):
                scores = softmax([dot(row[q], qkv[j][k]) / math.sqrt(size) for j in range(i + 1)])
                for j, p in enumerate(scores):
                    for d, value in enumerate(qkv[j][v]):
                        out[i][head * size + d] += p * value
        return out

    def activation(self, x):
        if self.gelu == "exact":
            return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))
        return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))

    def greedy(self, prompt, n):
        """n tokens after the prompt, and the logarithm of each one's probability."""
        tokens, log_probs = list(prompt), []
        for _ in range(n):
            p = softmax(self.logits(tokens)[-1])
            best = max(range(self.vocab), key=p.__getitem__)
            tokens.append(best)
            log_probs.append(math.log(p[best]))
        return tokens[len(prompt):], log_probs

    def loss(self, tokens):
        """Mean cross-entropy of a sequence, whose last token is a target only."""
        rows = self.logits(tokens[:-1])
        return sum(-math.log(softmax(row)[target]) for row, target in zip(rows, tokens[1:])) / len(rows)

    def save(self, path, prefix="transformer.", **more):
        """Writes the safetensors file; more: further tensors."""
        named = {name if name == "lm_head.weight" else prefix + name: value for name, value in self.weights.items()}
        write(path, {**named, **more})


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def add(a, b):
    return [x + y for x, y in zip(a, b)]


def linear(row, weight, bias):
    out = list(bias)
    for x, weights in zip(row, weight):
        for i, w in enumerate(weights):
            out[i] += x * w
    return out


def norm(row, weight, bias):
    mean = sum(row) / len(row)
    rstd = 1 / math.sqrt(sum((x - mean) ** 2 for x in row) / len(row) + 1e-5)
    return [(x - mean) * rstd * w + b for x, w, b in zip(row, weight, bias)]


def softmax(row):
    largest = max(row)
    e = [math.exp(x - largest) for x in row]
    total = sum(e)
    return [x / total for x in e]


def flat(value):
    return [x for row in value for x in row] if isinstance(value[0], list) else value


def write(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, value in tensors.items():
        shape = [len(value), len(value[0])] if isinstance(value[0], list) else [len(value)]
        numbers = flat(value)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(numbers)]}
        data += struct.pack(f"<{len(numbers)}f", *numbers)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read(path):
    """{name: (shape, flat numbers)} of a file whose tensors are all F32."""
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    assert header.pop("__metadata__") == {"format": "pt"}
    out = {}
    for name, t in header.items():
        first, last = (8 + n + offset for offset in t["data_offsets"])
        assert t["dtype"] == "F32"
        out[name] = t["shape"], list(struct.unpack(f"<{(last - first) // 4}f", data[first:last]))
    return out
