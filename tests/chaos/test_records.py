"""What counts, what is run again, and what is printed about it."""

from pathlib import Path
from typing import Any

import pytest

from tests.chaos import __main__ as chaos
from tests.chaos.cells import ALL_CELLS, TIERS, Cell, is_claimed
from tests.chaos.driver import Stopped
from tests.chaos.plans import Plan, draw_plan
from tests.chaos.records import Record, Records, empty_cells, failures, histogram, refused
from tests.chaos.tables import cells_markdown, histogram_text
from trainer.faults.settings import FaultKind
from trainer.settings import RecoveryLayer

NODE_IN_JOB = Cell(FaultKind.NODE, RecoveryLayer.IN_JOB)


def record(name: str = "s1-0", **changes: Any) -> Record:
    suffered = {"kind": "node", "caught_by": "pod", "further_out": False, "seconds": {"detect": 2}}
    suffered |= {"tier": "snapshot", "steps_lost": 1}
    values = {"name": name, "plan": "a plan", "layer": "in_job", "mode": "sync", "seconds": 9.0}
    values |= {"kinds": ["node"], "outcome": "recovered", "problems": [], "suffered": [suffered]}
    return values | changes


def test_what_was_recorded_is_there_again_unless_the_code_changed(tmp_path: Path) -> None:
    path = tmp_path / "plans.jsonl"
    Records(path, "old").append(record("s1-0"))
    Records(path, "new").append(record("s1-1"))
    assert [each["name"] for each in Records(path, "new").all()] == ["s1-1"]


def test_a_torn_line_is_no_record_and_spoils_none(tmp_path: Path) -> None:
    path = tmp_path / "plans.jsonl"
    Records(path, "a").append(record("s1-0"))
    with path.open("a") as file:
        file.write('{"code": "a", "na')
    Records(path, "a").append(record("s1-2"))
    assert [each["name"] for each in Records(path, "a").all()] == ["s1-0", "s1-2"]


def test_a_fault_that_was_survived_fills_its_cell() -> None:
    assert histogram([record(), record("s1-1")]) == {NODE_IN_JOB: 2}
    assert NODE_IN_JOB not in empty_cells([record()])


def test_a_wrong_plan_fills_no_cell() -> None:
    wrong = record(problems=["digests differ"])
    assert histogram([wrong]) == {}
    assert failures([wrong]) == [wrong]
    assert NODE_IN_JOB in empty_cells([wrong])


def test_a_refused_plan_covers_no_claim_but_counts_as_refused() -> None:
    ended = record(layer="none", kinds=["sigkill"], outcome="refused")
    assert histogram([ended]) == {}
    assert refused([ended]) == {Cell(FaultKind.SIGKILL, RecoveryLayer.NONE): 1}


def test_every_cell_is_empty_at_first() -> None:
    assert empty_cells([]) == list(ALL_CELLS)


def test_the_histogram_sets_refusals_apart() -> None:
    lines = histogram_text([record(), record(layer="none", kinds=["exit"], outcome="refused")])
    rows = {line.split()[0]: line.split()[1:] for line in lines.splitlines()}
    assert rows["node"] == ["(0)", "0", "1", "0", "0"]
    assert rows["exit"] == ["(1)", "0", "0", "0", "0"]


def test_a_row_says_who_caught_a_kind_and_the_median_of_how_long_it_took() -> None:
    slower = {"kind": "node", "caught_by": "pod", "further_out": False, "seconds": {"detect": 4}}
    slower |= {"tier": "durable", "steps_lost": 9}
    wrong = record("s1-3", problems=["digests differ"])
    records = [record(), record("s1-1", mode="async", suffered=[slower] * 2), wrong]
    (row,) = [r for r in cells_markdown(records).splitlines() if r.startswith("| node | in_job")]
    assert row == (
        "| node | in_job | caught by in_job | 3 | pod 3 | snapshot 1, durable 2 |"
        " async, sync | 4.0 | 0.0 | 0.0 | 0.0 | 0.0 |"
    )


def test_a_refusal_has_a_row_in_brackets() -> None:
    records = [record(layer="none", kinds=["exit"], outcome="refused", suffered=[])]
    assert "| exit | none | refused by the settings | (1) | - | - | - |" in cells_markdown(records)


def test_a_replay_command_names_the_same_plan() -> None:
    *_, name = chaos.replay_command("s12-34").split()
    assert chaos.plan_called(name) == draw_plan(12, 34)


def test_an_unknown_plan_is_refused() -> None:
    assert chaos.main(["--replay", "nonsense"]) == 2


class Instant:
    """A driver whose plans go well at once, until it is stopped."""

    ran: list[str]
    stop_after = 10**6

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def run(self, plans: list[Plan], records: Records, tell: Any) -> None:
        for number, plan in enumerate(plans):
            if number == Instant.stop_after:
                raise Stopped
            Instant.ran.append(plan.name)
            refused = not all(is_claimed(cell) for cell in plan.cells)
            done = record(
                plan.name,
                layer=plan.layer.value,
                kinds=[fault.kind.value for fault in plan.faults],
                outcome="refused" if refused else "recovered",
                suffered=[
                    {"kind": f.kind.value, "caught_by": "pod", "further_out": False, "seconds": {}}
                    | {"tier": tier, "steps_lost": 0}
                    for f in plan.faults
                    for tier in TIERS
                ],
            )
            records.append(done)
            tell(done)


@pytest.fixture(autouse=True)
def instant(monkeypatch: pytest.MonkeyPatch) -> None:
    Instant.ran, Instant.stop_after = [], 10**6
    monkeypatch.setattr(chaos, "Driver", Instant)


def test_what_was_stopped_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Instant.stop_after = 3
    assert chaos.main(["--plans", "65"], out=tmp_path) == 130
    Instant.stop_after = 10**6
    assert chaos.main(["--plans", "65"], out=tmp_path) == 0
    assert Instant.ran == [f"s1-{index}" for index in range(65)]
    assert "65 plans: " in capsys.readouterr().out


def test_a_cell_that_stays_empty_is_named_and_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chaos.main(["--plans", "3"], out=tmp_path) == 1
    assert "Empty: " in capsys.readouterr().out
