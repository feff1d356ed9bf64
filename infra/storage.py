"""The shared file system: FSx for Lustre, in the very subnet of the training nodes.

SCRATCH_2 keeps no copy of a server's data: a lost file server loses what was on
it, and deleting this stack deletes the file system with every checkpoint in it.
"""

from aws_cdk import CfnDeletionPolicy, CfnOutput, CfnTag
from aws_cdk import aws_fsx as fsx
from constructs import Construct

from infra import names
from infra.base import DeploymentStack
from infra.network import NetworkStack
from infra.settings import InfraSettings

LUSTRE_VERSION = "2.15"
"""Never left to the default, 2.10, which the Lustre client of Amazon Linux 2023 cannot mount."""


class StorageStack(DeploymentStack):
    """Publishes what a PersistentVolume is made of."""

    def __init__(self, scope: Construct, *, settings: InfraSettings, network: NetworkStack) -> None:
        super().__init__(scope, names.STORAGE, settings=settings)
        file_system = fsx.CfnFileSystem(
            self,
            "FileSystem",
            file_system_type="LUSTRE",
            file_system_type_version=LUSTRE_VERSION,
            storage_type="SSD",
            storage_capacity=settings.storage.size_gib,
            subnet_ids=[network.training_subnet.subnet_id],
            security_group_ids=[network.lustre.id],
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type="SCRATCH_2"
            ),
            tags=[CfnTag(key="Name", value=settings.name)],
        )
        file_system.cfn_options.deletion_policy = CfnDeletionPolicy.DELETE
        # A change that CloudFormation can only make by replacing it must not lose checkpoints.
        file_system.cfn_options.update_replace_policy = CfnDeletionPolicy.RETAIN
        self.file_system_id = file_system.ref
        self.dns_name = file_system.attr_dns_name
        self.mount_name = file_system.attr_lustre_mount_name
        CfnOutput(self, "FileSystemId", value=self.file_system_id)
        CfnOutput(self, "FileSystemDnsName", value=self.dns_name)
        CfnOutput(self, "FileSystemMountName", value=self.mount_name)
