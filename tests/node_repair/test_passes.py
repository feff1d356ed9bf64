"""Pass after pass over a small world, with crashes between any two actions.

Whatever order nodes break in, limits hold at every moment, only a stopped
instance's node is tainted, and in the end every broken node is replaced.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from node_repair.decide import decide, fault_of
from node_repair.model import Action, Instance, Kind, Node, Seen
from node_repair.settings import RepairSettings
from tests.node_repair.worlds import GROUP, NOON, SETTINGS, node

FOREIGN = "system"
UNDISTURBED_PASSES = 60
"""Of ten minutes: ten hours, for five nodes at one an hour that take up to 50 minutes to end."""


@dataclass
class World:
    """A cluster and an account, both obeying; instances take a few passes to end."""

    nodes: dict[str, Node]
    instances: dict[str, Instance]
    settings: RepairSettings
    passes_to_end: int
    now: datetime = NOON
    record: dict[str, datetime] = field(default_factory=dict)
    ending: dict[str, int] = field(default_factory=dict)
    ended_at: dict[str, datetime] = field(default_factory=dict)

    def see(self) -> Seen:
        return Seen(tuple(self.nodes.values()), dict(self.instances), dict(self.record))

    def apply(self, action: Action) -> None:
        assert self.instances[action.instance_id].group != FOREIGN
        target = self.nodes.get(action.node or "")
        match action.kind:
            case Kind.CORDON:
                assert target
                self.nodes[target.name] = replace(
                    target, unschedulable=True, repair_started=self.now
                )
            case Kind.UNCORDON:
                assert target
                self.nodes[target.name] = replace(target, unschedulable=False, repair_started=None)
            case Kind.RECORD:
                self.record[action.instance_id] = self.now
            case Kind.FORGET:
                del self.record[action.instance_id]
            case Kind.TERMINATE:
                self._terminate(action.instance_id)
            case Kind.TAINT:
                assert self.instances[action.instance_id].state == "terminated"
                del self.nodes[action.node or ""]  # its pods go, and with them the object

    def _terminate(self, id: str) -> None:
        broken = [n for n in self.nodes.values() if n.instance_id == id]
        assert all(fault_of(n, self.settings, self.now) for n in broken)
        assert id in self.record
        assert all(n.unschedulable for n in broken)
        self.instances[id] = replace(self.instances[id], state="shutting-down")
        self.ending[id] = self.passes_to_end
        self.ended_at[id] = self.now

    def tick(self, *, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)
        for id in list(self.ending):
            self.ending[id] -= 1
            if self.ending[id] <= 0:
                del self.ending[id]
                # Its tags are gone as soon as it has ended.
                self.instances[id] = Instance(id, "terminated", None)
                for silent in [n for n in self.nodes.values() if n.instance_id == id]:
                    ready = replace(silent.conditions["Ready"], status="Unknown", since=self.now)
                    self.nodes[silent.name] = replace(
                        silent, conditions={**silent.conditions, "Ready": ready}
                    )

    def check_limits(self) -> None:
        marked = {n.instance_id for n in self.nodes.values() if n.cordoned_by_us}
        alive = {id for id in marked | self.record.keys() if self._runs(id)}
        assert len(alive) <= self.settings.max_at_once
        hour = [at for at in self.ended_at.values() if self.now - at < timedelta(hours=1)]
        assert len(hour) <= self.settings.max_per_hour

    def _runs(self, id: str) -> bool:
        return self.instances[id].state != "terminated"

    def broken(self) -> list[str]:
        return [
            n.name
            for n in self.nodes.values()
            if self.instances[n.instance_id].group == GROUP and fault_of(n, self.settings, self.now)
        ]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    nodes, found = {}, {}
    for number in range(draw(st.integers(1, 5))):
        made = node(
            number,
            ready=draw(st.sampled_from(["True", "False", "Unknown"])),
            ready_for=draw(st.integers(0, 1200)),
            accelerator=draw(st.sampled_from(["True", "False", "Unknown"])),
            accelerator_for=draw(st.integers(0, 600)),
            age=draw(st.integers(0, 2000)),
            unschedulable=draw(st.booleans()),
        )
        nodes[made.name] = made
        group = draw(st.sampled_from([GROUP, GROUP, GROUP, FOREIGN]))
        found[made.instance_id] = Instance(made.instance_id, "running", group)
    limits = {"max_at_once": draw(st.integers(1, 3)), "max_per_hour": draw(st.integers(1, 4))}
    return World(nodes, found, SETTINGS.model_copy(update=limits), draw(st.integers(1, 5)))


@given(world=worlds(), crashes=st.lists(st.integers(0, 3), max_size=40))
def test_every_broken_node_is_replaced_within_the_limits_despite_crashes(
    world: World, crashes: list[int]
) -> None:
    whole = [(10**6, 10)] * UNDISTURBED_PASSES
    for most_actions, minutes in [*((crash, 1) for crash in crashes), *whole]:
        actions = decide(world.see(), world.settings, world.now).actions
        for action in actions[:most_actions]:
            world.apply(action)
            world.check_limits()
        world.tick(minutes=minutes)
    assert world.broken() == []


@given(world=worlds())
def test_a_pass_right_after_a_pass_only_repeats_what_is_under_way(world: World) -> None:
    for action in decide(world.see(), world.settings, world.now).actions:
        world.apply(action)
    assert decide(world.see(), world.settings, world.now).actions == ()


@given(world=worlds())
def test_the_order_in_which_nodes_are_listed_decides_nothing(world: World) -> None:
    seen = world.see()
    backwards = replace(seen, nodes=tuple(reversed(seen.nodes)))
    ours = decide(seen, world.settings, world.now).actions
    theirs = decide(backwards, world.settings, world.now).actions
    assert sorted(ours, key=str) == sorted(theirs, key=str)
