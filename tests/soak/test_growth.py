"""The rule must find what leaks, and nothing else."""

import os
import random
import subprocess
import sys
import tempfile

import pytest

from tests.soak.growth import theil_sen, trends
from tests.soak.processes import role_of, sample


def grows(values: list[float], measure: str = "rank descriptors") -> bool:
    (trend,) = trends([{measure: value} for value in values])
    return trend.grows


def test_the_slope_of_a_line_is_its_own_and_an_odd_sample_does_not_move_it() -> None:
    assert theil_sen([3.0 * i for i in range(9)]) == 3.0
    assert theil_sen([5.0, 5.0, 5.0, 900.0, 5.0, 5.0, 5.0]) == 0.0


def test_one_descriptor_every_fourth_restart_is_growth() -> None:
    assert grows([float(20 + i // 4) for i in range(50)])


def test_a_count_that_only_flickers_does_not_grow() -> None:
    draw = random.Random(1)
    assert not grows([20.0 + draw.randint(0, 2) for _ in range(50)])


def test_what_the_first_restarts_fill_is_no_growth() -> None:
    assert not grows([float(min(i, 10)) for i in range(50)])


def test_memory_that_fills_up_more_and_more_slowly_is_no_growth() -> None:
    assert not grows([1e8 - 5e6 * 0.85**i for i in range(50)], "rank pss_bytes")


def test_memory_may_grow_by_a_page_now_and_then_but_not_by_ten_a_restart() -> None:
    assert not grows([1e8 + 2900.0 * i for i in range(50)], "launcher pss_bytes")
    assert grows([1e8 + 40960.0 * i for i in range(50)], "launcher pss_bytes")


def test_too_few_samples_prove_nothing() -> None:
    with pytest.raises(ValueError, match="too few"):
        grows([1.0] * 39)


def test_roles_are_told_by_the_command() -> None:
    assert role_of("python -m trainer.entry -- ft_launcher -m trainer.train", has_rank=False) == (
        "entry"
    )
    assert role_of("python ft_launcher -m trainer.train", has_rank=False) == "launcher"
    assert role_of("python -m trainer.train", has_rank=True) == "rank"
    assert role_of("python -m trainer.standby", name="rank 1", has_rank=False) == "rank"


LEAK = """
import sys
held = []
for _ in sys.stdin:
    held.append((open("/dev/null"), bytearray(b"x" * 65536)))
    print(flush=True)
"""


def test_a_stand_in_that_leaks_is_caught() -> None:
    with tempfile.TemporaryDirectory() as mark:
        process = subprocess.Popen(
            [sys.executable, "-c", LEAK, "trainer.train"],
            env={**os.environ, "TMPDIR": mark, "RANK": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        samples = []
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            for _ in range(45):
                process.stdin.write(b"\n")
                process.stdin.flush()
                process.stdout.readline()
                samples.append(sample(f"TMPDIR={mark}".encode()))
            process.stdin.close()
    growing = {trend.measure for trend in trends(samples) if trend.grows}
    assert growing >= {"rank descriptors", "rank pss_bytes"}
    assert "rank processes" not in growing
