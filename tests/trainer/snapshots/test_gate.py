"""The gate: who asks before the abort passes, who asks after it does not, and nobody is blamed."""

import pytest

from trainer.echoes import is_echo
from trainer.recovery.repeats import may_be_a_bug
from trainer.snapshots.gate import Gate, GateClosed


def test_a_new_gate_lets_updates_pass() -> None:
    Gate().refuse_if_closed()


def test_a_closed_gate_refuses_until_it_is_opened() -> None:
    gate = Gate()
    gate.close()
    gate.close()  # two layers may abort
    for _ in range(2):
        with pytest.raises(GateClosed):
            gate.refuse_if_closed()
    gate.open()
    gate.refuse_if_closed()


def test_a_step_that_the_gate_refused_is_an_echo_and_no_bug() -> None:
    gate = Gate()
    gate.close()
    with pytest.raises(GateClosed) as refused:
        gate.refuse_if_closed()
    assert not may_be_a_bug(refused.value)
    assert is_echo(f"GateClosed: {refused.value}")
