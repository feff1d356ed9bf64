"""The shared file system: FSx for Lustre, in the very subnet of the training nodes.

A file server of SCRATCH_2 that is lost takes what was on it along; PERSISTENT_2
keeps a copy in the zone. Neither outlives its zone: what must, goes to a data
repository in S3.

With a ``durable`` deployment the file system stays when this stack is deleted, and
goes on costing; with an ``ephemeral`` one it goes with every checkpoint in it.
"""

from aws_cdk import CfnDeletionPolicy, CfnOutput, CfnTag
from aws_cdk import aws_fsx as fsx
from constructs import Construct

from infra import names
from infra.base import DeploymentStack
from infra.lustre import LUSTRE_VERSION
from infra.network import NetworkStack
from infra.settings import InfraSettings, Storage

EVERY_CHANGE = ["NEW", "CHANGED", "DELETED"]


class StorageStack(DeploymentStack):
    """Publishes what a PersistentVolume is made of."""

    def __init__(self, scope: Construct, *, settings: InfraSettings, network: NetworkStack) -> None:
        super().__init__(scope, names.STORAGE, settings=settings)
        file_system = self._file_system(settings, network)
        if settings.storage.data_repository:
            self._mirror(file_system, settings.storage.data_repository)
        self.file_system_id = file_system.ref
        self.dns_name = file_system.attr_dns_name
        self.mount_name = file_system.attr_lustre_mount_name
        CfnOutput(self, "FileSystemId", value=self.file_system_id)
        CfnOutput(self, "FileSystemDnsName", value=self.dns_name)
        CfnOutput(self, "FileSystemMountName", value=self.mount_name)

    def _file_system(self, settings: InfraSettings, network: NetworkStack) -> fsx.CfnFileSystem:
        """FSx checks its group's rules when it is made; they are all in the network stack."""
        file_system = fsx.CfnFileSystem(
            self,
            "FileSystem",
            file_system_type="LUSTRE",
            file_system_type_version=LUSTRE_VERSION,
            storage_type="SSD",
            storage_capacity=settings.storage.size_gib,
            subnet_ids=[network.training_subnet.subnet_id],
            security_group_ids=[network.lustre.id],
            lustre_configuration=_lustre(settings.storage),
            tags=[CfnTag(key="Name", value=settings.name)],
        )
        # A change that CloudFormation can only make by replacing it must not lose checkpoints.
        file_system.apply_removal_policy(self.removal_policy, apply_to_update_replace_policy=False)
        file_system.cfn_options.update_replace_policy = CfnDeletionPolicy.RETAIN
        return file_system

    def _mirror(self, file_system: fsx.CfnFileSystem, data_repository: str) -> None:
        """Whatever is made, changed or deleted on one side is so on the other, minutes later.

        Deleting the stack deletes nothing in the bucket, but what has not been exported by then
        is lost with the file system. The bucket must be in the same region, and whoever deploys
        must be allowed to make the role by which FSx reads and writes it.

        Another bucket means another association, and the root of a file system takes only one:
        to change it, deploy once without.
        """
        association = fsx.CfnDataRepositoryAssociation(
            self,
            "DataRepository",
            file_system_id=file_system.ref,
            file_system_path="/",
            data_repository_path=data_repository,
            batch_import_meta_data_on_create=True,
            s3=fsx.CfnDataRepositoryAssociation.S3Property(
                auto_import_policy=fsx.CfnDataRepositoryAssociation.AutoImportPolicyProperty(
                    events=EVERY_CHANGE
                ),
                auto_export_policy=fsx.CfnDataRepositoryAssociation.AutoExportPolicyProperty(
                    events=EVERY_CHANGE
                ),
            ),
        )
        # A file system that stays goes on being mirrored.
        association.apply_removal_policy(self.removal_policy, apply_to_update_replace_policy=False)
        association.cfn_options.update_replace_policy = CfnDeletionPolicy.DELETE


def _lustre(storage: Storage) -> fsx.CfnFileSystem.LustreConfigurationProperty:
    return fsx.CfnFileSystem.LustreConfigurationProperty(
        deployment_type=storage.deployment_type,
        per_unit_storage_throughput=storage.throughput_mbps_per_tib,
        data_compression_type="LZ4",
    )
