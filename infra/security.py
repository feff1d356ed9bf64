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

HTTPS_TRAFFIC = (Traffic("tcp", 443, 443),)


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    """Word for this group in the rules' own names and descriptions."""

    id: str


def create_group(
    scope: Construct, vpc: ec2.Vpc, name: str, description: str, *, allow_all_outbound: bool
) -> Group:
    """A group that nobody may reach yet, and that may call anywhere or nowhere."""
    group = ec2.SecurityGroup(
        scope,
        name.capitalize(),
        vpc=vpc,
        description=description,
        allow_all_outbound=allow_all_outbound,
    )
    return Group(name, group.security_group_id)


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


def allow_in_from_network(
    scope: Construct, group: Group, cidr: str, traffic: tuple[Traffic, ...]
) -> None:
    """Let whatever has an address in ``cidr`` open connections to ``group``."""
    for rule in traffic:
        ec2.CfnSecurityGroupIngress(
            scope,
            f"{group.name}-from-network-{rule.label}",
            group_id=group.id,
            cidr_ip=cidr,
            ip_protocol=rule.protocol,
            from_port=rule.first_port,
            to_port=rule.last_port,
            description=f"{group.name} from {cidr}",
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
