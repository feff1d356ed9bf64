"""Fakes of EC2: what moto has no model of, or no model for CloudFormation."""

from tests.fake_aws.fake import Fake, refusal


class PlacementGroup(Fake):
    kind = "AWS::EC2::PlacementGroup"
    readable = ("GroupName", "GroupId")

    def create(self) -> None:
        self.physical_resource_id = self.properties.get("GroupName", self.logical_id)
        self.attributes = {
            "GroupName": self.physical_resource_id,
            "GroupId": "pg-0123456789abcdef0",
        }


class SecurityGroupEgress(Fake):
    kind = "AWS::EC2::SecurityGroupEgress"
    readable = ("Id",)

    def create(self) -> None:
        rule = self.properties
        peer = rule.get("DestinationSecurityGroupId")
        if peer and not self.ec2.get_security_group_from_id(peer):
            raise refusal(f"{self.kind}: there is no group {peer}")
        [made], _ = self.ec2.authorize_security_group_egress(
            rule["GroupId"],
            rule["IpProtocol"],
            rule.get("FromPort"),
            rule.get("ToPort"),
            [{"CidrIp": rule["CidrIp"]}] if "CidrIp" in rule else [],
            source_groups=[{"GroupId": peer}] if peer else [],
        )
        self.physical_resource_id = made.id
        self.attributes = {"Id": made.id}

    def destroy(self) -> None:
        group = self.properties["GroupId"]
        # Gone already, perhaps: moto deletes the resources of a stack in no order.
        if self.ec2.get_security_group_from_id(group):
            rules = [self.physical_resource_id]
            self.ec2.revoke_security_group_egress(
                group, None, None, None, [], security_rule_ids=rules
            )
