"""init_from, export and generate: weights from and to Hugging Face's files, and text of the warm engine."""

import array
import json
import os
import stat

import pytest

import engines
from client import ctl
from gpt2_model import Model, flat, read
from helpers import RpcError, refusal, spec, wait_for


pytestmark = pytest.mark.skipif(not engines.PROGRAM.exists(), reason="no engine was built")


def tokens_of(model, n=17):
    return [(7 * i * i + 3) % model.vocab for i in range(n)]


def init_spec(model, folder, name="init", **more):
    """A step at learning rate 0 on the one sequence of a file, so that its loss is the model's."""
    tokens = tokens_of(model)
    (folder / "train.bin").write_bytes(array.array("H", tokens).tobytes())
    model.save(folder / "model.safetensors")
    return spec(name, 1, **{
        "model": model.spec(), "data": {"train": str(folder / "train.bin")}, "seq_len": len(tokens) - 1, "gpus": 1,
        "init_from": {"safetensors": str(folder / "model.safetensors")}, "optimizer": {"params": {"lr": 0}}, **more,
    })


def losses(d, c, run):
    assert c.wait(run)["state"] == "done", c.call("show", id=run)["run"]["reason"]
    folder = c.call("show", id=run)["run"]["dir"]
    with open(folder + "/training_metrics.json", encoding="utf-8") as file:
        return json.load(file)["gpt2d"]["losses"]


@pytest.mark.parametrize("tied, gelu", [(True, "tanh"), (False, "exact")])
def test_the_loss_is_that_of_the_files_model(daemon, tmp_path, tied, gelu):
    model = Model(tied=tied, gelu=gelu)
    with daemon(engine=engines.PROGRAM) as d, d.client() as c:
        found = losses(d, c, c.submit(init_spec(model, tmp_path)))
    assert found == [pytest.approx(model.loss(tokens_of(model)), abs=2e-5)]


def test_each_rank_loads_the_file(daemon, tmp_path):
    """Two ranks at stage 1: each has the whole model and updates its slices."""
    model = Model()
    one = init_spec(model, tmp_path, "one", optimizer={"params": {"lr": 1e-3}}, train_batch_size=2, work={"optimizer_steps": 3})
    one.pop("train_micro_batch_size_per_gpu")
    one.pop("gradient_accumulation_steps")
    tokens = tokens_of(model, 2 * one["seq_len"] + 1)
    (tmp_path / "train.bin").write_bytes(array.array("H", tokens).tobytes())
    two = {**one, "name": "two", "gpus": 2, "zero_optimization": {"stage": 1}}
    with daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        a, b = (losses(d, c, c.submit(s)) for s in (one, two))
    assert a == pytest.approx(b, abs=1e-5) and a[2] < a[0]


def test_a_file_that_does_not_fit_is_refused(daemon, tmp_path):
    model = Model()
    good = init_spec(model, tmp_path)
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    with daemon(engine=engines.PROGRAM) as d, d.client() as c:
        def refused(**more):
            error = refusal(c.submit, {**good, **more})
            first = error.data["errors"][0]
            return f"{first['key']}: {first['message']}"

        assert refused(model={**model.spec(), "n_layer": 3}) == \
            f"init_from.safetensors: {path}: tensor transformer.h.2.mlp.c_proj.weight is missing"
        assert "the spec's model (n_layer 1) has no such tensor" in refused(model={**model.spec(), "n_layer": 1})
        assert "shape [257, 16], the spec's model needs [300, 16]" in refused(model={**model.spec(), "vocab_size": 300})
        path.write_bytes(whole[:-1])
        assert "not within the" in (message := refused()) and "truncated" in message
        for start, kind in ((b"PK\3\4", "is a PyTorch file"), (b"\x80\2}q", "is a Python pickle"), (b"{\n  ", "is a JSON file"),
                (b"version https://git-lfs", "is a Git LFS pointer (git lfs pull")):
            path.write_bytes(start + bytes(100))
            assert kind in refused()
        assert "is a folder (expected a file" in refused(init_from={"safetensors": str(tmp_path)})
        path.write_bytes(b"\xff" * 8 + whole[8:])
        assert "a header of 18446744073709551615 bytes" in refused()
        path.write_bytes(b"no weights")
        assert "no safetensors file" in refused()
        path.unlink()
        assert refused() == f"init_from.safetensors: {path}: No such file or directory"


