"""What jobs find in the cluster: their namespace, and the file system as a volume with its claim.

The ids of the file system are values here, or tokens that CloudFormation fills
in. Not covered: another file system under the same names. A volume's source
cannot be changed, so volume and claim must be deleted first.
"""

import cdk8s
from cdk8s_plus_35 import k8s
from constructs import Construct

from infra.lustre import FSX_DRIVER, volume_name
from infra.settings import InfraSettings

NOMINAL_SIZE = "1200Gi"
"""Of volume and claim, whatever the size of the file system.

FSx can grow, but a bound claim of a volume that no storage class made refuses any other size, and
with it every later ``apply``. Kubernetes compares the two sizes with each other and looks no
further: a pod may fill the whole file system.
"""

FILE_SYSTEM = "lustre"
_CLAIMED_MODES = ["ReadWriteMany"]
_VOLUME_MODES = ["ReadWriteMany", "ReadWriteOnce"]
"""The driver declares fsGroupPolicy ReadWriteOnceWithFSType, so the kubelet gives the root of the
file system to a pod's fsGroup only if the volume has that mode too, and an fsType. Trainers,
which are not root, could not write otherwise. The kubelet mounts by the first mode
(csi_mounter.go).
"""


class PlatformChart(cdk8s.Chart):
    """Namespace, PersistentVolume and PersistentVolumeClaim, in the order to apply them."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        settings: InfraSettings,
        file_system_id: str,
        dns_name: str,
        mount_name: str,
    ) -> None:
        # Names are what jobs refer to, so nothing may be appended to them.
        super().__init__(scope, id, disable_resource_name_hashes=True)
        namespace = self._namespace(settings)
        claim = k8s.ObjectMeta(namespace=settings.namespace, name=settings.storage.claim)
        source = k8s.CsiPersistentVolumeSource(
            driver=FSX_DRIVER,
            volume_handle=file_system_id,
            fs_type=FILE_SYSTEM,
            volume_attributes={"dnsname": dns_name, "mountname": mount_name},
        )
        volume = self._volume(volume_name(settings), claim=claim, source=source)
        volume.add_dependency(namespace)
        self._claim(claim, volume=volume.name).add_dependency(volume)

    def _namespace(self, settings: InfraSettings) -> k8s.KubeNamespace:
        """Training pods need no privilege: their nodes lift the limit on locked memory for EFA."""
        labels = {
            "pod-security.kubernetes.io/enforce": "baseline",
            "pod-security.kubernetes.io/warn": "restricted",
        }
        return k8s.KubeNamespace(
            self, "namespace", metadata=k8s.ObjectMeta(name=settings.namespace, labels=labels)
        )

    def _volume(
        self, name: str, *, claim: k8s.ObjectMeta, source: k8s.CsiPersistentVolumeSource
    ) -> k8s.KubePersistentVolume:
        """Bound to that claim and to no other."""
        reference = k8s.ObjectReference(
            api_version="v1",
            kind="PersistentVolumeClaim",
            namespace=claim.namespace,
            name=claim.name,
        )
        return k8s.KubePersistentVolume(
            self,
            "volume",
            metadata=k8s.ObjectMeta(name=name),
            spec=k8s.PersistentVolumeSpec(
                capacity={"storage": k8s.Quantity.from_string(NOMINAL_SIZE)},
                access_modes=_VOLUME_MODES,
                persistent_volume_reclaim_policy="Retain",
                storage_class_name="",
                mount_options=["flock"],
                claim_ref=reference,
                csi=source,
            ),
        )

    def _claim(self, metadata: k8s.ObjectMeta, *, volume: str) -> k8s.KubePersistentVolumeClaim:
        size = {"storage": k8s.Quantity.from_string(NOMINAL_SIZE)}
        return k8s.KubePersistentVolumeClaim(
            self,
            "claim",
            metadata=metadata,
            spec=k8s.PersistentVolumeClaimSpec(
                access_modes=_CLAIMED_MODES,
                # Empty, not absent: absent means the default class, which makes a second volume.
                storage_class_name="",
                volume_name=volume,
                resources=k8s.VolumeResourceRequirements(requests=size),
            ),
        )
