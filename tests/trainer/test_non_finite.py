"""A step after which no parameter would be a number is refused by all ranks, before its update."""

import math

import pytest

from trainer.optimization import NonFiniteStep, refuse_non_finite


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_a_step_that_leaves_no_numbers_is_refused(norm: float) -> None:
    with pytest.raises(NonFiniteStep, match=f"step 7 has gradient norm {norm}"):
        refuse_non_finite(7, gradient_norm=norm)


def test_a_step_of_numbers_is_accepted() -> None:
    refuse_non_finite(7, gradient_norm=1.0)
