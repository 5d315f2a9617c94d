"""Weights to and from Hugging Face's transformers: it and gpt2d compute the same with them.

packaging/setup peers installs torch, transformers and safetensors; without them each test is skipped.
"""

import json
import os
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

import engines  # noqa: E402
from client import ctl  # noqa: E402
from helpers import Daemon, RpcError, spec  # noqa: E402

VOCAB, POSITIONS = 257, 128
PROMPT = [84, 104, 101, 32, 113, 117]


def random_model(tied=True, activation="gelu_new", **more):
    torch.manual_seed(7)
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=VOCAB, n_positions=POSITIONS,
        activation_function=activation, tie_word_embeddings=tied, bos_token_id=256, eos_token_id=256, initializer_range=0.2, **more)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():  # norms and biases begin as ones and zeros, which would hide a mistake
        for name, value in model.named_parameters():
            if value.dim() == 1:
                value.add_(torch.randn_like(value) * 0.2)
    return model


def init_spec(model, path, **more):
    """Initial weights of the file, which training at rate 0 leaves alone, saved at the end."""
    c = model.config
    return spec("peer", 1, **{
        "model": {"n_layer": c.n_layer, "n_head": c.n_head, "n_embd": c.n_embd, "vocab_size": c.vocab_size, "n_positions": c.n_positions,
            "tied_head": c.tie_word_embeddings, "gelu": "exact" if c.activation_function == "gelu" else "tanh"},
        "init_from": {"safetensors": str(path)}, "optimizer": {"params": {"lr": 0}}, "gpus": 1, "checkpoint": {"at_end": True}, **more,
    })


def saved(c, s):
    run = c.submit(s)
    assert c.wait(run)["state"] == "done", c.call("show", id=run)["run"]["reason"]
    return run


def exported(d, run, folder, *options):
    done = ctl("--json", "export", run, "-o", folder, *options, path=d.socket)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def logits(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float()


def assert_same_log_probs(c, run, model, within):
    """Of 60 tokens that are drawn nearly evenly, so that all parts of the vocabulary are looked at."""
    reply = c.call("generate", id=run, prompt=PROMPT, tokens=60, temperature=1000.0, seed=1)
    tokens = reply["tokens"]
    assert len(set(tokens)) > 30
    rows = torch.log_softmax(logits(model, PROMPT + tokens), -1)[len(PROMPT) - 1:-1]
    for row, token, log_prob in zip(rows, tokens, reply["log_probs"]):
        assert abs(float(row[token]) - log_prob) < within


@pytest.fixture(scope="module")
def gpt2d():
    if not engines.PROGRAM.exists():
        pytest.skip("no engine was built")
    with Daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        yield d, c


# the second is the old harness's model
@pytest.mark.parametrize("tied, activation", [(True, "gelu_new"), (False, "gelu")])
def test_round_trip(gpt2d, tmp_path, tied, activation):
    d, c = gpt2d
    model = random_model(tied, activation)
    model.save_pretrained(tmp_path / "theirs", safe_serialization=True)
    run = saved(c, init_spec(model, tmp_path / "theirs" / "model.safetensors"))
    assert_same_log_probs(c, run, model, 1e-3)
    exported(d, run, tmp_path / "ours")
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "ours").eval()
    assert again.config.activation_function == activation and again.config.tie_word_embeddings == tied
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    assert torch.allclose(logits(again, PROMPT), logits(model, PROMPT), atol=1e-6)