def test_only_below_the_data_roots(daemon, tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    model = Model()
    good = init_spec(model, inside)
    model.save(outside / "model.safetensors")
    (inside / "link.safetensors").symlink_to(outside / "model.safetensors")
    with daemon(engine=engines.PROGRAM, options=("--data-roots", str(inside))) as d, d.client() as c:
        for path in (outside / "model.safetensors", inside / "link.safetensors"):
            error = refusal(c.submit, {**good, "init_from": {"safetensors": str(path)}})
            assert error.data["errors"][0]["key"] == "init_from.safetensors"
            assert "is not below a data root" in error.message
        assert c.wait(c.submit(good))["state"] == "done"


SAVES = {"checkpoint": {"at_end": True}}


def saved(d, c, s):
    """A run that is done and has saved its weights: its ID."""
    run = c.submit({**s, **SAVES})
    assert c.wait(run)["state"] == "done", c.call("show", id=run)["run"]["reason"]
    return run


def answer(d, *words):
    done = ctl("--json", *words, path=d.socket)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


@pytest.mark.parametrize("prefix, tied, gelu", [("transformer.", True, "tanh"), ("", False, "exact")])
def test_what_was_loaded_is_exported(daemon, tmp_path, prefix, tied, gelu):
    """Not a bit differs, for two ranks that each save their part of it."""
    model = Model(tied=tied, gelu=gelu)
    s = init_spec(model, tmp_path, zero_optimization={"stage": 1})
    model.save(tmp_path / "model.safetensors", prefix)
    with daemon(ranks=2, engine=engines.PROGRAM) as d, d.client() as c:
        run = saved(d, c, s)
        out = tmp_path / "out"
        shown = answer(d, "export", run, "-o", out)
        assert shown["kind"] == "export" and shown["id"] == run and shown["step"] == 1
        again = ctl("export", run, "-o", out, path=d.socket)
        assert again.returncode == 2 and "already exists" in again.stderr
    found = read(out / "model.safetensors")
    assert shown["parameters"] == sum(len(values) for _, values in found.values())
    assert shown["bytes"] == (out / "model.safetensors").stat().st_size
    expected = {name if name == "lm_head.weight" else "transformer." + name: value for name, value in model.weights.items()}
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name][1] == flat(value), name
    config = json.loads((out / "config.json").read_text())
    assert config["activation_function"] == ("gelu" if gelu == "exact" else "gelu_new")
    assert config["tie_word_embeddings"] == tied and config["vocab_size"] == 257 and config["n_positions"] == 64
    assert config["eos_token_id"] == 256 and config["model_type"] == "gpt2" and config["torch_dtype"] == "float32"


def test_a_trained_run_goes_on_from_its_export(daemon, tmp_path):
    """The weights after training, exported, are those that a second run starts with: its first loss shows it."""
    model = Model()
    s = init_spec(model, tmp_path, optimizer={"params": {"lr": 0.01}}, work={"optimizer_steps": 3, "warmup_steps": 0})
    with daemon(engine=engines.PROGRAM) as d, d.client() as c:
        run = saved(d, c, s)
        assert ctl("export", run, "-o", tmp_path / "out", path=d.socket).returncode == 0
        longer = {**s, "work": {"optimizer_steps": 4, "warmup_steps": 0}}
        resumed = {**s, "init_from": {"safetensors": str(tmp_path / "out" / "model.safetensors")}}
        losses = []
        for one in (longer, resumed):
            run = c.submit(one)
            assert c.wait(run)["state"] == "done"
            folder = c.call("show", id=run)["run"]["dir"]
            with open(folder + "/training_metrics.json", encoding="utf-8") as file:
                losses.append(json.load(file)["gpt2d"]["losses"])
    assert losses[0][3] == losses[1][0]


