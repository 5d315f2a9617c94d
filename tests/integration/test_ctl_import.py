"""gpt2ctl import deepspeed and submit --deepspeed: every key of the file is taken, mapped, or named with the reason."""

import json
import re

import pytest

from client import ctl, one_object
from fake_daemon import FakeDaemon
from helpers import BUILD

# The keys of a run that a DeepSpeed file cannot have.
REST = ["--set", "model=gpt2", "--set", "data.kind=synthetic", "--set", "seq_len=512", "--set", "work.optimizer_steps=100"]

# In the shape of files that people have.
BASELINE = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "steps_per_print": 50,
    "optimizer": {"type": "AdamW", "params": {"lr": 2e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
    "fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500, "hysteresis": 2,
        "min_loss_scale": 1},
    "zero_optimization": {"stage": 1, "overlap_comm": True, "contiguous_gradients": True, "reduce_bucket_size": 5e7,
        "allgather_bucket_size": 1e8},
    "activation_checkpointing": {"partition_activations": False, "contiguous_memory_optimization": False,
        "cpu_checkpointing": False},
    "gradient_clipping": 0.5,
    "scheduler": {"type": "WarmupLR",
        "params": {"warmup_min_lr": 0, "warmup_max_lr": 2e-4, "warmup_num_steps": 200}},
    "wall_clock_breakdown": True,
}


def plain(stage, fp16):
    config = {"train_micro_batch_size_per_gpu": 8, "steps_per_print": 10,
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-5}}, "fp16": {"enabled": fp16}}
    return {**config, "zero_optimization": {"stage": stage}} if stage else config


def convert(tmp_path, config, *args):
    file = tmp_path / "ds.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config, indent=2))
    return ctl("import", "deepspeed", file, *args)


def notes_of(result):
    """{key: (kind, text)} of the list on stderr."""
    found = {}
    for line in result.stderr.splitlines():
        match = re.match(r"\S+?ds\.json(?::\d+:\d+)?: (\S+): (\w+): (.*)", line)
        assert match, line
        assert match[1] not in found, line
        found[match[1]] = (match[2], match[3])
    return found


def test_a_whole_configuration(tmp_path):
    result = convert(tmp_path, BASELINE, *REST)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {
        "model": {"preset": "gpt2"}, "data": {"kind": "synthetic"}, "seq_len": 512, "work": {"optimizer_steps": 100},
        "activation_checkpointing": "none",
        **{key: BASELINE[key] for key in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "optimizer",
            "fp16", "gradient_clipping", "scheduler")},
        "zero_optimization": {key: value for key, value in BASELINE["zero_optimization"].items()
            if key != "contiguous_gradients"},
    }
    notes = notes_of(result)
    assert notes.pop("activation_checkpointing")[0] == "mapped"
    assert {kind for kind, text in notes.values()} == {"harmless"}
    assert set(notes) == {"steps_per_print", "wall_clock_breakdown", "zero_optimization.contiguous_gradients",
        *("activation_checkpointing." + key for key in BASELINE["activation_checkpointing"])}
    # places are those of the file, whose numbers stay as they are written
    assert re.search(r"ds\.json:4:3: steps_per_print: harmless: ", result.stderr)
    assert '"reduce_bucket_size": 50000000.0,' in result.stdout
    assert convert(tmp_path, BASELINE, "--strict").returncode == 0


@pytest.mark.parametrize("fp16", [True, False])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_each_stage_is_imported_as_it_is(tmp_path, stage, fp16):
    result = convert(tmp_path, plain(stage, fp16))
    assert result.returncode == 0, result.stderr
    value = json.loads(result.stdout)
    assert value["zero_optimization"] == {**({"stage": stage} if stage else {}), "overlap_comm": stage == 3}
    assert value["fp16"] == {"enabled": fp16}
    notes = notes_of(result)
    assert notes["zero_optimization.overlap_comm"] == ("default",
        f"{'true' if stage == 3 else 'false'}, DeepSpeed's default at stage {stage}")
    assert {key for key, (kind, text) in notes.items() if kind == "missing"} == {"model", "data", "seq_len", "work"}
    assert notes.get("zero_optimization.stage") == (("unsupported",
        f"no engine can run stage {stage} yet; try --set zero_optimization.stage=1") if stage > 1 else None)


