"""What is done about a node, for each of the states in which a pass can find it."""

from datetime import datetime

import pytest

from node_repair.decide import decide
from node_repair.model import Action, Kind, Node, Plan, Seen
from tests.node_repair.worlds import NOON, SETTINGS, ago, instances, node

REPAIR = [Kind.CORDON, Kind.RECORD, Kind.TERMINATE]


def plan(seen: Seen) -> Plan:
    return decide(seen, SETTINGS, NOON)


def kinds(actions: tuple[Action, ...]) -> list[Kind]:
    return [action.kind for action in actions]


def test_a_broken_accelerator_is_cordoned_recorded_and_terminated_in_this_order() -> None:
    broken = node(1, accelerator="False", accelerator_for=121)
    done = plan(Seen((node(0), broken), instances(node(0), broken), {}))
    assert kinds(done.actions) == REPAIR
    assert {action.node for action in done.actions} == {"node-1"}
    assert (
        "AcceleratedHardwareReady has been False for 121 s (NvidiaXID79Error)"
        in done.actions[0].why
    )


@pytest.mark.parametrize(
    "patient",
    [
        node(1),
        node(1, accelerator="False", accelerator_for=120),
        node(1, accelerator="False", accelerator_for=899, age=899),
        node(1, accelerator="Unknown", accelerator_for=7200),
        node(1, ready="Unknown", ready_for=300),
        node(1, ready="False", ready_for=880, age=890),
        node(1, unschedulable=True),
    ],
    ids=[
        "well",
        "broken for 120 s",
        "GPUs not up yet",
        "unknown",
        "silent for 300 s",
        "booting",
        "cordoned by hand",
    ],
)
def test_a_node_is_left_alone_until_it_is_surely_broken(patient: Node) -> None:
    assert plan(Seen((patient,), instances(patient), {})) == Plan((), ())


@pytest.mark.parametrize(
    "broken",
    [
        node(1, ready="Unknown", ready_for=301),
        node(1, ready="False", ready_for=901, age=901),
        node(1, accelerator="False", accelerator_for=901, age=901),
    ],
    ids=["silent for 301 s", "never came up", "broken from the start"],
)
def test_a_node_that_is_surely_broken_is_replaced(broken: Node) -> None:
    assert kinds(plan(Seen((broken,), instances(broken), {})).actions) == REPAIR


def test_a_node_of_another_group_is_not_ours() -> None:
    broken = node(1, ready="Unknown", ready_for=9999)
    for group in ("system", None):
        assert plan(Seen((broken,), instances(broken, group=group), {})) == Plan((), ())


def test_a_node_that_ec2_never_called_ours_is_not_tainted_when_ec2_forgets_it() -> None:
    assert plan(Seen((node(1, ready="Unknown", ready_for=9999),), {}, {})) == Plan((), ())


def test_a_stopped_instance_is_terminated_since_it_could_be_started_again() -> None:
    broken = node(1, ready="Unknown", ready_for=301)
    done = plan(Seen((broken,), instances(broken, state="stopped"), {}))
    assert kinds(done.actions) == REPAIR


@pytest.mark.parametrize("started", [{}, {node(1).instance_id: ago(60)}])
def test_a_node_cordoned_before_a_crash_is_terminated_after_it(
    started: dict[str, datetime],
) -> None:
    broken = node(1, ready="Unknown", ready_for=400, unschedulable=True, repair_started=ago(60))
    done = plan(Seen((broken,), instances(broken), started))
    assert kinds(done.actions) == REPAIR[1:]


def test_a_broken_node_that_a_human_cordoned_is_replaced_without_our_mark() -> None:
    broken = node(1, accelerator="False", unschedulable=True)
    assert kinds(plan(Seen((broken,), instances(broken), {})).actions) == REPAIR[1:]


def test_a_broken_node_that_a_human_keeps_is_named_and_left_alone() -> None:
    broken = node(1, accelerator="False", kept=True)
    done = plan(Seen((broken,), instances(broken), {}))
    assert done.actions == ()
    assert "a human asked to keep it" in done.skipped[0].why