@pytest.mark.parametrize("tied, activation", [(True, "gelu_new"), (False, "gelu")])
def test_trained_weights(gpt2d, tmp_path, tied, activation):
    """Trained on two ranks, exported, and loaded by transformers: the same logits, and 50 greedy tokens are the same."""
    d, c = gpt2d
    model = random_model(tied, activation)
    model.save_pretrained(tmp_path / "theirs", safe_serialization=True)
    s = init_spec(model, tmp_path / "theirs" / "model.safetensors", optimizer={"params": {"lr": 0.003}}, gpus=2,
        zero_optimization={"stage": 1}, work={"optimizer_steps": 20, "warmup_steps": 1})
    run = saved(c, s)
    exported(d, run, tmp_path / "ours")
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "ours").eval()
    assert not torch.equal(again.state_dict()["transformer.h.0.mlp.c_fc.weight"], model.state_dict()["transformer.h.0.mlp.c_fc.weight"])
    assert_same_log_probs(c, run, again, 1e-3)
    reply = c.call("generate", id=run, prompt=PROMPT, tokens=50)
    theirs = again.generate(torch.tensor([PROMPT]), max_new_tokens=50, do_sample=False, eos_token_id=None, pad_token_id=256)
    assert reply["tokens"] == theirs[0, len(PROMPT):].tolist()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_export(gpt2d, tmp_path, dtype):
    d, c = gpt2d
    model = random_model()
    model.save_pretrained(tmp_path / "theirs", safe_serialization=True)
    run = saved(c, init_spec(model, tmp_path / "theirs" / "model.safetensors"))
    exported(d, run, tmp_path / "ours", "--dtype", dtype)
    found = safetensors.load_file(tmp_path / "ours" / "model.safetensors")
    for name, value in model.state_dict().items():
        if name in found:
            assert torch.equal(found[name], value.to(getattr(torch, dtype))), name
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "ours", torch_dtype=getattr(torch, dtype)).float().eval()
    assert float((logits(again, PROMPT) - logits(model, PROMPT)).abs().max()) < (2e-1 if dtype == "bfloat16" else 2e-2)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_files_are_loaded(gpt2d, tmp_path, dtype):
    """Without a prefix, as OpenAI's upload has them, and in 16 bits."""
    d, c = gpt2d
    model = random_model()
    narrow = {name.removeprefix("transformer."): value.to(getattr(torch, dtype)).contiguous()
        for name, value in model.state_dict().items() if name != "lm_head.weight"}
    safetensors.save_file(narrow, tmp_path / "narrow.safetensors")
    run = saved(c, init_spec(model, tmp_path / "narrow.safetensors"))
    exported(d, run, tmp_path / "ours")
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "ours")
    for name, value in again.transformer.state_dict().items():
        if name in narrow:
            assert torch.equal(value, narrow[name].float()), name


SIZES = {"gpt2": (12, 12, 768), "gpt2-medium": (24, 16, 1024), "gpt2-large": (36, 20, 1280), "gpt2-xl": (48, 25, 1600)}


@pytest.mark.parametrize("preset", SIZES)
def test_the_four_sizes(gpt2d, tmp_path, preset):
    """gpt2d expects the tensors that transformers has: a sparse file of their names and shapes passes the check of a preset.

    One block of the width stands for all: the full models would take 9 GB.
    """
    layers, heads, width = SIZES[preset]
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_head=heads, n_embd=width))
    header, at, count = {}, 0, 0
    for name, value in model.named_parameters():
        names = [name.replace(".h.0.", f".h.{layer}.") for layer in range(layers)] if ".h.0." in name else [name]
        for one in names:
            header[one] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + 4 * value.numel()]}
            at += 4 * value.numel()
            count += value.numel()
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + at)
    _, c = gpt2d
    s = spec(preset, 1, model=preset, init_from={"safetensors": str(path)}, gpus=1, activation_checkpointing="full")
    try:
        assert c.call("dry-run", spec=s)["arms"][0]["check"]["model"]["parameters"] == count
    except RpcError as error:  # of a machine that has too little memory to train it
        assert {e["key"] for e in error.data["errors"]} == {"model"}, error.message
    other = next(name for name in SIZES if name != preset)
    with pytest.raises(RpcError) as error:
        c.call("dry-run", spec={**s, "model": other})
    assert "init_from.safetensors" in {e["key"] for e in error.value.data["errors"]}
