"""init_from: the parameters of a run come from a Hugging Face GPT-2, and a file that does not fit is refused at submit."""

import array
import json

import pytest

import engines
from gpt2_model import Model
from helpers import RpcError, spec

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
        def refusal(**more):
            with pytest.raises(RpcError) as error:
                c.submit({**good, **more})
            first = error.value.data["errors"][0]
            return f"{first['key']}: {first['message']}"

        assert refusal(model={**model.spec(), "n_layer": 3}) == \
            f"init_from.safetensors: {path}: tensor transformer.h.2.mlp.c_proj.weight is missing"
        assert "the spec's model (n_layer 1) has no such tensor" in refusal(model={**model.spec(), "n_layer": 1})
        assert "shape [257, 16], the spec's model needs [300, 16]" in refusal(model={**model.spec(), "vocab_size": 300})
        path.write_bytes(whole[:-1])
        assert "not within the" in (message := refusal()) and "truncated" in message
        for start, kind in ((b"PK\3\4", "is a PyTorch file"), (b"\x80\2}q", "is a Python pickle"), (b"{\n  ", "is a JSON file"),
                (b"version https://git-lfs", "is a Git LFS pointer (git lfs pull")):
            path.write_bytes(start + bytes(100))
            assert kind in refusal()
        assert "is a folder (expected a file" in refusal(init_from={"safetensors": str(tmp_path)})
        path.write_bytes(b"\xff" * 8 + whole[8:])
        assert "a header of 18446744073709551615 bytes" in refusal()
        path.write_bytes(b"no weights")
        assert "no safetensors file" in refusal()
        path.unlink()
        assert refusal() == f"init_from.safetensors: {path}: No such file or directory"


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
            with pytest.raises(RpcError) as error:
                c.submit({**good, "init_from": {"safetensors": str(path)}})
            assert error.value.data["errors"][0]["key"] == "init_from.safetensors"
            assert "is not below a data root" in error.value.message
        assert c.wait(c.submit(good))["state"] == "done"
