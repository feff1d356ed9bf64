"""Addresses of the deployment, and who may reach its Kubernetes API from outside."""

import ipaddress
from typing import Self

from pydantic import field_validator, model_validator

from infra.fields import Settings

LARGEST_VPC_PREFIX = 16
SMALLEST_VPC_PREFIX = 18


class NetworkSettings(Settings):
    vpc_cidr: str = "10.0.0.0/16"
    service_cidr: str = "172.20.0.0/16"
    """Addresses of Kubernetes Services. The cluster and every node must be told the same."""

    public_endpoint_cidrs: tuple[str, ...] = ()
    """Who may reach the Kubernetes API from outside the VPC; nobody by default."""

    interface_endpoints: bool = False
    """Reach the services of AWS (ECR, EC2, STS, ...) inside the VPC, without the NAT gateway."""

    @field_validator("vpc_cidr", "service_cidr")
    @classmethod
    def _is_a_network(cls, value: str) -> str:
        try:
            ipaddress.IPv4Network(value)
        except ValueError as error:
            raise ValueError(f"{error}; give a network such as 10.0.0.0/16") from error
        return value

    @field_validator("public_endpoint_cidrs")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(cls._is_a_network(cidr) for cidr in value)

    @model_validator(mode="after")
    def _networks_fit(self) -> Self:
        vpc = ipaddress.IPv4Network(self.vpc_cidr)
        if not LARGEST_VPC_PREFIX <= vpc.prefixlen <= SMALLEST_VPC_PREFIX:
            raise ValueError(
                f"vpc_cidr {self.vpc_cidr!r} is a /{vpc.prefixlen}; take "
                f"/{LARGEST_VPC_PREFIX} to /{SMALLEST_VPC_PREFIX}, of which each private "
                "subnet gets a quarter"
            )
        if vpc.overlaps(ipaddress.IPv4Network(self.service_cidr)):
            raise ValueError(
                f"vpc_cidr {self.vpc_cidr!r} and service_cidr {self.service_cidr!r} overlap; "
                "give Services addresses that the VPC does not use"
            )
        return self
