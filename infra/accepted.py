"""How a finding of a linter is accepted: in the code that makes the resource, with a reason.

Both linters look at what is synthesized, and each reads the acceptance where it
looks: cdk-nag in the construct tree (the construct and all below it), checkov in
the metadata of the one resource. A finding without one fails a test.
"""

from collections.abc import Iterable, Sequence

import aws_cdk as cdk
from constructs import IConstruct


def accept_nag(construct: IConstruct, rules: Iterable[str], *, reason: str) -> None:
    """Accept findings of cdk-nag's pack AwsSolutions, such as ``IAM5[Resource::*]``."""
    cdk.Validations.of(construct).acknowledge(
        *(
            cdk.Acknowledgment(id=f"AwsSolutions::AwsSolutions-{rule}", reason=reason)
            for rule in rules
        )
    )


def accept_checkov(construct: IConstruct, checks: Sequence[str], *, reason: str) -> None:
    """Accept findings of checkov, such as ``CKV_AWS_158``, in one resource; once for each."""
    child = construct.node.default_child
    resource = construct if isinstance(construct, cdk.CfnResource) else child
    assert isinstance(resource, cdk.CfnResource)
    skipped = [{"id": check, "comment": reason} for check in checks]
    resource.add_metadata("checkov", {"skip": skipped})


def managed_policies(*names: str) -> list[str]:
    """The rules that cdk-nag finds broken by a role with these policies of AWS."""
    return [f"IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{name}]" for name in names]
