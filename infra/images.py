"""Which public machine image a node boots, by the name of the parameter that holds its id."""

from infra.hardware import InstanceType


def ami_parameter(kubernetes_version: str, hardware: InstanceType) -> str:
    """The public parameter that holds the id of the EKS image for this hardware."""
    variant = "nvidia" if hardware.num_gpus else "standard"
    return (
        f"/aws/service/eks/optimized-ami/{kubernetes_version}/amazon-linux-2023/x86_64/"
        f"{variant}/recommended/image_id"
    )
