"""A state is known by its run, its shape and the settings that its values follow from."""

from typing import Any

import pytest

from trainer.snapshots.identity import identity_of

OWN: dict[str, Any] = {
    "run": "a",
    "world_size": 2,
    "layout": [("weight", (4, 2), "float32"), ("bias", (2,), "float32")],
    "fingerprint": {"model": {"seed": 1, "preset": "tiny"}},
}


@pytest.mark.parametrize(
    "other",
    [
        {"run": "b"},
        {"world_size": 3},
        {"layout": [("weight", (2, 4), "float32"), ("bias", (2,), "float32")]},
        {"layout": [("bias", (2,), "float32"), ("weight", (4, 2), "float32")]},
        {"layout": [("weight", (4, 2), "bfloat16"), ("bias", (2,), "float32")]},
        {"fingerprint": {"model": {"seed": 2, "preset": "tiny"}}},
    ],
    ids=["run", "world", "shape", "order", "type", "setting"],
)
def test_what_differs_in_anything_is_not_taken_for_this_run(other: dict[str, Any]) -> None:
    assert identity_of(**(OWN | other)) != identity_of(**OWN)


def test_the_order_of_settings_and_the_kind_of_sequence_make_no_difference() -> None:
    same = {
        "layout": iter([("weight", [4, 2], "float32"), ("bias", [2], "float32")]),
        "fingerprint": {"model": {"preset": "tiny", "seed": 1}},
    }
    assert identity_of(**(OWN | same)) == identity_of(**OWN)


def test_it_fits_into_a_header() -> None:
    assert len(identity_of(**OWN)) == 16
