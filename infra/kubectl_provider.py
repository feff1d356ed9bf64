"""The Lambdas with which CDK runs kubectl and helm: what is changed of them, and what is accepted.

They are made by the construct library, inside the cluster, and nothing else can be
said of them than through the resources that it made.
"""

import json

from aws_cdk import CfnElement, Stack
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import IConstruct

from infra.accepted import accept_checkov, accept_nag, managed_policies

LOG_RETENTION_DAYS = 30

ECR_PUBLIC = ":iam::aws:policy/AmazonElasticContainerRegistryPublicReadOnly"

LIBRARY = "Made so by the construct library, and runs during a deploy alone."


def tame_provider(cluster: eks.Cluster) -> None:
    """Keep the Lambdas' logs briefly, and accept what linters find in the rest of them.

    The log groups exist because of a flag in cdk.json, and would be kept for two
    years; without it each Lambda makes its own, in no template, for ever. The
    cluster's removal policy reaches these.
    """
    provider = cluster.node.find_child("KubectlProvider")
    for construct in provider.node.find_all():
        match construct:
            case logs.CfnLogGroup():
                construct.retention_in_days = LOG_RETENTION_DAYS
                accept_checkov(construct, ["CKV_AWS_158"], reason="Encrypted by CloudWatch itself.")
            case lambda_.CfnFunction():
                # A queue, a limit of its own, a key for variables that hold no secret.
                checks = ["CKV_AWS_115", "CKV_AWS_116", "CKV_AWS_173"]
                accept_checkov(construct, checks, reason=LIBRARY)
    _accept_rights(provider)
    accept_nag(provider, ["L1"], reason="The runtime is the library's to choose.")


def _accept_rights(provider: IConstruct) -> None:
    stack, handler = Stack.of(provider), provider.node.find_child("Handler")
    function, condition = handler.node.default_child, handler.node.find_child("HasEcrPublic")
    assert isinstance(function, CfnElement)
    assert isinstance(condition, CfnElement)
    # A policy that not every region has; cdk-nag calls it by its expression.
    public_images = {
        "Fn::If": [
            stack.get_logical_id(condition),
            {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, ECR_PUBLIC]]},
            {"Ref": "AWS::NoValue"},
        ]
    }
    rules = [
        *managed_policies(
            "service-role/AWSLambdaBasicExecutionRole",
            "service-role/AWSLambdaVPCAccessExecutionRole",
            "AmazonEC2ContainerRegistryReadOnly",
        ),
        f"IAM4[Policy::{json.dumps(public_images, separators=(',', ':'))}]",
        # Each version of the one function that it calls.
        f"IAM5[Resource::<{stack.get_logical_id(function)}.Arn>:*]",
    ]
    accept_nag(provider, rules, reason=LIBRARY)
