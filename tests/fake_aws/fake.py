"""What every fake here is: a CloudFormation resource that exists from its creation to its deletion.

A fake refuses what AWS is known to refuse where that depends on other resources
(a group that does not admit Lustre, a second entry for one principal); values are
left to cfn-lint.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from moto.cloudformation.exceptions import ValidationError
from moto.ec2.models import ec2_backends
from moto.eks.models import eks_backends
from moto.fsx.models import fsx_backends
from moto.iam.models import iam_backends


@dataclass
class Fake:
    """One resource as CloudFormation resolved it; ``existing`` holds those not deleted yet."""

    kind: ClassVar[str]
    readable: ClassVar[tuple[str, ...]] = ()
    """What ``Fn::GetAtt`` may ask for."""

    existing: ClassVar[list["Fake"]] = []

    account: str
    region: str
    logical_id: str
    properties: dict[str, Any]
    physical_resource_id: str = ""
    attributes: dict[str, str] = field(default_factory=dict)

    def create(self) -> None:
        """Set ``physical_resource_id`` and ``attributes``.

        Raises:
            ValidationError: AWS would refuse this.
        """
        raise NotImplementedError

    def destroy(self) -> None:
        """Undo what ``create`` did outside of this object."""

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: dict[str, Any],
        account_id: str,
        region_name: str,
        **_: Any,
    ) -> Self:
        fake = cls(account_id, region_name, resource_name, cloudformation_json["Properties"])
        fake.create()
        Fake.existing.append(fake)
        return fake

    def delete(self, _account: str, _region: str) -> None:
        self.destroy()
        Fake.existing.remove(self)

    @classmethod
    def cloudformation_type(cls) -> str:
        return cls.kind

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    @classmethod
    def has_cfn_attr(cls, name: str) -> bool:
        return name in cls.readable

    def get_cfn_attribute(self, name: str) -> str:
        if name not in self.readable:
            raise refusal(f"{self.kind} has no attribute {name}")
        return self.attributes[name]

    def is_created(self) -> bool:
        return True

    @property
    def ec2(self) -> Any:
        return ec2_backends[self.account][self.region]

    @property
    def eks(self) -> Any:
        return eks_backends[self.account][self.region]

    @property
    def fsx(self) -> Any:
        return fsx_backends[self.account][self.region]

    def others(self) -> list[dict[str, Any]]:
        """Properties of what exists of the same kind."""
        return [fake.properties for fake in Fake.existing if fake.kind == self.kind]

    def must_have_role(self, arn: str) -> None:
        roles = iam_backends[self.account]["aws"].get_roles()
        if arn not in {role.arn for role in roles}:
            raise refusal(f"{self.kind}: there is no role {arn}")

    def must_differ(self, *keys: str) -> None:
        mine = [self.properties[key] for key in keys]
        if any([other.get(key) for key in keys] == mine for other in self.others()):
            raise refusal(f"{self.kind} exists already: {mine}")


def refusal(message: str) -> ValidationError:
    """The error that ends the creation of a stack."""
    return ValidationError(message=message)
