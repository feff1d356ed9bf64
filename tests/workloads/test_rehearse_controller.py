"""The decisions of the Job controller."""

from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.rehearsal.job_controller import (
    ExitCodeRule,
    FailureAction,
    JobPolicy,
    JobState,
    Phase,
    Verdict,
    after_exit,
    backoff_seconds,
)

EXIT_CODES = st.sampled_from([0, 1, 1, 78, 137, 143])
RULES = st.lists(
    st.builds(
        ExitCodeRule,
        action=st.sampled_from(FailureAction),
        exit_codes=st.frozensets(st.sampled_from([78, 137, 143]), min_size=1),
        is_negated=st.booleans(),
    ),
    max_size=2,
).map(tuple)
POLICIES = st.builds(
    JobPolicy,
    completions=st.integers(1, 4),
    backoff_limit_per_index=st.integers(0, 3),
    max_failed_indexes=st.none() | st.integers(0, 2),
    rules=RULES,
)


def play(policy: JobPolicy, exits: list[tuple[int, int]]) -> tuple[JobState, list[float | None]]:
    """The state after ``exits`` (index and code), and what was decided at each."""
    state = JobState.at_start(policy)
    decided = []
    for index, code in exits:
        state, seconds = after_exit(policy, state, index=index, exit_code=code)
        decided.append(seconds)
    return state, decided


def two_pods(limit: int = 6, *rules: ExitCodeRule, max_failed: int | None = 0) -> JobPolicy:
    return JobPolicy(
        completions=2, backoff_limit_per_index=limit, max_failed_indexes=max_failed, rules=rules
    )


def test_an_index_backs_off_twice_as_long_each_time_up_to_six_minutes() -> None:
    assert [backoff_seconds(n) for n in range(1, 9)] == [10, 20, 40, 80, 160, 320, 360, 360]


def test_the_backoff_of_an_index_does_not_depend_on_the_others() -> None:
    _, decided = play(two_pods(), [(0, 1), (0, 1), (1, 1)])
    assert decided == [10, 20, 10]


def test_a_limit_of_zero_fails_the_job_at_the_first_failure() -> None:
    state, decided = play(two_pods(0), [(1, 1)])
    assert state.verdict is Verdict.MAX_FAILED_INDEXES
    assert decided == [None]


def test_without_a_limit_on_failed_indexes_the_peers_go_on_to_the_end() -> None:
    policy = two_pods(0, max_failed=None)
    state, _ = play(policy, [(1, 1)])
    assert state.verdict is None
    state, _ = play(policy, [(1, 1), (0, 0)])
    assert state.verdict is Verdict.FAILED_INDEXES


def test_an_ignored_failure_is_not_counted_but_still_backs_off() -> None:
    ignore = ExitCodeRule(FailureAction.IGNORE, frozenset({143}))
    state, decided = play(two_pods(0, ignore), [(0, 143), (0, 143)])
    assert decided == [10, 20]
    assert state.indexes[0].num_counted == 0


def test_a_final_exit_code_fails_the_job_whatever_is_left_of_the_limit() -> None:
    final = ExitCodeRule(FailureAction.FAIL_JOB, frozenset({64, 78}))
    state, _ = play(two_pods(6, final), [(0, 78)])
    assert state.verdict is Verdict.POD_FAILURE_POLICY


def test_not_in_matches_every_code_but_those_listed() -> None:
    rule = ExitCodeRule(FailureAction.FAIL_JOB, frozenset({1}), is_negated=True)
    assert [rule.matches(1), rule.matches(2)] == [False, True]


def test_the_first_rule_that_matches_decides() -> None:
    ignore = ExitCodeRule(FailureAction.IGNORE, frozenset({78}))
    final = ExitCodeRule(FailureAction.FAIL_JOB, frozenset({78}))
    state, decided = play(two_pods(6, ignore, final), [(0, 78)])
    assert (state.verdict, decided) == (None, [10])


@settings(deadline=None)  # other work on this computer is no failure
@given(policy=POLICIES, exits=st.lists(st.tuples(st.integers(0, 3), EXIT_CODES), max_size=40))
def test_a_job_completes_only_when_every_index_succeeded(
    policy: JobPolicy, exits: list[tuple[int, int]]
) -> None:
    exits = [(index % policy.completions, code) for index, code in exits]
    state, _ = play(policy, exits)
    all_succeeded = all(each.phase is Phase.SUCCEEDED for each in state.indexes)
    assert (state.verdict is Verdict.COMPLETE) == all_succeeded


@settings(deadline=None)  # other work on this computer is no failure
@given(policy=POLICIES, exits=st.lists(st.tuples(st.integers(0, 3), EXIT_CODES), max_size=40))
def test_nothing_is_replaced_once_its_index_or_the_job_has_ended(
    policy: JobPolicy, exits: list[tuple[int, int]]
) -> None:
    state = JobState.at_start(policy)
    for index, code in exits:
        index %= policy.completions  # noqa: PLW2901
        was_over = state.verdict is not None or state.indexes[index].phase is not Phase.ACTIVE
        before = state
        state, seconds = after_exit(policy, state, index=index, exit_code=code)
        if was_over:
            assert (state, seconds) == (before, None)
        if seconds is not None:
            assert state.verdict is None
            assert state.indexes[index].phase is Phase.ACTIVE


@settings(deadline=None)  # other work on this computer is no failure
@given(policy=POLICIES, codes=st.lists(EXIT_CODES.filter(bool), max_size=40))
def test_an_index_is_replaced_at_most_to_its_limit_and_never_sooner_than_before(
    policy: JobPolicy, codes: list[int]
) -> None:
    state, decided = play(policy, [(0, code) for code in codes])
    delays = [seconds for seconds in decided if seconds is not None]
    num_ignored = state.indexes[0].num_failures - state.indexes[0].num_counted
    assert len(delays) <= policy.backoff_limit_per_index + num_ignored
    assert delays == sorted(delays)
    assert all(10 <= seconds <= 360 for seconds in delays)
