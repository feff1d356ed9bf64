"""Addresses of the deployment, and who may reach its Kubernetes API from outside."""

import ipaddress
from typing import Self

from pydantic import field_validator, model_validator

from infra.fields import Settings

LARGEST_VPC_PREFIX = 16
SMALLEST_VPC_PREFIX = 18
LARGEST_SERVICE_PREFIX = 12
SMALLEST_SERVICE_PREFIX = 24
WIDEST_PUBLIC_PREFIX = 8

_RFC_1918 = tuple(map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
_SHARED = ipaddress.IPv4Network("100.64.0.0/10")
_LOCAL = tuple(map(ipaddress.IPv4Network, ("127.0.0.0/8", "169.254.0.0/16")))


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
        return tuple(cls._is_public(cls._is_a_network(cidr)) for cidr in value)

    @classmethod
    def _is_public(cls, cidr: str) -> str:
        network = ipaddress.IPv4Network(cidr)
        if network.prefixlen < WIDEST_PUBLIC_PREFIX:
            raise ValueError(f"{cidr} lets half the world in; name the networks of your people")
        if any(network.overlaps(other) for other in (*_RFC_1918, _SHARED, *_LOCAL)):
            raise ValueError(
                f"{cidr} is not a public network, which EKS refuses; name the addresses that the "
                "internet sees you by, or none: the VPC itself always reaches the API"
            )
        return cidr

    @model_validator(mode="after")
    def _networks_are_private(self) -> Self:
        vpc, services = map(ipaddress.IPv4Network, (self.vpc_cidr, self.service_cidr))
        if not any(vpc.subnet_of(private) for private in (*_RFC_1918, _SHARED)):
            raise ValueError(
                f"vpc_cidr {self.vpc_cidr!r} holds addresses of others; take, say, 10.0.0.0/16"
            )
        if not any(services.subnet_of(private) for private in _RFC_1918):
            raise ValueError(
                f"service_cidr {self.service_cidr!r} is none that EKS takes; take one inside of "
                f"{', '.join(map(str, _RFC_1918))}"
            )
        if not LARGEST_SERVICE_PREFIX <= services.prefixlen <= SMALLEST_SERVICE_PREFIX:
            raise ValueError(
                f"service_cidr {self.service_cidr!r} is a /{services.prefixlen}; take "
                f"/{LARGEST_SERVICE_PREFIX} to /{SMALLEST_SERVICE_PREFIX}"
            )
        return self

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