def test_a_stage_of_set_is_the_one_that_counts(tmp_path):
    result = convert(tmp_path, plain(2, True), "--set", "zero_optimization.stage=1")
    assert result.returncode == 0 and "zero_optimization.stage" not in notes_of(result)


def test_what_is_printed_is_a_spec(tmp_path, path):
    result = convert(tmp_path, {**BASELINE, "fp16": {"enabled": False}}, *REST, "--set", "name=imported")
    spec = tmp_path / "spec.json"
    spec.write_text(result.stdout)
    with FakeDaemon(path, **{"dry-run": lambda params, connection: {}}) as daemon:
        ctl("submit", spec, "--dry-run", "--json", path=path)
        direct = ctl("submit", "--deepspeed", tmp_path / "ds.json", *REST, "--set", "fp16.enabled=false", "--set",
            "name=imported", "--dry-run", "--json", path=path)
    first, second = daemon.asked("dry-run")
    assert first["spec"] == second["spec"]
    assert first["spec"]["name"] == "imported" and first["spec"]["optimizer"]["params"]["betas"] == [0.9, 0.95]
    assert "steps_per_print: harmless" in direct.stderr
    one_object(direct.stdout)


def test_automatic_values_have_a_source(tmp_path):
    config = {
        "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto", "bf16": {"enabled": "auto"},
        "optimizer": {"type": "AdamW",
            "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
            "warmup_num_steps": "auto", "total_num_steps": "auto"}},
        "zero_optimization": {"stage": 3, "overlap_comm": "auto", "reduce_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto", "allgather_bucket_size": "auto",
            "stage3_gather_16bit_weights_on_model_save": "auto"},
    }
    result = convert(tmp_path, config, *REST, "--set", "gradient_clipping=2")
    assert result.returncode == 0, result.stderr
    value, notes = json.loads(result.stdout), notes_of(result)
    assert value["train_micro_batch_size_per_gpu"] == 8 and value["gradient_accumulation_steps"] == 1
    assert "train_batch_size" not in value and value["gradient_clipping"] == 2
    assert value["optimizer"]["params"] == {"lr": 5e-5, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0}
    assert value["scheduler"]["params"] == {"warmup_min_lr": 0, "warmup_max_lr": 5e-5, "warmup_num_steps": 0,
        "total_num_steps": 100}
    assert value["zero_optimization"] == {"stage": 3, "overlap_comm": True, "reduce_bucket_size": 768 * 768,
        "stage3_param_persistence_threshold": 7680}
    assert notes["gradient_clipping"] == ("auto", "2, from --set")
    assert notes["optimizer.params.lr"] == ("auto", "5e-5, Transformers' default of learning_rate")
    assert notes["scheduler.params.total_num_steps"] == ("auto", "100, work.optimizer_steps of --set")
    assert notes["zero_optimization.allgather_bucket_size"] == ("auto", "500000000, the default")
    assert notes["zero_optimization.reduce_bucket_size"][1].startswith("589824, ")
    # without a model and the length of the run
    result = convert(tmp_path, config)
    assert result.returncode == 0, result.stderr
    notes = notes_of(result)
    assert json.loads(result.stdout)["zero_optimization"]["reduce_bucket_size"] == 500000000
    assert "--set model=PRESET" in notes["zero_optimization.reduce_bucket_size"][1]
    assert notes["scheduler.params.total_num_steps"][0] == "missing"
    assert re.search(r"ds\.json:\d+:\d+: scheduler.params.total_num_steps: missing: ", result.stderr)