@pytest.mark.parametrize("tied, gelu", [(True, "tanh"), (False, "exact")])
def test_greedy_is_the_models(daemon, tmp_path, tied, gelu):
    model = Model(tied=tied, gelu=gelu, n_layer=1, n_embd=8, vocab=41, positions=100)
    prompt = [3, 1, 4, 1, 5]
    tokens, log_probs = model.greedy(prompt, 50)
    with daemon(engine=engines.PROGRAM) as d, d.client() as c:
        run = saved(d, c, init_spec(model, tmp_path))
        reply = answer(d, "generate", run, "--prompt-ids", "3,1,4,1,5")
        shown = ctl("generate", run, "--prompt-ids", "3,1,4,1,5", "-n", 3, path=d.socket)
        whole = c.call("generate", id=run, prompt=prompt, tokens=95)
        error = refusal(c.call, "generate", id=run, prompt=prompt, tokens=96)
        assert "5 tokens and 96 more: the model has 100 positions\nadd at most 95: --tokens 95" in error.message
        error = refusal(c.call, "generate", id=run, prompt=[1] * 100)
        assert "a prompt of 100 tokens is too long: the model has 100 positions (at most 99 tokens" in error.message
        assert "token 41 of the prompt: the model has 41 tokens (0 to 40)" in refusal(c.call, "generate", id=run, prompt=[41]).message
    assert reply["tokens"] == tokens and reply["log_probs"] == pytest.approx(log_probs, abs=1e-4)
    assert reply["step"] == 1 and reply["vocab_size"] == 41 and not reply["stopped"] and reply["tokens_per_sec"] > 0
    assert len(whole["tokens"]) == 95 and whole["tokens"][:50] == tokens
    assert shown.stdout == ",".join(map(str, tokens[:3])) + "\n"
    assert "tokens/s" in shown.stderr and "weights read in" in shown.stderr


def test_text_and_draws(daemon, tmp_path):
    model = Model()
    with daemon(engine=engines.PROGRAM) as d, d.client() as c:
        run = saved(d, c, init_spec(model, tmp_path))
        greedy = answer(d, "generate", run, "--prompt", "ab", "-n", 5)
        expected, _ = model.greedy([97, 98], 5)
        assert greedy["tokens"] == expected[:len(greedy["tokens"])] and greedy["text"].startswith("ab")
        def draw(seed, *more):
            return answer(d, "generate", run, "--prompt-ids", "97,98", "-n", 40, "--temperature", 1.5, "--seed", seed, *more)["tokens"]
        assert draw(1) == draw(1) != draw(2)
        assert draw(1, "--top-k", 1) == model.greedy([97, 98], 40)[0]
        empty = answer(d, "generate", run, "-n", 1)  # the model begins a document
        assert empty["tokens"] == model.greedy([256], 1)[0]


def test_a_token_ends_it(daemon, tmp_path):
    model = Model()
    tokens, _ = model.greedy([1, 2], 20)
    with daemon(engine=engines.PROGRAM) as d, d.client() as c:
        run = saved(d, c, init_spec(model, tmp_path))
        reply = c.call("generate", id=run, prompt=[1, 2], tokens=20, stop=tokens[4])
    assert reply["stopped"] and reply["tokens"] == tokens[:tokens.index(tokens[4]) + 1]


def test_the_engine_keeps_the_weights_until_the_next_run(daemon, tmp_path):
    """Seen by a file that is damaged after they were read."""
    with daemon(engine=engines.PROGRAM) as d, d.client() as c:
        run = saved(d, c, init_spec(Model(), tmp_path))
        other = saved(d, c, init_spec(Model(n_layer=1), tmp_path, "other"))
        first = c.call("generate", id=run, prompt=[1], tokens=20)["tokens"]
        shard = os.path.join(c.call("checkpoint", id=run)["dir"], "shard-0-of-1.bin")
        with open(shard, "r+b") as file:
            file.write(b"\xff" * 8)
        assert c.call("generate", id=run, prompt=[1], tokens=20)["tokens"] == first
        with pytest.raises(RpcError, match="more: the model has 64 positions"):
            c.call("generate", id=run, prompt=[1], tokens=64)
        assert c.call("generate", id=run, prompt=[1] * 40, tokens=20)["tokens"]  # another shape
        assert c.call("generate", id=run, prompt=[1], tokens=20)["tokens"] == first
        assert c.wait(c.submit(spec("between")))["state"] == "done"
        with pytest.raises(RpcError, match="shard-0-of-1.bin: damaged"):
            c.call("generate", id=run, prompt=[1])
        assert c.call("generate", id=other, prompt=[1])["tokens"]
        with pytest.raises(RpcError, match="shard-0-of-1.bin: damaged"):
            c.call("generate", id=run, prompt=[1])
        assert c.call("generate", id=other, prompt=[1])["tokens"]


