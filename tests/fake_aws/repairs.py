"""Where moto's own CloudFormation (5.2.5) fails on what AWS takes, and what we put in its place."""

from collections.abc import Callable
from typing import Any

from moto.awslambda.models import LayerVersion
from moto.cloudformation.models import Stack
from moto.ec2.models import ec2_backends
from moto.ec2.models.elastic_ip_addresses import ElasticAddress
from moto.ec2.models.route_tables import RouteTable
from moto.kms.models import Key
from moto.ssm.models import Parameter

Repair = tuple[Any, str, Any]
"""A class of moto, the name of what it lacks or does wrong, and what we put there."""

CREATE = "create_from_cloudformation_json"


def repairs() -> list[Repair]:
    return [
        (Parameter, CREATE, _after(_name_the_parameter, Parameter)),
        (Key, CREATE, _after(_word_the_tags_of_a_key, Key)),
        (LayerVersion, "physical_resource_id", property(lambda layer: layer.arn)),
        (ElasticAddress, "delete", _release_address),
        (Stack, "delete", _delete_stack(Stack.delete)),
        (RouteTable, "delete", _delete_route_table),
    ]


def _after(amend: Callable[[str, dict[str, Any]], None], model: Any) -> Any:
    """How ``model`` is created, once ``amend`` has changed its name and properties."""
    original = model.create_from_cloudformation_json.__func__

    def create(cls: Any, name: str, resource: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        amend(name, resource["Properties"])
        return original(cls, name, resource, *args, **kwargs)

    return classmethod(create)


def _name_the_parameter(name: str, properties: dict[str, Any]) -> None:
    """CDK makes one without a name, which CloudFormation would choose."""
    properties.setdefault("Name", name)


def _word_the_tags_of_a_key(_: str, properties: dict[str, Any]) -> None:
    """CloudFormation says Key and Value as everywhere, the API of KMS TagKey and TagValue."""
    tags = properties.get("Tags", [])
    properties["Tags"] = [{"TagKey": tag["Key"], "TagValue": tag["Value"]} for tag in tags]


def _delete_stack(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Whoever describes a deleted stack asks for its outputs, for which moto makes it anew."""

    def delete(stack: Any) -> None:
        original(stack)
        stack.output_map._output_json_map = {}

    return delete


def _delete_route_table(table: Any, account: str, region: str) -> None:
    """moto leaves the table, so that its VPC could never be deleted."""
    backend = ec2_backends[account][region]
    for association in list(table.associations):
        backend.disassociate_route_table(association)
    backend.delete_route_table(table.id)


def _release_address(address: Any, account: str, region: str) -> None:
    """moto keeps the address of a NAT gateway that is gone."""
    ec2_backends[account][region].release_address(allocation_id=address.allocation_id)
