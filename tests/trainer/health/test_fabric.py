"""Ports in a fake sysfs, and their counters from one reading to the next."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.health.fakes import port
from trainer.health.counters import growth, keep_reading, last_reading, reading_path
from trainer.health.fabric import check_fabric, read_counters, read_ports
from trainer.health.finding import Finding, Verdict

COUNTERS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9))


def look(root: Path, before: dict[str, int] | None = None) -> Finding:
    return check_fabric(read_ports(root), read_counters(root), before or {})


def test_a_node_without_a_fabric_is_skipped_and_does_not_pass(tmp_path: Path) -> None:
    finding = look(tmp_path / "none")
    assert finding.verdict is Verdict.SKIPPED
    assert "no EFA or InfiniBand device" in finding.reason


def test_ports_that_are_up_pass(tmp_path: Path) -> None:
    port(tmp_path, "rdmap0s6")
    port(tmp_path, "rdmap1s6")
    assert look(tmp_path).reason == "2 ports are up"


@pytest.mark.parametrize(
    "shown", [{"state": "1: DOWN"}, {"phys_state": "3: Disabled"}, {"state": ""}]
)
def test_a_port_that_is_not_up_fails_by_name(shown: dict[str, str], tmp_path: Path) -> None:
    port(tmp_path, "rdmap0s6")
    port(tmp_path, "rdmap1s6", **shown)
    finding = look(tmp_path)
    assert finding.verdict is Verdict.FAILED
    assert "rdmap1s6/1: " in finding.reason
    assert "rdmap0s6" not in finding.reason


def test_a_link_that_went_down_and_came_back_fails_once(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", counters__link_downed="1")
    before = read_counters(tmp_path)
    port(tmp_path, "mlx5_0", counters__link_downed="2")
    finding = look(tmp_path, before)
    assert finding.verdict is Verdict.FAILED
    assert "mlx5_0/1/link_downed +1" in finding.reason
    assert look(tmp_path, read_counters(tmp_path)).verdict is Verdict.PASSED


def test_drops_are_told_and_fail_nobody(tmp_path: Path) -> None:
    # When a node dies, they grow on the healthy ones.
    port(tmp_path, "rdmap0s6")
    before = read_counters(tmp_path)
    port(tmp_path, "rdmap0s6", hw_counters__rx_drops="7")
    finding = look(tmp_path, before)
    assert finding.verdict is Verdict.PASSED
    assert finding.reason == "1 ports are up; since the last attempt rdmap0s6/1/rx_drops +7"


def test_a_device_that_is_gone_fails(tmp_path: Path) -> None:
    port(tmp_path, "rdmap0s6")
    finding = look(tmp_path / "none", read_counters(tmp_path))
    assert (finding.verdict, finding.reason) == (Verdict.FAILED, "rdmap0s6/1: is gone")


def test_what_gpus_counted_is_no_port(tmp_path: Path) -> None:
    assert look(tmp_path / "none", {"gpu0/link1/replay": 3}).verdict is Verdict.SKIPPED


@given(now=COUNTERS, before=COUNTERS)
def test_only_what_was_read_twice_and_rose_has_grown(
    now: dict[str, int], before: dict[str, int]
) -> None:
    grown = growth(now, before)
    assert all(by > 0 and before[name] + by == now[name] for name, by in grown.items())
    assert all(now[name] <= before[name] for name in now.keys() & before.keys() - grown.keys())


def test_a_reading_outlives_its_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STEADFAST_EXIT_FILE", str(tmp_path / "exit"))
    keep_reading(reading_path(3), {"a": 1})
    assert last_reading(reading_path(3)) == {"a": 1}
    assert last_reading(reading_path(4)) == {}


@pytest.mark.parametrize("content", ["", "[1]", '{"a": "b"}', "{"])
def test_a_damaged_reading_is_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "reading").write_text(content)
    assert last_reading(tmp_path / "reading") == {}
