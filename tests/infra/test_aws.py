"""What commands say when AWS says no."""

import boto3
import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigNotFound,
    ConfigParseError,
    ConnectTimeoutError,
    EndpointConnectionError,
    InvalidConfigError,
    NoCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)

from deployment import Deployment
from infra.aws import LIMITS, clients_of, error_code, is_denied, one_line, open_session

URL = "https://ec2.us-east-1.amazonaws.com/"


def refused(code: str, message: str = "because") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "DescribeRegions")


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (NoCredentialsError(), "run 'aws sso login' or set AWS_PROFILE"),
        (TokenRetrievalError(provider="sso", error_msg="expired"), "run 'aws sso login'"),
        (UnauthorizedSSOTokenError(), "run 'aws sso login'"),
        (EndpointConnectionError(endpoint_url=URL), "check the network"),
        (ConnectTimeoutError(endpoint_url=URL), "check the network"),
        (ReadTimeoutError(endpoint_url=URL), "check the network"),
        (ProfileNotFound(profile="me"), "set AWS_PROFILE to one of those in ~/.aws/config"),
        (ConfigParseError(path="/home/me/.aws/config"), "correct that file"),
        (InvalidConfigError(error_msg="no such source_profile"), "correct ~/.aws/config"),
        (ConfigNotFound(path="/home/me/config"), "correct AWS_CONFIG_FILE"),
        (refused("UnauthorizedOperation"), "ask for that permission"),
        (refused("AccessDeniedException"), "ask for that permission"),
        (refused("ExpiredToken"), "log in again"),
        (
            refused("InvalidClientTokenId"),
            "check AWS_PROFILE, and that the account has this region",
        ),
        (refused("RequestLimitExceeded"), "try again in a minute"),
        (refused("ThrottlingException"), "try again in a minute"),
    ],
)
def test_an_error_is_one_line_with_a_remedy(
    error: BotoCoreError | ClientError, remedy: str
) -> None:
    line = one_line(error)
    assert remedy in line
    assert "\n" not in line


def test_a_message_of_several_lines_becomes_one() -> None:
    line = one_line(refused("UnauthorizedOperation", "You are not\n  authorized.\n"))
    assert line == (
        "not allowed to call DescribeRegions: You are not authorized.; ask for that permission"
    )


def test_an_error_that_nobody_foresaw_keeps_its_code() -> None:
    assert one_line(refused("OutOfCheese", "Redo")) == "DescribeRegions: Redo (OutOfCheese)"


def test_errors_have_a_code_wherever_they_come_from() -> None:
    assert error_code(refused("UnauthorizedOperation")) == "UnauthorizedOperation"
    assert error_code(NoCredentialsError()) == "NoCredentialsError"


@pytest.mark.parametrize(
    ("error", "denied"),
    [
        (refused("AccessDenied"), True),
        (refused("UnauthorizedOperation"), True),
        (refused("403"), True),
        (refused("Throttling"), False),
        (NoCredentialsError(), False),
    ],
)
def test_denied_means_good_credentials_without_the_right(
    error: BotoCoreError | ClientError, denied: bool
) -> None:
    assert is_denied(error) is denied


def test_the_deployments_region_wins_over_the_environments(
    p5: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    assert open_session(p5).region_name == "us-east-1"


def test_each_service_has_one_client_with_bounded_patience() -> None:
    clients = clients_of(boto3.Session("testing", "testing", region_name="us-east-1"))
    assert clients("sts") is clients("sts")
    assert clients("sts").meta.config.connect_timeout == LIMITS.connect_timeout == 5


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [("not a url", "not a url"), ("http://127.0.0.1:99999", "Port out of range")],
)
def test_an_endpoint_that_is_no_url_is_an_error_of_aws(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, said: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    clients = clients_of(boto3.Session("testing", "testing", region_name="us-east-1"))
    with pytest.raises(EndpointConnectionError, match=said):
        clients("sts")
