"""What stack, chart, doctor and teardown must agree on about the shared file system."""

from infra.settings import InfraSettings

FSX_DRIVER = "fsx.csi.aws.com"

LUSTRE_VERSION = "2.15"
"""Never left to FSx's default, 2.10, which the Lustre client of Amazon Linux 2023 cannot mount."""


def volume_name(settings: InfraSettings) -> str:
    """Of the PersistentVolume. It is of no namespace, so it bears that of its claim."""
    return f"{settings.namespace}-{settings.storage.claim}"