def test_nothing_is_tainted_before_ec2_says_terminated() -> None:
    ending = node(1, ready="Unknown", ready_for=400, unschedulable=True, repair_started=ago(60))
    started = {ending.instance_id: ago(60)}
    done = plan(Seen((ending,), instances(ending, state="shutting-down"), started))
    assert done.actions == ()
    assert "until EC2 says" in done.skipped[0].why


@pytest.mark.parametrize("known", [True, False])
def test_a_node_whose_instance_is_gone_is_tainted_once(known: bool) -> None:
    gone = node(1, ready="Unknown", ready_for=40, unschedulable=True, repair_started=ago(60))
    after = node(1, ready="Unknown", ready_for=40, repair_started=ago(60), out_of_service=True)
    found = instances(gone, state="terminated", group=None) if known else {}
    started = {gone.instance_id: ago(60)}
    assert kinds(plan(Seen((gone,), found, started)).actions) == [Kind.TAINT]
    assert plan(Seen((after,), found, started)).actions == ()


def test_a_node_that_is_ready_is_not_tainted_whatever_ec2_says() -> None:
    lively = node(1, unschedulable=True, repair_started=ago(60))
    assert plan(Seen((lively,), {}, {lively.instance_id: ago(60)})).actions == ()


def test_a_node_that_got_well_before_its_termination_is_given_back() -> None:
    well = node(1, unschedulable=True, repair_started=ago(60))
    done = plan(Seen((well,), instances(well), {well.instance_id: ago(60)}))
    assert kinds(done.actions) == [Kind.UNCORDON, Kind.FORGET]


def test_a_node_that_a_human_uncordoned_is_no_longer_under_repair() -> None:
    given_back = node(1, repair_started=ago(60))
    broken = node(2, accelerator="False")
    done = plan(Seen((given_back, broken), instances(given_back, broken), {}))
    assert kinds(done.actions) == REPAIR
    assert done.actions[0].node == "node-2"


def test_the_node_that_broke_first_is_repaired_first_and_the_others_wait() -> None:
    nodes = tuple(node(n, accelerator="False", accelerator_for=500 + n) for n in range(3))
    done = plan(Seen(nodes, instances(*nodes), {}))
    assert {action.node for action in done.actions} == {"node-2"}
    assert [skip.node for skip in done.skipped] == ["node-1", "node-0"]
    assert "max_at_once is 1" in done.skipped[0].why


def test_an_instance_that_still_ends_holds_its_place_though_its_node_is_gone() -> None:
    ending, broken = node(1), node(2, accelerator="False")
    found = instances(ending, state="shutting-down", group=None) | instances(broken)
    done = plan(Seen((broken,), found, {ending.instance_id: ago(60)}))
    assert done.actions == ()


def test_a_fourth_repair_within_an_hour_waits() -> None:
    started = {node(n).instance_id: ago(3599) for n in range(3)}
    broken = node(9, accelerator="False")
    done = plan(Seen((broken,), instances(broken), started))
    assert done.actions == ()
    assert "3 started within an hour" in done.skipped[0].why


def test_a_repair_of_an_hour_ago_is_forgotten_and_makes_room() -> None:
    started = {node(n).instance_id: ago(3600) for n in range(3)}
    broken = node(9, accelerator="False")
    done = plan(Seen((broken,), instances(broken), started))
    assert kinds(done.actions) == [Kind.FORGET] * 3 + REPAIR


def test_a_recorded_instance_without_a_node_is_terminated_so_that_it_holds_no_place() -> None:
    lost = node(1)
    done = plan(Seen((), instances(lost), {lost.instance_id: ago(60)}))
    assert kinds(done.actions) == [Kind.RECORD, Kind.TERMINATE]


def test_a_recorded_instance_that_a_human_took_out_of_its_group_holds_no_place() -> None:
    taken, broken = node(1, accelerator="False"), node(2, accelerator="False")
    found = instances(taken, group=None) | instances(broken)
    done = plan(Seen((taken, broken), found, {taken.instance_id: ago(60)}))
    assert {action.node for action in done.actions} == {"node-2"}