def test_sizes_of_a_batch_that_are_automatic(tmp_path):
    value = json.loads(convert(tmp_path, {"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": 2}).stdout)
    assert value["train_batch_size"] == 64 and "train_micro_batch_size_per_gpu" not in value
    value = json.loads(convert(tmp_path, {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": "auto"}).stdout)
    assert "gradient_accumulation_steps" not in value


@pytest.mark.parametrize("config, key, kind, says", [
    ({"optimizer": {"type": "Adam", "params": {}}}, "optimizer.type", "mapped", "AdamW"),
    ({"optimizer": {"type": "Lamb"}}, "optimizer.type", "unsupported", "AdamW only"),
    ({"optimizer": {"type": "Adam", "params": {"adam_w_mode": False, "weight_decay": 0.1}}},
        "optimizer.params.adam_w_mode", "unsupported", "L2"),
    ({"optimizer": {"type": "Adam", "params": {"adam_w_mode": False}}}, "optimizer.params.adam_w_mode", "harmless", ""),
    ({"optimizer": {"type": "AdamW", "params": {"amsgrad": False}}}, "optimizer.params.amsgrad", "harmless", ""),
    ({"optimizer": {"type": "AdamW", "params": {"amsgrad": True}}}, "optimizer.params.amsgrad", "unsupported", "AMSGrad"),
    ({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1}}}, "scheduler.params", "unsupported", "schedule"),
    ({"zero_optimization": True}, "zero_optimization", "mapped", "stage 1"),
    ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}},
        "zero_optimization.offload_optimizer", "unsupported", "memory"),
    ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}},
        "zero_optimization.offload_optimizer", "harmless", "off"),
    ({"zero_optimization": {"stage": 2, "stage3_param_persistence_threshold": 10}},
        "zero_optimization.stage3_param_persistence_threshold", "harmless", "no effect at stage 2"),
    ({"zero_optimization": {"stage": 2, "stage3_max_live_parameters": 10}},
        "zero_optimization.stage3_max_live_parameters", "harmless", "no effect at stage 2"),
    ({"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 10}},
        "zero_optimization.stage3_max_live_parameters", "unsupported", "gathers"),
    ({"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e9}},
        "zero_optimization.stage3_max_live_parameters", "harmless", ""),
    ({"zero_optimization": {"overlap_com": True}}, "zero_optimization.overlap_com", "unknown", "did you mean overlap_comm?"),
    ({"activation_checkpointing": {"partition_activations": True}}, "activation_checkpointing", "mapped", '"full"'),
    ({"communication_data_type": "fp32"}, "communication_data_type", "mapped", "grad_dtype"),
    ({"data_types": {"grad_accum_dtype": "fp32"}, "bf16": {"enabled": True}}, "data_types.grad_accum_dtype",
        "unsupported", "compute type"),
    ({"gradient_predivide_factor": 1.0}, "gradient_predivide_factor", "harmless", ""),
    ({"gradient_predivide_factor": 8}, "gradient_predivide_factor", "unsupported", "ranks"),
    ({"flops_profiler": {"enabled": True}}, "flops_profiler", "harmless", "reports"),
    ({"curriculum_learning": {"enabled": True}}, "curriculum_learning", "unsupported", "order"),
    ({"curriculum_learning": {"enabled": False}}, "curriculum_learning", "harmless", "off"),
    ({"tensor_parallel": {"autotp_size": 4}}, "tensor_parallel", "unsupported", "data-parallel"),
    ({"gradient_clipping": None}, "gradient_clipping", "harmless", "null"),
    ({"x_why": 1}, "x_why", "harmless", "note"),
    ({"steps_per_pring": 1}, "steps_per_pring", "unknown", "did you mean steps_per_print?"),
])
def test_each_key_is_named_with_the_reason(tmp_path, config, key, kind, says):
    result = convert(tmp_path, {"train_batch_size": 8, **config})
    assert result.returncode == 0, result.stderr
    notes = notes_of(result)
    assert notes[key][0] == kind and says in notes[key][1], notes[key]
    strict = convert(tmp_path, {"train_batch_size": 8, **config}, "--strict")
    lost = {name for name, (found, text) in notes.items() if found in ("unsupported", "unknown")}
    assert strict.returncode == (2 if lost else 0), strict.stderr
    for name in lost:
        assert re.search(rf"ds\.json:\d+:\d+: {re.escape(name)}: \w+ \(--strict\): ", strict.stderr)
    assert strict.stdout == "" if lost else strict.stdout == result.stdout


