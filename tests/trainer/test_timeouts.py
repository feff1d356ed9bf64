"""The chains of timeouts: hand-computed values, and the orders that are refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.settings import TimeoutSettings
from trainer.timeouts import Timeouts, derive_timeouts

REHEARSAL = TimeoutSettings(hang_seconds=8, startup_seconds=120, drain_seconds=20)


def test_gloo_collectives_give_up_before_anyone_loses_patience() -> None:
    timeouts = derive_timeouts(REHEARSAL, device="cpu")
    assert timeouts == Timeouts(
        device="cpu",
        agreement_seconds=6,
        collective_seconds=6,
        soft_seconds=8,
        hard_seconds=13,
        barrier_seconds=120,
        heartbeat_seconds=18,
        initial_heartbeat_seconds=120,
        drain_seconds=20,
        terminate_seconds=50,
        grace_seconds=80,
    )


def test_nccl_collectives_give_up_last() -> None:
    timeouts = derive_timeouts(TimeoutSettings(), device="cuda")
    assert timeouts == Timeouts(
        device="cuda",
        agreement_seconds=90,
        collective_seconds=210,
        soft_seconds=120,
        hard_seconds=150,
        barrier_seconds=1200,
        heartbeat_seconds=180,
        initial_heartbeat_seconds=1200,
        drain_seconds=240,
        terminate_seconds=270,
        grace_seconds=300,
    )


def test_barrier_outlasts_the_hard_timeout_when_startup_is_short() -> None:
    settings = TimeoutSettings(hang_seconds=100, startup_seconds=1, drain_seconds=1)
    assert derive_timeouts(settings, device="cuda").barrier_seconds == 175


def test_grace_is_rounded_up_to_whole_seconds() -> None:
    settings = TimeoutSettings(hang_seconds=8, startup_seconds=60, drain_seconds=20.25)
    assert derive_timeouts(settings, device="cpu").grace_seconds == 81


@given(
    hang=st.floats(0.01, 1e5),
    startup=st.floats(0.01, 1e5),
    drain=st.floats(0.01, 1e5),
    device=st.sampled_from(["cpu", "cuda"]),
)
def test_derived_timeouts_are_never_refused(
    hang: float, startup: float, drain: float, device: str
) -> None:
    settings = TimeoutSettings(hang_seconds=hang, startup_seconds=startup, drain_seconds=drain)
    timeouts = derive_timeouts(settings, device=device)
    assert timeouts.soft_seconds == hang
    assert timeouts.heartbeat_seconds >= hang


@pytest.mark.parametrize(
    ("device", "change", "message"),
    [
        ("cpu", {"collective_seconds": 9.0}, "collective_seconds 9 .* soft_seconds 8"),
        ("cuda", {"collective_seconds": 12.0}, "hard_seconds 13 .* collective_seconds 12"),
        ("cpu", {"soft_seconds": 13.0}, "soft_seconds 13 .* hard_seconds 13"),
        ("cuda", {"heartbeat_seconds": 10.0}, "hard_seconds 13 .* heartbeat_seconds 10"),
        ("cpu", {"barrier_seconds": 11.0}, "hard_seconds 13 .* barrier_seconds 11"),
        ("cpu", {"barrier_seconds": 90.0}, "barrier_seconds 90 .* initial_heartbeat_seconds 120"),
        ("cpu", {"terminate_seconds": 20.0}, "drain_seconds 20 .* terminate_seconds 20"),
        ("cpu", {"grace_seconds": 50}, "terminate_seconds 50.* grace_seconds 50"),
    ],
)
def test_a_chain_in_the_wrong_order_is_refused_with_both_numbers(
    device: str, change: dict[str, float], message: str
) -> None:
    good = derive_timeouts(REHEARSAL, device=device)
    with pytest.raises(ValueError, match=message):
        replace(good, **change)  # type: ignore[arg-type]


def test_an_unknown_device_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'tpu'"):
        derive_timeouts(REHEARSAL, device="tpu")
