"""Where everything runs: a VPC over two zones, and the security groups of nodes and file system.

The groups live here and not beside what uses them, so that every rule a file
system needs exists before it does: FSx refuses to create one that its own group
does not admit.
"""

import ipaddress

import jsii
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra import names
from infra.accepted import accept_checkov
from infra.base import DeploymentStack
from infra.endpoints import add_interface_endpoints
from infra.security import ALL_TRAFFIC, LUSTRE_TRAFFIC, allow_in, allow_out, create_group
from infra.settings import InfraSettings

PRIVATE_SUBNET_BITS = 2
"""A private subnet is a quarter of the VPC: every interface and every pod takes an address."""

PUBLIC_SUBNET_BITS = 8
"""A public one holds a NAT gateway and nothing else."""


class NetworkStack(DeploymentStack):
    """Publishes the VPC, the one subnet that trains, and the groups ``efa`` and ``lustre``."""

    def __init__(self, scope: Construct, *, settings: InfraSettings) -> None:
        # The training zone comes first because the only NAT gateway is made in the first zone.
        self._zones = [settings.training_zone, settings.second_zone]
        super().__init__(scope, names.NETWORK, settings=settings)
        self.vpc = self._vpc(settings)
        self.training_subnet = next(
            subnet
            for subnet in self.vpc.private_subnets
            if subnet.availability_zone == settings.training_zone
        )
        self.efa = create_group(
            self, self.vpc, "efa", "Training nodes: EFA and IP", allow_all_outbound=True
        )
        self.lustre = create_group(
            self, self.vpc, "lustre", "FSx for Lustre file system", allow_all_outbound=False
        )
        self._let_nodes_talk_to_each_other()
        self._let_nodes_reach_the_file_system()
        if settings.network.interface_endpoints:
            add_interface_endpoints(self, self.vpc, vpc_cidr=settings.network.vpc_cidr)

    @property
    @jsii.member(jsii_name="availabilityZones")
    def availability_zones(self) -> list[str]:
        """Overridden because a VPC with explicit zones still looks the account's zones up."""
        return self._zones

    def _vpc(self, settings: InfraSettings) -> ec2.Vpc:
        prefix = ipaddress.ip_network(settings.network.vpc_cidr).prefixlen
        flow_logs = logs.LogGroup(
            self,
            "FlowLogs",
            log_group_name=f"/aws/vpc/{settings.name}/flow-logs",
            retention=logs.RetentionDays.ONE_MONTH,
            removal_policy=self.removal_policy,
        )
        accept_checkov(
            flow_logs,
            ["CKV_AWS_158"],
            reason="Encrypted by CloudWatch itself. A key of our own would guard only who talked to"
            " whom, and its policy would have to let the log service in before the group exists.",
        )
        return ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(settings.network.vpc_cidr),
            availability_zones=self._zones,
            nat_gateways=1,
            restrict_default_security_group=False,  # True would add a Lambda to do it
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="public",
                    subnet_type=ec2.SubnetType.PUBLIC,
                    cidr_mask=prefix + PUBLIC_SUBNET_BITS,
                    map_public_ip_on_launch=False,
                ),
                ec2.SubnetConfiguration(
                    name="private",
                    subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS,
                    cidr_mask=prefix + PRIVATE_SUBNET_BITS,
                ),
            ],
            gateway_endpoints={
                "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3)
            },
            flow_logs={
                "All": ec2.FlowLogOptions(
                    destination=ec2.FlowLogDestination.to_cloud_watch_logs(flow_logs)
                )
            },
        )

    def _let_nodes_talk_to_each_other(self) -> None:
        # EFA traffic is not IP: "anywhere" does not cover it, only the group's own name does.
        allow_in(self, self.efa, self.efa, ALL_TRAFFIC)
        allow_out(self, self.efa, self.efa, ALL_TRAFFIC)

    def _let_nodes_reach_the_file_system(self) -> None:
        for peer in (self.lustre, self.efa):
            allow_in(self, self.lustre, peer, LUSTRE_TRAFFIC)
            allow_out(self, self.lustre, peer, LUSTRE_TRAFFIC)
        allow_in(self, self.efa, self.lustre, LUSTRE_TRAFFIC)
