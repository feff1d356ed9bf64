"""A step after which no parameter would be a number is refused before it can be saved."""

import math

import pytest

from trainer.optimization import NonFiniteStep, refuse_non_finite


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (2.5, math.inf)])
def test_a_step_that_leaves_no_numbers_is_refused(loss: float, norm: float) -> None:
    with pytest.raises(NonFiniteStep, match=f"step 7 has loss {loss} and gradient norm {norm}"):
        refuse_non_finite(7, loss=loss, gradient_norm=norm)


def test_a_step_of_numbers_is_accepted() -> None:
    refuse_non_finite(7, loss=2.5, gradient_norm=1.0)
