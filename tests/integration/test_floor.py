"""tests/bench/floor: the floors that RESULTS.md has beside measured steps."""

import subprocess
import sys
from pathlib import Path

import pytest

FLOOR = Path(__file__).resolve().parents[1] / "bench/floor"
CEILINGS = ("--tflops", "804", "--gbs", "4253")


def floor(*words):
    return subprocess.run([sys.executable, FLOOR, *words], capture_output=True, text=True, timeout=30)


def table(*words):
    """{name of an operation: its ms}"""
    lines = floor(*CEILINGS, *words).stdout.splitlines()
    return {line[:30].strip(): float(line.split()[-1]) for line in lines[1:-1]}


def test_operations_of_8192_tokens():
    """By hand: 2 x 8192 x 12 x 12 x 768 x 768 FLOPs forward, 3 x 2 x 8192 x 50304 x 768, 124,475,904 x 28 bytes, and so on."""
    ms = table("16x512x1:bf16")
    assert ms["blocks, forward"] == ms["blocks, gradients of inputs"] == ms["blocks, gradients of weights"] == 1.731
    assert (ms["vocabulary"], ms["cross-entropy"], ms["AdamW"]) == (2.362, 0.388, 0.819)
    assert (ms["LayerNorm, forward"], ms["LayerNorm, backward"]) == (0.290, 0.293)
    # 12 heads of 64: at T 512 memory, 4 and 8 tensors of 12.6 MB a layer; at T 1024, eight times the tokens, FLOPs
    assert (ms["attention, forward"], ms["attention, backward"]) == (0.142, 0.284)
    assert table("64x1024x1:bf16")["attention, backward"] == 3.850


def test_ranks_divide_the_optimizer_alone():
    one, four = table("4x512x2:bf16"), table("--gpus", "4", "4x512x2:bf16")
    divided = {"norm", "AdamW"}
    assert {name for name in one if one[name] != four[name]} == divided
    assert all(abs(one[name] - 4 * four[name]) < 3e-3 for name in divided)


def test_a_second_micro_batch():
    once, twice = table("2x512x1:bf16"), table("2x512x2:bf16")
    assert twice["vocabulary"] == pytest.approx(2 * once["vocabulary"], abs=2e-3)
    assert twice["AdamW"] == once["AdamW"]
    assert (once["weights' gradients added"], twice["weights' gradients added"]) == (0, 0.059)


def test_measured_over_both_floors():
    out = floor(*CEILINGS, "--brief", "16x512x1:bf16=15.782").stdout
    assert out == ("16x512x1:bf16: 6.34 TFLOP, 21.45 GB; floor one by one 9.844 ms, side by side 7.891 ms; "
                   "measured 15.782: 1.60 and 2.00 times\n")


def test_32_bits():
    """The master is the parameter: 28 bytes an element too; tensors are twice as long."""
    low, wide = table("32x128x1:bf16"), table("32x128x1:fp32")
    assert wide["AdamW"] == low["AdamW"]
    assert wide["cross-entropy"] == pytest.approx(2 * low["cross-entropy"], abs=2e-3)


@pytest.mark.parametrize("words, said", [
    ((*CEILINGS, "16x512:bf16"), "16x512:bf16: MICROxSEQxACCUMULATION:PRECISION[=MS] expected"),
    ((*CEILINGS, "16x1025x1:bf16"), "SEQ at most 1024"),
    ((*CEILINGS, "0x512x1:bf16"), "0x512x1:bf16: MICRO"),
    ((*CEILINGS, "1x512x1:int8"), "PRECISION bf16, fp16, tf32 or fp32"),
    (("--tflops", "0", "--gbs", "1", "1x1x1:bf16"), "--tflops: 0: a number above 0 expected"),
])
def test_what_is_no_work(words, said):
    end = floor(*words)
    assert end.returncode == 2 and said in end.stderr
