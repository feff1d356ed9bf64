"""The interface plan: which cards and devices each instance type is launched with."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from infra.efa import Interface, Layout, plan_interfaces
from infra.hardware import CATALOG, InstanceType

LAYOUTS: tuple[Layout, ...] = get_args(Layout)


def efa_slots(name: str, layout: Layout = "ena-primary") -> list[tuple[int, int]]:
    plan = plan_interfaces(CATALOG[name], layout)
    return [(i.card, i.device) for i in plan if i.kind != "interface"]


def test_a_p5_has_32_efa_devices_beside_one_interface_for_ip() -> None:
    plan = plan_interfaces(CATALOG["p5.48xlarge"], "ena-primary")
    assert plan[0] == Interface(card=0, device=0, kind="interface")
    assert [i.kind for i in plan[1:]] == ["efa-only"] * 32


def test_a_p5_has_the_efa_device_of_card_0_at_device_1_and_all_others_at_device_0() -> None:
    assert efa_slots("p5.48xlarge") == [(0, 1), *((card, 0) for card in range(1, 32))]


def test_the_older_layout_carries_ip_on_the_efa_device_of_card_0() -> None:
    plan = plan_interfaces(CATALOG["p5.48xlarge"], "efa-primary")
    assert plan[0] == Interface(card=0, device=0, kind="efa")
    assert efa_slots("p5.48xlarge", "efa-primary") == [
        (0, 0),
        *((card, 1) for card in range(1, 32)),
    ]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("p5.48xlarge", 32),
        ("p5en.48xlarge", 16),
        ("p6-b200.48xlarge", 8),
        ("p4de.24xlarge", 4),
        ("g6e.24xlarge", 2),
        ("g5.8xlarge", 1),
        ("g5.2xlarge", 0),
    ],
)
def test_a_type_gets_as_many_efa_devices_as_it_takes(name: str, count: int) -> None:
    assert len(efa_slots(name)) == count


def test_a_p6_b300_has_no_efa_device_on_card_0() -> None:
    assert efa_slots("p6-b300.48xlarge") == [(card, 0) for card in range(1, 17)]


def test_a_p6_b300_cannot_have_the_older_layout() -> None:
    with pytest.raises(ValueError, match=r"p6-b300\.48xlarge, whose card 0.*use 'ena-primary'"):
        plan_interfaces(CATALOG["p6-b300.48xlarge"], "efa-primary")


def test_a_type_without_efa_has_one_plain_interface() -> None:
    plain = (Interface(card=0, device=0, kind="interface"),)
    assert plan_interfaces(CATALOG["m7i.2xlarge"], "ena-primary") == plain
    assert plan_interfaces(CATALOG["m7i.2xlarge"], "efa-primary") == plain


@pytest.mark.parametrize(
    ("hardware", "layout"),
    [
        pytest.param(hardware, layout, id=f"{hardware.name}-{layout}")
        for hardware in CATALOG.values()
        for layout in LAYOUTS
        if layout == "ena-primary" or not hardware.first_efa_card
    ],
)
def test_any_plan_is_one_that_ec2_accepts(hardware: InstanceType, layout: Layout) -> None:
    plan = plan_interfaces(hardware, layout)
    slots = [(i.card, i.device) for i in plan]
    carries_ip = [(i.card, i.device) for i in plan if i.kind != "efa-only"]
    efa_cards = [i.card for i in plan if i.kind != "interface"]
    assert len(slots) == len(set(slots))
    assert carries_ip == [(0, 0)]
    assert len(efa_cards) == len(set(efa_cards)) == hardware.num_efa
    assert all(i.card < hardware.num_network_cards and i.device <= 1 for i in plan)
    assert all(card >= hardware.first_efa_card for card in efa_cards)


@given(
    num_efa=st.integers(min_value=0, max_value=64),
    first_efa_card=st.integers(min_value=0, max_value=1),
    layout=st.sampled_from(LAYOUTS),
)
def test_a_plan_holds_for_types_to_come(num_efa: int, first_efa_card: int, layout: Layout) -> None:
    assume(layout == "ena-primary" or not first_efa_card or not num_efa)
    hardware = replace(
        CATALOG["p5.48xlarge"],
        num_efa=num_efa,
        first_efa_card=first_efa_card,
        num_network_cards=first_efa_card + max(num_efa, 1),
    )
    plan = plan_interfaces(hardware, layout)
    assert plan[0].kind != "efa-only"
    assert sum(i.kind != "interface" for i in plan) == num_efa
    assert len({(i.card, i.device) for i in plan}) == len(plan)
    assert all(i.card < hardware.num_network_cards and i.device <= 1 for i in plan)
