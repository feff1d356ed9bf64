"""What to do about broken nodes, from what Kubernetes and EC2 say of them now.

One broken node is cordoned, recorded, terminated through its Auto Scaling group
and, once EC2 says that the instance is gone, tainted out-of-service if its Node
object remains: only then may Kubernetes start a second writer in its place.
Whatever a pass leaves half done, the next one sees and goes on from.

Not covered: an instance that EC2 does not know is taken for gone, so credentials
of another account could free the pods of a node that hangs but still runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from node_repair.model import (
    ACCELERATOR,
    READY,
    Action,
    Condition,
    Kind,
    Node,
    Plan,
    Seen,
    Skip,
)
from node_repair.settings import RepairSettings

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Fault:
    since: datetime
    why: str


def decide(seen: Seen, settings: RepairSettings, now: datetime) -> Plan:
    """What is due now. Nodes that broke first come first."""
    return _Pass(seen, settings, now).plan()


def fault_of(node: Node, settings: RepairSettings, now: datetime) -> Fault | None:
    """Why the node must be replaced, if it has been broken for long enough."""
    booted = now - node.created >= timedelta(seconds=settings.boot_seconds)
    if not booted:
        # Until its services are up, the monitoring agent may call a healthy GPU broken
        # (aws/containers-roadmap#2555).
        return None
    accelerator = node.conditions.get(ACCELERATOR)
    if accelerator and accelerator.status == "False":
        age = now - accelerator.since
        if age > timedelta(seconds=settings.accelerator_seconds):
            return Fault(accelerator.since, _told(ACCELERATOR, accelerator, age))
    ready = node.conditions.get(READY, Condition("Unknown", node.created, "NeverSeen"))
    age = now - ready.since
    if ready.status != "True" and age > timedelta(seconds=settings.not_ready_seconds):
        return Fault(ready.since, _told(READY, ready, age))
    return None


class _Pass:
    def __init__(self, seen: Seen, settings: RepairSettings, now: datetime) -> None:
        self._seen, self._settings, self._now = seen, settings, now
        cordoned = {n.instance_id: n.cordoned_by_us for n in seen.nodes}
        begun = {id: at for id, at in cordoned.items() if at} | dict(seen.started)
        self._begun = frozenset(begun)
        self._open = {id for id in begun if self._still_ours(id)}
        self._recent = {id for id, at in begun.items() if now - at < _HOUR}
        self._skipped: list[Skip] = []

    def plan(self) -> Plan:
        # What frees pods and slots goes first: a termination that fails must not hold it up.
        freeing = [action for node in self._seen.nodes for action in self._freeing(node)]
        records = list(self._of_records())
        repairs = [action for node in self._broken() for action in self._repair(*node)]
        return Plan((*freeing, *records, *repairs), tuple(self._skipped))

    def _freeing(self, node: Node) -> Iterator[Action]:
        """The last step of a repair, and the way back from one that is no longer needed."""
        if not self._concerns_us(node):
            return
        if self._is_gone(node.instance_id):
            if node.out_of_service:
                return
            if _is_ready(node):
                self._skip(node, "its instance is gone, but it was Ready a moment ago")
                return
            yield _act(Kind.TAINT, node, "its instance is gone and its pods are not")
        elif self._seen.instances[node.instance_id].state == "shutting-down":
            self._skip(node, "waiting until EC2 says that its instance is terminated")
        elif node.instance_id in self._begun and _is_well(node):
            why = "it is well again, and was not terminated yet"
            if node.cordoned_by_us:
                yield _act(Kind.UNCORDON, node, why)
            if node.instance_id in self._seen.started:
                yield _act(Kind.FORGET, node, why)
            # Its slot is free at the next pass, once this has been done.

    def _of_records(self) -> Iterator[Action]:
        """Repairs whose Node somebody deleted, and records that no limit needs any more."""
        with_node = {node.instance_id for node in self._seen.nodes}
        for id, at in sorted(self._seen.started.items()):
            if id not in with_node and self._is_running_in_group(id):
                why = "its repair was started, and its Node is gone"
                yield Action(Kind.RECORD, id, None, why)
                yield Action(Kind.TERMINATE, id, None, why)
            elif id not in self._open and self._now - at >= _HOUR:
                yield Action(Kind.FORGET, id, None, "its repair ended; it was over an hour ago")

    def _broken(self) -> list[tuple[Node, Fault]]:
        found = [
            (node, fault)
            for node in self._seen.nodes
            if self._is_running_in_group(node.instance_id)
            and (fault := fault_of(node, self._settings, self._now))
        ]
        return sorted(found, key=lambda pair: (pair[1].since, pair[0].name))

    def _repair(self, node: Node, fault: Fault) -> Iterator[Action]:
        if node.kept:
            self._skip(node, f"{fault.why}; a human asked to keep it")
            return
        if node.instance_id not in self._begun:
            if refusal := self._refusal():
                self._skip(node, f"{fault.why}; {refusal}")
                return
            self._open.add(node.instance_id)
            self._recent.add(node.instance_id)
        if not node.unschedulable:
            yield _act(Kind.CORDON, node, fault.why)
        # Recorded again if it was before: the hour of max_per_hour runs from the last request.
        yield _act(Kind.RECORD, node, fault.why)
        yield _act(Kind.TERMINATE, node, fault.why)

    def _refusal(self) -> str | None:
        limits = self._settings
        if len(self._open) >= limits.max_at_once:
            return f"{len(self._open)} under repair, max_at_once is {limits.max_at_once}"
        if len(self._recent) >= limits.max_per_hour:
            return f"{len(self._recent)} started within an hour, max_per_hour is reached; look why"
        return None

    def _concerns_us(self, node: Node) -> bool:
        return node.instance_id in self._begun or self._is_in_group(node.instance_id)

    def _is_in_group(self, id: str) -> bool:
        instance = self._seen.instances.get(id)
        return bool(instance and instance.group in self._settings.auto_scaling_groups)

    def _is_gone(self, id: str) -> bool:
        instance = self._seen.instances.get(id)
        return instance is None or instance.state == "terminated"

    def _is_running_in_group(self, id: str) -> bool:
        """Stopped ones included: they can be started again."""
        alive = not self._is_gone(id) and self._seen.instances[id].state != "shutting-down"
        return alive and self._is_in_group(id)

    def _still_ours(self, id: str) -> bool:
        """Not gone. One that a human took out of its group is the human's, unless it is ending."""
        if self._is_gone(id):
            return False
        return self._is_in_group(id) or self._seen.instances[id].state == "shutting-down"

    def _skip(self, node: Node, why: str) -> None:
        self._skipped.append(Skip(node.name, why))


def _act(kind: Kind, node: Node, why: str) -> Action:
    return Action(kind, node.instance_id, node.name, why)


def _is_ready(node: Node) -> bool:
    ready = node.conditions.get(READY)
    return bool(ready and ready.status == "True")


def _is_well(node: Node) -> bool:
    accelerator = node.conditions.get(ACCELERATOR)
    return _is_ready(node) and not (accelerator and accelerator.status == "False")


def _told(name: str, condition: Condition, age: timedelta) -> str:
    reason = f" ({condition.reason})" if condition.reason else ""
    return f"{name} has been {condition.status} for {age.total_seconds():.0f} s{reason}"
