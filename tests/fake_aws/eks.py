"""Fakes of EKS: cluster and node groups are moto's own, what moto lacks is recorded."""

from tests.fake_aws.fake import Fake, refusal


class Cluster(Fake):
    kind = "AWS::EKS::Cluster"
    readable = (
        "Arn",
        "CertificateAuthorityData",
        "ClusterSecurityGroupId",
        "EncryptionConfigKeyArn",
        "Endpoint",
        "OpenIdConnectIssuerUrl",
    )

    def create(self) -> None:
        wanted = self.properties
        vpc = wanted["ResourcesVpcConfig"]
        subnets = self.ec2.describe_subnets(subnet_ids=vpc["SubnetIds"])
        if len({subnet.availability_zone for subnet in subnets}) < 2:
            raise refusal("a cluster needs subnets in two zones")
        self.must_have_role(wanted["RoleArn"])
        cluster = self.eks.create_cluster(
            name=wanted["Name"],
            role_arn=wanted["RoleArn"],
            version=wanted["Version"],
            resources_vpc_config={
                "subnetIds": vpc["SubnetIds"],
                "securityGroupIds": vpc.get("SecurityGroupIds", []),
                "endpointPublicAccess": vpc.get("EndpointPublicAccess", True),
                "endpointPrivateAccess": vpc.get("EndpointPrivateAccess", False),
            },
        )
        group = self.ec2.create_security_group(
            f"eks-cluster-sg-{cluster.name}", "made by EKS", vpc_id=subnets[0].vpc_id
        )
        keys = [c["Provider"]["KeyArn"] for c in wanted.get("EncryptionConfig", [])]
        self.physical_resource_id = cluster.name
        self.attributes = {
            "Arn": cluster.arn,
            "CertificateAuthorityData": "Y2VydGlmaWNhdGU=",
            "ClusterSecurityGroupId": group.id,
            "EncryptionConfigKeyArn": "".join(keys),
            "Endpoint": "https://0123456789ABCDEF.gr7.us-east-1.eks.amazonaws.com",
            "OpenIdConnectIssuerUrl": cluster.identity["oidc"]["issuer"],
        }

    def destroy(self) -> None:
        # EKS takes its group, and with it what other stacks' rules say of it.
        self.eks.delete_cluster(self.physical_resource_id)
        self.ec2.delete_security_group(group_id=self.attributes["ClusterSecurityGroupId"])


class Nodegroup(Fake):
    kind = "AWS::EKS::Nodegroup"
    readable = ("Arn", "ClusterName", "Id", "NodegroupName")

    def create(self) -> None:
        wanted = self.properties
        self.must_have_role(wanted["NodeRole"])
        scaling = wanted["ScalingConfig"]
        group = self.eks.create_nodegroup(
            cluster_name=wanted["ClusterName"],
            nodegroup_name=wanted.get("NodegroupName", self.logical_id),
            node_role=wanted["NodeRole"],
            subnets=wanted["Subnets"],
            instance_types=wanted.get("InstanceTypes"),
            ami_type=wanted.get("AmiType"),
            labels=wanted.get("Labels"),
            scaling_config={
                "minSize": scaling["MinSize"],
                "maxSize": scaling["MaxSize"],
                "desiredSize": scaling["DesiredSize"],
            },
        )
        self.physical_resource_id = f"{group.cluster_name}/{group.nodegroup_name}"
        self.attributes = {
            "Arn": group.arn,
            "ClusterName": group.cluster_name,
            "Id": self.physical_resource_id,
            "NodegroupName": group.nodegroup_name,
        }

    def destroy(self) -> None:
        self.eks.delete_nodegroup(*self.physical_resource_id.split("/"))


class OfCluster(Fake):
    """Something that belongs to one cluster, which must be there."""

    def must_have_cluster(self) -> str:
        name: str = self.properties["ClusterName"]
        if name not in self.eks.clusters:
            raise refusal(f"{self.kind}: there is no cluster {name}")
        return name

    def arn(self, what: str) -> str:
        return f"arn:aws:eks:{self.region}:{self.account}:{what}"


class Addon(OfCluster):
    kind = "AWS::EKS::Addon"
    readable = ("Arn",)

    def create(self) -> None:
        cluster = self.must_have_cluster()
        self.must_differ("ClusterName", "AddonName")
        for association in self.properties.get("PodIdentityAssociations", []):
            self.must_have_role(association["RoleArn"])
        name = self.properties["AddonName"]
        self.physical_resource_id = f"{cluster}|{name}"
        self.attributes = {"Arn": self.arn(f"addon/{cluster}/{name}/0123")}


class AccessEntry(OfCluster):
    kind = "AWS::EKS::AccessEntry"
    readable = ("AccessEntryArn",)

    def create(self) -> None:
        cluster = self.must_have_cluster()
        self.must_differ("ClusterName", "PrincipalArn")
        wanted = self.properties
        if wanted.get("Type", "STANDARD") != "STANDARD" and wanted.get("AccessPolicies"):
            raise refusal(f"an entry of type {wanted['Type']} takes no access policies")
        self.physical_resource_id = f"{cluster}|{wanted['PrincipalArn']}"
        self.attributes = {"AccessEntryArn": self.arn(f"access-entry/{cluster}/role/0123")}


class PodIdentityAssociation(OfCluster):
    kind = "AWS::EKS::PodIdentityAssociation"
    readable = ("AssociationArn", "AssociationId")

    def create(self) -> None:
        cluster = self.must_have_cluster()
        self.must_differ("ClusterName", "Namespace", "ServiceAccount")
        self.must_have_role(self.properties["RoleArn"])
        self.physical_resource_id = f"a-{self.logical_id}"
        self.attributes = {
            "AssociationArn": self.arn(f"podidentityassociation/{cluster}/a-0123"),
            "AssociationId": self.physical_resource_id,
        }
