"""Rules between security groups, each one a resource of its own.

A group's own inline rules cannot express what EFA and Lustre need: CDK drops
further egress from a group that is open to the world, and groups that name each
other inline cannot be created. The stack that adds a rule owns it, so a rule
goes when the stack goes and a group never depends on a later stack.
"""

from dataclasses import dataclass

from aws_cdk import aws_ec2 as ec2
from constructs import Construct


@dataclass(frozen=True, slots=True)
class Traffic:
    protocol: str
    first_port: int | None = None
    last_port: int | None = None

    @property
    def label(self) -> str:
        return "all" if self.first_port is None else f"{self.first_port}-{self.last_port}"


ALL_TRAFFIC = (Traffic(protocol="-1"),)
LUSTRE_TRAFFIC = (Traffic("tcp", 988, 988), Traffic("tcp", 1018, 1023))
"""LNET's well-known port and the ports its servers and clients call back from."""


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    """Word for this group in the rules' own names and descriptions."""

    id: str


def allow_in(scope: Construct, group: Group, peer: Group, traffic: tuple[Traffic, ...]) -> None:
    """Let ``peer`` open connections to ``group``."""
    for rule in traffic:
        ec2.CfnSecurityGroupIngress(
            scope,
            f"{group.name}-from-{peer.name}-{rule.label}",
            group_id=group.id,
            source_security_group_id=peer.id,
            ip_protocol=rule.protocol,
            from_port=rule.first_port,
            to_port=rule.last_port,
            description=f"{group.name} from {peer.name}",
        )


def allow_out(scope: Construct, group: Group, peer: Group, traffic: tuple[Traffic, ...]) -> None:
    """Let ``group`` open connections to ``peer``."""
    for rule in traffic:
        ec2.CfnSecurityGroupEgress(
            scope,
            f"{group.name}-to-{peer.name}-{rule.label}",
            group_id=group.id,
            destination_security_group_id=peer.id,
            ip_protocol=rule.protocol,
            from_port=rule.first_port,
            to_port=rule.last_port,
            description=f"{group.name} to {peer.name}",
        )
