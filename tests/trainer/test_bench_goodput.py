"""The benchmark of goodput: the part of the plan that it runs, and its arithmetic."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import bench_goodput, bench_job
from tests.trainer.bench_goodput_plan import least_seconds, scaled_plan, settings_of
from tests.trainer.bench_goodput_table import Result, as_markdown, full_plan_goodput, measured
from tests.trainer.bench_job import Machine
from tests.trainer.histories import History, launch, three_faults
from trainer.faults.plan import on_ranks, plan_faults
from trainer.goodput.ledger import account_for

CPU = Machine("cpu", num_nodes=1, workers_per_node=2)


def test_five_faults_at_the_pace_of_the_post_are_its_own_plan() -> None:
    plan = scaled_plan(0.4, 5)
    places = [(fault.kind, fault.step, fault.rank) for fault in plan.faults]
    assert places == [
        *(("exception", 62, 4), ("exception", 239, 12), ("hang", 574, 12)),
        *(("exception", 1320, 2), ("exception", 1529, 1)),
    ]
    assert (plan.max_steps, plan.save_every) == (2000, 500)
    # Saved at 500, 1000 and 1500: 61 + 238 + 73 + 319 + 28 of 2,000 are done again.
    assert plan.steps_lost_to_saves == 719


@pytest.mark.parametrize("num_faults", [2, 3, 4, 5])
@pytest.mark.parametrize("step_seconds", [0.02, 0.4, 0.9])
def test_faults_come_no_more_often_in_seconds_however_many(
    num_faults: int, step_seconds: float
) -> None:
    plan = scaled_plan(step_seconds, num_faults)
    assert plan.seconds_a_fault == pytest.approx(160.0, rel=0.01)
    assert "hang" in [fault.kind for fault in plan.faults]
    assert all(fault.step < plan.max_steps for fault in plan.faults)


def test_two_faults_are_an_exception_and_a_hang_where_the_plan_has_them() -> None:
    plan = scaled_plan(0.44, 2)  # 239 and 574 of 800 steps, by 0.40 / 0.44
    assert [(fault.kind, fault.step) for fault in plan.faults] == [
        ("exception", 217),
        ("hang", 522),
    ]
    assert plan.max_steps == 727
    assert plan.seconds_between == pytest.approx((95.5, 134.2), abs=0.1)


def test_what_saves_block_and_lose_is_counted_before_a_run_is_begun() -> None:
    plan = scaled_plan(0.4, 2)
    assert least_seconds("in_job", plan) == pytest.approx(320.0)
    assert least_seconds("reference", plan) == pytest.approx(320.0 + 0.4 * (238 + 73))


def test_every_contender_suffers_the_same_faults() -> None:
    plan = scaled_plan(0.01, 2, seconds_a_fault=4.0)
    drawn = []
    for name in ("in_job", "in_process", "reference", "reference_in_process"):
        settings = settings_of(name, "tiny", CPU, plan)
        faults = on_ranks(plan_faults(settings.faults, max_steps=settings.max_steps), 2)
        drawn.append([(fault.kind, fault.step, fault.rank) for fault in faults])
    assert drawn[0] == [("exception", 239, 0), ("hang", 574, 0)]
    assert all(each == drawn[0] for each in drawn)


def test_goodput_is_that_of_the_ledger_and_a_start_is_named() -> None:
    # 24 steps of 1 s: first step at 7 s; one second goes by after the last.
    history = three_faults()
    result = measured(Result("in_job", "tiny", 2), history.events, scaled_plan(1.0, 2))
    account = account_for(history.events, reference_step_seconds=1.0)
    assert result.goodput == account.goodput_fraction
    assert (result.start_seconds, result.end_seconds) == pytest.approx((7.0, 1.0))
    assert result.between == pytest.approx(24.0 / (result.wall_seconds - 8.0))
    assert [cost.source for cost in result.faults] == ["durable"] * 3


def test_the_whole_plan_is_computed_from_the_parts_of_a_run() -> None:
    history = History(num_ranks=2)
    launch(history)
    history.restore(0)  # at 6 s
    history.train(to=10)
    for kind in ("exception", "hang"):
        history.fault(kind, rank=1)
        history.now += 3.0
        history.report(1)
        history.start_attempt()
        history.join()
        history.restore(history.kept[-1][0])
        history.train(to=history.kept[-1][0] + 10)
    history.finish()
    account = account_for(history.events, reference_step_seconds=1.0)
    plan = scaled_plan(1.0, 2, seconds_a_fault=400.0)
    # 6 s of start, 1,995 steps of 1 s, and five times 3 s and the first step after it.
    computed = full_plan_goodput(account, 6.0, 0.0, plan, num_saves=0)
    assert computed == pytest.approx(2000 / (6 + 1995 + 5 * 4))


def test_what_has_finished_under_the_same_plan_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_run(*_: Any, **__: Any) -> str:
        raise AssertionError("a run was begun")

    monkeypatch.setattr(bench_job, "run", no_run)
    done = Result("unfaulted", "tiny", 2, finished=True, step_seconds=0.01)
    rest = replace(done, name="in_job", num_faults=2, seconds_a_fault=160.0, goodput=0.93)
    for each in (done, rest):
        (tmp_path / f"{each.name}.json").write_text(json.dumps(asdict(each)))
    arguments = ["--device", "cpu", "--preset", "tiny", "--out", str(tmp_path), "--only", "in_job"]
    assert bench_goodput.main(arguments) == 0
    assert "93.0%" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="a run was begun"):
        bench_goodput.main([*arguments, "--faults", "3"])


def test_a_run_that_was_cut_short_is_named_with_its_reason() -> None:
    cut = Result("reference", "tiny", 2, num_faults=2, failure="the time was up")
    assert "reference: not finished: the time was up" in as_markdown([cut])