def test_warmup_lr_rises_to_the_optimizers_rate(tmp_path):
    result = convert(tmp_path, {"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 3e-4}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}}})
    assert json.loads(result.stdout)["scheduler"]["params"] == {"warmup_num_steps": 5, "warmup_max_lr": 3e-4}
    assert notes_of(result)["scheduler.params.warmup_max_lr"][0] == "default"


@pytest.mark.parametrize("text, says", [
    ("{", "the end of the text"),
    ('{"fp16": 1}', "ds.json:1:2: fp16: an object expected, found the number 1"),
    ('{"train_batch_size": 8,\n "train_batch_size": 9}', "ds.json:2:2: train_batch_size: given twice, first in line 1"),
    ('{"train_batch_size": 8,\n "optimizer": {"type": "AdamW", "params": {"lr": -1}}}',
        "ds.json:2:44: optimizer.params.lr: -1 is not allowed, at least 0"),
    ('{"train_batch_size": 8, "zero_optimization": {\n"stage": 4}}',
        "ds.json:2:1: zero_optimization.stage: 4 is not allowed, at most 3"),
    ('{"gradient_accumulation_steps": 8, "train_batch_size": true}',
        "ds.json:1:36: train_batch_size: whole number expected, found true"),
])
def test_errors_have_the_places_of_the_file(tmp_path, text, says):
    result = convert(tmp_path, text)
    assert result.returncode == 2 and result.stdout == ""
    assert says in result.stderr


def test_set_replaces_what_the_file_says(tmp_path):
    result = convert(tmp_path, BASELINE, "--set", "scheduler.type=linear", "--set", "scheduler.params.total_num_steps=50",
        "--set", 'zero_optimization={"stage": 0, "reduce_bucket_size": "25M"}', "--set", "name=200")
    assert result.returncode == 0, result.stderr
    value = json.loads(result.stdout)
    assert value["scheduler"] == {"type": "linear", "params": {"total_num_steps": 50}}
    assert value["zero_optimization"]["stage"] == 0 and value["zero_optimization"]["reduce_bucket_size"] == "25M"
    assert value["name"] == "200"
    result = convert(tmp_path, BASELINE, "--set", "zero_optimization.stag=0")
    assert result.returncode == 2 and "did you mean zero_optimization.stage?" in result.stderr


def test_json_and_quiet(tmp_path):
    value = one_object(convert(tmp_path, plain(2, True), "--json").stdout)
    assert value["kind"] == "import deepspeed" and value["spec"]["zero_optimization"]["stage"] == 2
    assert value["missing"] == ["model", "data", "seq_len", "work"]
    assert value["notes"][0] == {"line": 3, "column": 3, "key": "steps_per_print", "kind": "harmless",
        "message": "for reports only; gpt2d measures every step"}
    quiet = convert(tmp_path, plain(2, True), "--quiet")
    assert quiet.stderr == "" and json.loads(quiet.stdout) == value["spec"]


def test_submit_needs_the_rest(tmp_path, path):
    file = tmp_path / "ds.json"
    file.write_text(json.dumps(plain(1, False)))
    with FakeDaemon(path) as daemon:
        result = ctl("submit", "--deepspeed", file, path=path)
        lone = ctl("submit", "--strict", file, path=path)
        without = ctl("submit", file, path=path)
        rerun = ctl("rerun", "1", "--deepspeed", path=path)
    assert result.returncode == 2 and daemon.requests == []
    assert "model: required" in result.stderr and "work: exactly one of" in result.stderr
    assert without.returncode == 2 and without.stderr.endswith("if this is a DeepSpeed configuration, use --deepspeed\n")
    assert "if this is" not in result.stderr
    assert lone.returncode == 2 and "--strict requires --deepspeed" in lone.stderr
    assert rerun.returncode == 2


def test_a_file_trains_and_stages_beyond_the_engines_are_refused(tmp_path, daemon):
    file = tmp_path / "ds.json"
    rest = ["--set", "model=nano", "--set", "data.kind=synthetic", "--set", "seq_len=16", "--set", "work.optimizer_steps=4"]
    schedule = {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_num_steps": 2, "warmup_max_lr": 1e-3}}
    with daemon(ranks=2, engine=BUILD / "engine" / "gpt2-engine-cpu") as d:
        for stage in 2, 3:
            file.write_text(json.dumps(plain(stage, False), indent=1))
            line = file.read_text().splitlines().index(f'  "stage": {stage}') + 1
            result = ctl("submit", "--deepspeed", file, "--quiet", *rest, path=d.socket)
            assert result.returncode == 2
            assert result.stderr.splitlines() == [f"{file}:{line}:3: zero_optimization.stage: no engine can run stage "
                f"{stage} yet (expected 0 or 1)"]
        file.write_text(json.dumps({**plain(1, False), "scheduler": schedule}))
        result = ctl("submit", "--deepspeed", file, "--follow", *rest, path=d.socket)
        assert result.returncode == 0, result.stderr
        shown = one_object(ctl("show", 1, "--json", path=d.socket).stdout)
        assert shown["spec"]["scheduler"]["params"]["total_num_steps"] == 4
        assert shown["spec"]["zero_optimization"]["overlap_comm"] is False