def test_a_run_that_saved_nothing(daemon):
    with daemon(engine=engines.PROGRAM) as d, d.client() as c:
        run = c.submit(spec())
        c.wait(run)
        for words in (["export", run, "-o", "/tmp/never-written"], ["generate", run, "--prompt", "x"]):
            done = ctl(*words, path=d.socket)
            assert done.returncode == 12 and "has saved no checkpoint" in done.stderr
            assert f"gpt2ctl rerun {run} --set checkpoint.at_end=true" in done.stderr
        done = ctl("export", 99, "-o", "/tmp/never-written", path=d.socket)
        assert done.returncode == 7 and "99" in done.stderr


def test_not_while_a_run_trains(daemon, tmp_path):
    """generate is refused; a run that comes during one waits for its end."""
    model = Model(n_layer=1, n_embd=8, positions=8192)
    with daemon(engine=engines.PROGRAM) as d, d.client() as c, d.client() as other:
        run = saved(d, c, init_spec(model, tmp_path))
        long = c.submit(spec("long", 1000000))
        wait_for(lambda: c.call("show", id=long)["run"]["state"] == "running", "the long run")
        error = refusal(c.call, "generate", id=run, prompt=[1])
        assert f"run {long} is with the engines" in error.message and error.code == -32005
        c.call("cancel", id=long)
        number = c.ask("generate", id=run, prompt=[1], tokens=8000)
        with pytest.raises(RpcError) as error:
            while True:
                other.call("generate", id=run, prompt=[1], tokens=1)
        assert "another generation is in progress" in error.value.message
        short = other.submit(spec("short"))
        assert number and other.call("show", id=short)["run"]["state"] == "queued"
        c.close()  # no client waits for it: it ends
        assert other.wait(short)["state"] == "done"


def test_engines_that_were_idle_are_started(daemon, tmp_path):
    model = Model()
    with daemon(engine=engines.PROGRAM) as d, d.client() as c:
        run = saved(d, c, init_spec(model, tmp_path))
        c.call("release", wait=True)
        assert "gpt2ctl warm" in refusal(c.call, "generate", id=run, prompt=[1]).message
        c.call("warm")
        assert c.call("generate", id=run, prompt=[1])["tokens"]


def test_a_damaged_shard_is_named(daemon, tmp_path):
    model = Model()
    with daemon(engine=engines.PROGRAM) as d, d.client() as c:
        run = saved(d, c, init_spec(model, tmp_path))
        place = c.call("checkpoint", id=run)["dir"]
        shard = os.path.join(place, "shard-0-of-1.bin")
        with open(shard, "r+b") as file:
            file.seek(100)
            byte = file.read(1)
            file.seek(100)
            file.write(bytes([byte[0] ^ 1]))
        done = ctl("export", run, "-o", tmp_path / "out", path=d.socket)
        assert done.returncode == 1 and "shard-0-of-1.bin" in done.stderr
        assert not (tmp_path / "out").exists()
        os.truncate(shard, 10)
        done = ctl("export", place, "-o", tmp_path / "out")  # a path needs no gpt2d
        assert done.returncode == 1 and "shard-0-of-1.bin" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_that_may_not_be_read(daemon, tmp_path):
    with daemon(engine=engines.PROGRAM) as d, d.client() as c:
        run = saved(d, c, init_spec(Model(), tmp_path))
        place = c.call("checkpoint", id=run)["dir"]
        os.chmod(place, 0)
        done = ctl("export", run, "-o", tmp_path / "out", path=d.socket)
        os.chmod(place, stat.S_IRWXU)
        assert done.returncode == 9 and "checkpoint.dir" in done.stderr
