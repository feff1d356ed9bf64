"""Carries a plan out, step by step, until it is done or one fails."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from botocore.exceptions import ClientError

from infra import names
from infra.aws import ERRORS, Clients, error_code, one_line
from infra.kubectl import Kubectl
from infra.settings import InfraSettings
from infra.teardown import cluster as in_cluster
from infra.teardown.instances import training_instances
from infra.teardown.plan import Answer, Found, FoundStack, Kind, Step, why_not
from infra.teardown.stacks import delete_stack, find_stacks
from infra.teardown.vpc import what_is_in_the_vpc
from infra.teardown.waiting import Pace, StepFailed

logger = logging.getLogger(__name__)


class Refused(RuntimeError):
    """Nothing was taken down; one line that says why and what to do."""


@dataclass(frozen=True, slots=True)
class Outcome:
    done: tuple[Step, ...]
    failed: Step | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Teardown:
    """One deployment, and the two ways to what exists of it."""

    settings: InfraSettings
    client: Clients
    kubectl: Kubectl
    pace: Pace

    def look(self) -> Found:
        """What exists now.

        Raises:
            Refused: it may not be taken down, or could not be looked at.
        """
        # Before anything is asked of an account that may not be ours.
        if reason := why_not(self.settings, Found()):
            raise Refused(reason)
        logger.info("Looking at account %s, region %s", self.settings.account, self.settings.region)
        try:
            self._check_account()
            stacks = find_stacks(self.client("cloudformation"), self.settings)
            inside = self._look_inside(stacks)
        except ERRORS as error:
            raise Refused(one_line(error)) from error
        found = replace(inside, stacks=stacks)
        if reason := why_not(self.settings, found):
            raise Refused(reason)
        return found

    def carry_out(self, plan: Sequence[Step], found: Found) -> Outcome:
        stacks = {stack.name: stack for stack in found.stacks}
        done: list[Step] = []
        looked_again = False
        for step in plan:
            logger.info("Step %d of %d: %s", len(done) + 1, len(plan), step)
            try:
                if step.kind not in (Kind.JOBS, Kind.PODS) and not looked_again:
                    self._look_again(found)
                    looked_again = True
                self._take(step, stacks)
            except StepFailed as error:
                return Outcome(tuple(done), failed=step, reason=str(error))
            done.append(step)
        return Outcome(tuple(done))

    def _take(self, step: Step, stacks: dict[str, FoundStack]) -> None:
        match step.kind:
            case Kind.JOBS:
                in_cluster.delete_jobs(self.settings, self.kubectl)
            case Kind.PODS:
                in_cluster.wait_for_pods(self.settings, self.kubectl, self.pace)
            case Kind.CLAIM:
                in_cluster.delete_claim(self.settings, self.kubectl, self.pace)
            case Kind.VOLUME:
                in_cluster.delete_volume(self.settings, self.kubectl, self.pace)
            case Kind.STACK:
                self._delete(stacks[step.targets[0]])

    def _delete(self, stack: FoundStack) -> None:
        cloudformation = self.client("cloudformation")
        try:
            delete_stack(cloudformation, stack, self.pace)
        except StepFailed as error:
            if stack.name != names.stack_name(self.settings, names.NETWORK):
                raise
            held = what_is_in_the_vpc(cloudformation, self.client("ec2"), stack.stack_id)
            raise StepFailed(f"{error}; {held}") from error

    def _look_again(self, found: Found) -> None:
        """A pod, or where pods cannot be seen a node, may have come since the plan was made.

        Raises:
            StepFailed: one has.
        """
        match found.cluster:
            case Answer.ANSWERS:
                in_cluster.refuse_if_mounted(self.settings, self.kubectl)
            case Answer.SILENT:
                try:
                    came = training_instances(self.client("ec2"), self.settings, found.stacks)
                except ERRORS as error:
                    raise StepFailed(one_line(error)) from error
                if reason := why_not(self.settings, replace(found, instances=came)):
                    raise StepFailed(reason)

    def _check_account(self) -> None:
        account = self.client("sts").get_caller_identity()["Account"]
        if account != self.settings.account:
            raise Refused(
                f"these credentials are of account {account} but {self.settings.name} is in "
                f"{self.settings.account}; set AWS_PROFILE to one of that account"
            )

    def _look_inside(self, stacks: Sequence[FoundStack]) -> Found:
        """Only into a cluster that the deployment's own stack has made."""
        name = f"{self.settings.name}-cluster"
        if all(stack.name != name or not stack.ours for stack in stacks):
            return Found()
        try:
            self.client("eks").describe_cluster(name=self.settings.name)
        except ClientError as error:
            if error_code(error) == "ResourceNotFoundException":
                return Found()
            raise
        logger.info("Looking into cluster %s with kubectl", self.settings.name)
        inside = in_cluster.look_inside(self.settings, self.kubectl)
        if inside.cluster is not Answer.SILENT:
            return inside
        running = training_instances(self.client("ec2"), self.settings, stacks)
        return replace(inside, instances=running)
