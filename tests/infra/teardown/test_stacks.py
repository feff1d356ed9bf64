"""A stack is deleted, waited for, and tried again; what held it is named."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.teardown.plan import FoundStack
from infra.teardown.stacks import delete_stack, why_failed
from infra.teardown.waiting import Pace, StepFailed, wait_until_gone

STACK = FoundStack("a-network", "arn:a-network", "CREATE_COMPLETE", ours=True, protected=False)


@dataclass
class Clock:
    """Time that passes only while somebody sleeps."""

    seconds: float = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def pace(self) -> Pace:
        return Pace(
            poll_seconds=10.0,
            stack_seconds=100.0,
            retry_seconds=120.0,
            stack_attempts=3,
            now=self.now,
            sleep=self.sleep,
        )


@dataclass
class StandInCloudFormation:
    """A client whose one stack goes through given states in each attempt to delete it."""

    attempts: list[list[str]]
    """The last state of an attempt stays until the next attempt."""

    events: list[dict[str, Any]] = field(default_factory=list)
    num_deletions: int = 0
    _states: list[str] = field(default_factory=list)

    def delete_stack(self, *, StackName: str) -> None:
        assert StackName == "arn:a-network"
        self._states = list(self.attempts[self.num_deletions])
        self.num_deletions += 1

    def describe_stacks(self, *, StackName: str) -> dict[str, Any]:
        assert StackName == "arn:a-network"
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        return {"Stacks": [{"StackStatus": state}]}

    def get_paginator(self, operation: str) -> "StandInCloudFormation":
        assert operation == "describe_stack_events"
        return self

    def paginate(self, *, StackName: str) -> Iterator[dict[str, Any]]:
        assert StackName == "arn:a-network"
        yield {"StackEvents": self.events[:2]}
        yield {"StackEvents": self.events[2:]}


def event(resource: str, status: str, reason: str = "") -> dict[str, Any]:
    return {
        "LogicalResourceId": resource,
        "PhysicalResourceId": "arn:a-network" if resource == "a-network" else f"{resource}-id",
        "ResourceStatus": status,
        "ResourceStatusReason": reason,
    }


HELD = [  # newest first, as the API has them
    event("a-network", "DELETE_FAILED", "The following resource(s) failed to delete: [Efa, Vpc]."),
    event("Vpc", "DELETE_FAILED", "has dependencies\nand cannot be deleted"),
    event("Efa", "DELETE_FAILED", "resource sg-1 has a dependent object"),
    event("Lustre", "DELETE_COMPLETE"),
    event("a-network", "DELETE_IN_PROGRESS", "User Initiated"),
    event("Subnet", "DELETE_FAILED", "of an attempt before"),
]


def test_a_stack_is_waited_for() -> None:
    clock = Clock()
    client = StandInCloudFormation([["DELETE_IN_PROGRESS"] * 3 + ["DELETE_COMPLETE"]])
    delete_stack(client, STACK, clock.pace())
    assert client.num_deletions == 1
    assert clock.seconds == 30.0


def test_a_failed_deletion_is_tried_again_after_a_pause() -> None:
    clock = Clock()
    client = StandInCloudFormation([["DELETE_FAILED"], ["DELETE_IN_PROGRESS", "DELETE_COMPLETE"]])
    delete_stack(client, STACK, clock.pace())
    assert client.num_deletions == 2
    assert clock.seconds == 130.0


def test_a_stack_that_cannot_be_deleted_is_given_up_with_the_reason() -> None:
    client = StandInCloudFormation([["DELETE_FAILED"]] * 3, events=HELD)
    with pytest.raises(StepFailed) as refusal:
        delete_stack(client, STACK, Clock().pace())
    assert client.num_deletions == 3
    assert str(refusal.value) == (
        "stack a-network is DELETE_FAILED after 3 attempts: "
        "Efa: resource sg-1 has a dependent object; Vpc: has dependencies and cannot be deleted; "
        "remove what holds it, then run again"
    )


def test_a_stack_that_never_ends_is_given_up() -> None:
    clock = Clock()
    client = StandInCloudFormation([["DELETE_IN_PROGRESS"]])
    with pytest.raises(StepFailed, match="a-network is DELETE_IN_PROGRESS; gave up after 100 s"):
        delete_stack(client, STACK, clock.pace())
    assert clock.seconds == 100.0


def test_an_export_in_use_is_the_stacks_own_reason() -> None:
    # CloudFormation cancels before it touches a resource, and the stack is what it was.
    reason = "Delete canceled. Cannot delete export a:Vpc as it is in use by a-storage."
    events = [event("a-network", "CREATE_COMPLETE", reason), *HELD[4:]]
    client = StandInCloudFormation([["CREATE_COMPLETE"]] * 3, events=events)
    assert why_failed(client, "arn:a-network") == reason
    with pytest.raises(StepFailed, match="is CREATE_COMPLETE after 3 attempts: Delete canceled"):
        delete_stack(client, STACK, Clock().pace())


def test_a_refused_call_is_one_line() -> None:
    class Denied(StandInCloudFormation):
        def delete_stack(self, *, StackName: str) -> None:
            error = {"Code": "AccessDenied", "Message": f"no right to {StackName}"}
            raise ClientError({"Error": error}, "DeleteStack")

    with pytest.raises(StepFailed) as refusal:
        delete_stack(Denied([]), STACK, Clock().pace())
    assert str(refusal.value) == (
        "stack a-network: not allowed to call DeleteStack: no right to arn:a-network; "
        "ask for that permission"
    )


def test_a_wait_says_what_it_waits_for_when_it_changes_and_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    looks = iter(["2 pods"] * 8 + ["1 pod", None])
    with caplog.at_level("INFO", logger="infra.teardown"):
        wait_until_gone(Clock().pace(), 1000.0, lambda: next(looks), remedy="")
    assert [record.getMessage() for record in caplog.records] == [
        "Waiting, 0 s so far: 2 pods",
        "Waiting, 60 s so far: 2 pods",
        "Waiting, 80 s so far: 1 pod",
    ]
