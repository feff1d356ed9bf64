"""The next buffer to fill is never one that a restore or a writer may need."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from trainer.snapshots.pool import Pool


class PoolInUse(RuleBasedStateMachine):
    """Any order of calls, beside a plain list of what each buffer is needed for."""

    @initialize(num_buffers=st.integers(2, 4), data=st.data())
    def make(self, num_buffers: int, data: st.DataObject) -> None:
        self.num_buffers = num_buffers
        self.agreed: int | None = data.draw(st.none() | st.integers(0, num_buffers - 1))
        self.pool = Pool(num_buffers, self.agreed)
        self.held: list[int] = []
        self.whole_here_only: list[int] = []
        self.filling: int | None = None

    @rule()
    def begin(self) -> None:
        free = self.pool.free
        chosen = self.pool.begin()
        needed = {*self.held, *self.whole_here_only, self.agreed}
        if self.filling is not None:
            assert chosen is None
            return
        assert chosen == free
        assert chosen not in needed - {None}
        # None is skipped while there is a free one.
        assert (chosen is None) == (needed >= set(range(self.num_buffers)))
        self.filling = chosen

    @precondition(lambda self: self.filling is not None)
    @rule()
    def finish(self) -> None:
        assert self.filling is not None
        assert self.pool.finish() == self.filling
        self.whole_here_only.append(self.filling)
        self.filling = None

    @rule()
    def agree(self) -> None:
        self.pool.agree()
        if self.whole_here_only:
            self.agreed = self.whole_here_only[-1]
            self.whole_here_only = []
        assert self.pool.agreed == self.agreed

    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        buffer = data.draw(st.integers(0, self.num_buffers - 1))
        if buffer != self.filling:
            self.pool.hold(buffer)
            self.held.append(buffer)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        buffer = data.draw(st.sampled_from(self.held))
        self.pool.release(buffer)
        self.held.remove(buffer)

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        self.agreed = data.draw(st.none() | st.integers(0, self.num_buffers - 1))
        self.pool.restart(self.agreed)
        self.filling = None
        self.whole_here_only = []
        self.held = []


def test_a_needed_buffer_is_never_handed_out_nor_two_at_once() -> None:
    run_state_machine_as_test(PoolInUse, settings=settings(deadline=None, stateful_step_count=30))


def snapshot(pool: Pool) -> int | None:
    """One that every rank agrees on; the buffer that it is in."""
    buffer = pool.begin()
    if buffer is not None:
        pool.finish()
        pool.agree()
    return buffer


@pytest.mark.parametrize(("num_buffers", "expected"), [(2, [0, 1, 0, 1, 0]), (3, [0, 1, 2, 0, 1])])
def test_buffers_take_turns(num_buffers: int, expected: list[int]) -> None:
    pool = Pool(num_buffers)
    assert [snapshot(pool) for _ in range(5)] == expected


def test_snapshots_go_on_beside_one_that_is_held_of_three() -> None:
    pool = Pool(3)
    assert snapshot(pool) == 0
    pool.hold(0)
    assert [snapshot(pool) for _ in range(4)] == [1, 2, 1, 2]
    pool.release(0)
    assert snapshot(pool) == 0


def test_snapshots_are_skipped_while_one_of_two_is_held() -> None:
    pool = Pool(2)
    assert snapshot(pool) == 0
    pool.hold(0)
    assert snapshot(pool) == 1
    assert snapshot(pool) is None
    pool.release(0)
    assert snapshot(pool) == 0


def test_a_buffer_that_is_held_twice_is_released_twice() -> None:
    pool = Pool(2)
    assert snapshot(pool) == 0
    pool.hold(0)
    pool.hold(0)
    assert snapshot(pool) == 1
    pool.release(0)
    assert snapshot(pool) is None


def test_what_was_under_way_is_void_in_the_next_attempt_and_so_are_holds() -> None:
    pool = Pool(3)
    assert snapshot(pool) == 0
    pool.hold(0)
    assert pool.begin() == 1
    pool.restart(agreed=2)
    assert pool.filling is None
    assert [snapshot(pool) for _ in range(4)] == [1, 0, 2, 1]


def test_a_pool_of_one_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="needs 2 buffers or more, not 1"):
        Pool(1)
