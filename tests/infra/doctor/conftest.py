"""A deployment in moto's account, and moto in place of AWS."""

from collections.abc import Iterator
from datetime import UTC, datetime

import boto3
import pytest
from moto import mock_aws

from deployment import Deployment
from infra.aws import clients_of
from infra.doctor.case import Case

MOTO_ACCOUNT = "123456789012"
NOW = datetime(2026, 11, 29, 18, 0, tzinfo=UTC)


@pytest.fixture(scope="session")
def settings(p5: Deployment) -> Deployment:
    """Two p5.48xlarge in us-east-1a."""
    return p5.model_copy(update={"account": MOTO_ACCOUNT})


@pytest.fixture
def moto_case(settings: Deployment, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Asks moto, an imitation of AWS inside this process."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        session = boto3.Session(region_name=settings.region)
        yield Case(clients_of(session), settings, NOW)
