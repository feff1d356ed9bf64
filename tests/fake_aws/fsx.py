"""Fakes of FSx: the file system is moto's own, an association with a bucket is recorded."""

from typing import Any

from tests.fake_aws.fake import Fake, refusal

LUSTRE_PORT = 988


class FileSystem(Fake):
    kind = "AWS::FSx::FileSystem"
    readable = ("DNSName", "LustreMountName", "ResourceARN")

    def create(self) -> None:
        wanted = self.properties
        groups = wanted["SecurityGroupIds"]
        self.ec2.describe_subnets(subnet_ids=wanted["SubnetIds"])
        for group in groups:
            self._must_admit_lustre(group)
        made = self.fsx.create_file_system(
            client_request_token=self.logical_id,
            file_system_type=wanted["FileSystemType"],
            storage_capacity=int(wanted["StorageCapacity"]),
            storage_type=wanted.get("StorageType", "SSD"),
            subnet_ids=wanted["SubnetIds"],
            security_group_ids=groups,
            tags=wanted.get("Tags"),
            kms_key_id=wanted.get("KmsKeyId"),
            windows_configuration=None,
            lustre_configuration=wanted["LustreConfiguration"],
            ontap_configuration=None,
            open_zfs_configuration=None,
            file_system_type_version=wanted.get("FileSystemTypeVersion"),
        )
        self.physical_resource_id = made.file_system_id
        self.attributes = {
            "DNSName": made.dns_name,
            "LustreMountName": "abcdefgh",
            "ResourceARN": made.resource_arn,
        }

    def destroy(self) -> None:
        self.fsx.delete_file_system(self.physical_resource_id, "", None, None, None)

    def _must_admit_lustre(self, group_id: str) -> None:
        """As FSx: file servers find each other through their own group."""
        group = self.ec2.get_security_group_from_id(group_id)
        if group is None:
            raise refusal(f"{self.kind}: there is no group {group_id}")
        for direction, rules in (("from", group.ingress_rules), ("to", group.egress_rules)):
            ports = [(r.from_port, r.to_port) for r in rules if _names(r, group_id)]
            if not any(first <= LUSTRE_PORT <= last for first, last in ports):
                raise refusal(
                    f"group {group_id} does not admit port {LUSTRE_PORT} {direction} itself"
                )


def _names(rule: Any, group_id: str) -> bool:
    return bool(rule.source_group.get("GroupId") == group_id and rule.from_port)


class DataRepositoryAssociation(Fake):
    kind = "AWS::FSx::DataRepositoryAssociation"
    readable = ("AssociationId", "ResourceARN")

    def create(self) -> None:
        file_system = self.properties["FileSystemId"]
        if file_system not in self.fsx.file_systems:
            raise refusal(f"{self.kind}: there is no file system {file_system}")
        self.physical_resource_id = f"dra-{self.logical_id}"
        self.attributes = {
            "AssociationId": self.physical_resource_id,
            "ResourceARN": f"arn:aws:fsx:{self.region}:{self.account}:association/{file_system}",
        }
