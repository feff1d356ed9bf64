"""How commands here talk to AWS: one session, and one line for whatever goes wrong.

boto3 reads credentials, profile and endpoint from the environment, as every
tool of AWS does.
"""

from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigNotFound,
    ConfigParseError,
    ConnectionError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    InvalidConfigError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)

from infra.settings import InfraSettings

# Bounded, so that a command without a network ends within a minute and says why.
LIMITS = Config(
    connect_timeout=5, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 4}
)
ERRORS = (BotoCoreError, ClientError)
"""What a call may raise; ``one_line`` explains it."""

Clients = Callable[[str], Any]
"""Gives the client of a service, by boto3's name for it: always the same one."""

_DENIED = frozenset(
    {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403", "Forbidden"}
)
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
_UNKNOWN = frozenset(
    {
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "SignatureDoesNotMatch",
        "AuthFailure",
        "InvalidAccessKeyId",
    }
)
_THROTTLED = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "RequestLimitExceeded",
        "TooManyRequestsException",
        "SlowDown",
    }
)

_CONFIGURATION = {
    ProfileNotFound: "set AWS_PROFILE to one of those in ~/.aws/config",
    ConfigParseError: "correct that file",
    ConfigNotFound: "correct AWS_CONFIG_FILE",
    InvalidConfigError: "correct ~/.aws/config",
}


def open_session(settings: InfraSettings) -> boto3.Session:
    """A session in the deployment's region, whatever region the environment names."""
    return boto3.Session(region_name=settings.region)


def clients_of(session: boto3.Session) -> Clients:
    """The session's clients, each made when it is first asked for and bounded by ``LIMITS``."""

    @cache
    def client(service: str) -> Any:
        try:
            made = session.client(service, config=LIMITS)
            _ = urlsplit(made.meta.endpoint_url).port  # of which boto3 complains only at a call
        except ValueError as error:  # an AWS_ENDPOINT_URL that is no URL
            raise EndpointConnectionError(endpoint_url=str(error)) from error
        return made

    return client


def one_line(error: BotoCoreError | ClientError) -> str:
    """What happened and what to do about it."""
    said = " ".join(str(error).split())
    match error:
        case (
            NoCredentialsError()
            | PartialCredentialsError()
            | CredentialRetrievalError()
            | TokenRetrievalError()
            | SSOError()
        ):
            return f"no usable AWS credentials ({said}); run 'aws sso login' or set AWS_PROFILE"
        case ConnectionError() | HTTPClientError():
            return f"{said}; check the network, the region and AWS_ENDPOINT_URL"
        case ClientError():
            return _explain(error)
        case _:
            remedies = (text for kind, text in _CONFIGURATION.items() if isinstance(error, kind))
            return "; ".join((said, *remedies))


def error_code(error: BotoCoreError | ClientError) -> str:
    """AWS's own word for the error, or the name of its class."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "Unknown"))
    return type(error).__name__


def is_denied(error: BotoCoreError | ClientError) -> bool:
    """The credentials are good but may not do this."""
    return error_code(error) in _DENIED


def _explain(error: ClientError) -> str:
    code = error_code(error)
    message = " ".join(str(error.response.get("Error", {}).get("Message", "")).split())
    said = f"{error.operation_name}: {message or code}"
    if code in _DENIED:
        return f"not allowed to call {said}; ask for that permission"
    if code in _EXPIRED:
        return f"credentials have expired, {said}; log in again"
    if code in _UNKNOWN:
        return (
            f"AWS does not know these credentials, {said}; check AWS_PROFILE, and that the "
            "account has this region enabled"
        )
    if code in _THROTTLED:
        return f"AWS is throttling, {said}; try again in a minute"
    return f"{said} ({code})"
