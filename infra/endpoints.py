"""Private doors to the services of AWS that nodes, pods and their operators call.

With them a node joins, pulls its images and is reached by Session Manager while
the NAT gateway is down, and none of that traffic is paid for there. Device plugins
come from public registries, so the NAT gateway stays.

A private name holds for the whole VPC: once an endpoint exists, every call to its
service goes through it, and none falls back to the NAT gateway. AWS does not offer
every service in every zone; a zone without one fails the deploy of this stack.
"""

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from infra.security import HTTPS_TRAFFIC, allow_in_from_network, create_group

SERVICES = {
    "EcrApi": ec2.InterfaceVpcEndpointAwsService.ECR,
    "EcrDocker": ec2.InterfaceVpcEndpointAwsService.ECR_DOCKER,  # layers themselves come from S3
    "Ec2": ec2.InterfaceVpcEndpointAwsService.EC2,
    "Sts": ec2.InterfaceVpcEndpointAwsService.STS,
    "Eks": ec2.InterfaceVpcEndpointAwsService.EKS,
    "EksAuth": ec2.InterfaceVpcEndpointAwsService.EKS_AUTH,  # rights of pods
    "Logs": ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_LOGS,
    "Fsx": ec2.InterfaceVpcEndpointAwsService.FSX,
    "AutoScaling": ec2.InterfaceVpcEndpointAwsService.AUTOSCALING,  # node repair
    # Session Manager takes all three; without a way in, a node that does not join tells nothing.
    "Ssm": ec2.InterfaceVpcEndpointAwsService.SSM,
    "SsmMessages": ec2.InterfaceVpcEndpointAwsService.SSM_MESSAGES,
    "Ec2Messages": ec2.InterfaceVpcEndpointAwsService.EC2_MESSAGES,
}


def add_interface_endpoints(scope: Construct, vpc: ec2.Vpc, *, vpc_cidr: str) -> None:
    """Add one endpoint for each of ``SERVICES``, with an address in every private subnet."""
    group = create_group(
        scope,
        vpc,
        "endpoints",
        "Interface endpoints of AWS services",
        allow_all_outbound=False,
    )
    # The whole VPC, because system nodes carry the cluster's group, which does not exist yet.
    # Getting through is no right to anything: each call is still signed and authorized.
    allow_in_from_network(scope, group, vpc_cidr, HTTPS_TRAFFIC)
    imported = ec2.SecurityGroup.from_security_group_id(scope, "EndpointsGroup", group.id)
    for name, service in SERVICES.items():
        ec2.InterfaceVpcEndpoint(
            scope,
            f"{name}Endpoint",
            vpc=vpc,
            service=service,
            subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS),
            security_groups=[imported],
            private_dns_enabled=True,
            open=False,  # True would add a rule of CDK's own beside ours
        )
