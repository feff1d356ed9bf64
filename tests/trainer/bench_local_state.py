"""What NVRx's ``LocalCheckpointManager`` is handed: tensors by name, as it wants them.

Its own class takes tensors on a GPU only. On a CPU a shim stands in, so that
``bench_local_manager`` can be tried; there nothing is asked of CUDA either.
"""

from collections.abc import Mapping
from typing import Any

import torch
from nvidia_resiliency_ext.checkpointing.local.basic_state_dict import BasicTensorAwareStateDict
from torch import Tensor


class _OnCpu(BasicTensorAwareStateDict):  # type: ignore[misc]
    def __init__(self, state_dict: dict[str, Tensor]) -> None:
        self.state_dict = state_dict
        self._is_hollow = False

    def copy_tensors_to_cpu(self, **_: bool) -> None:
        """Copies, where NVRx's own would save the live tensors."""
        self.state_dict = {name: tensor.clone() for name, tensor in self.state_dict.items()}

    def restore_tensor_device(self, **_: bool) -> None: ...


def tensor_aware(tensors: Mapping[str, Tensor]) -> Any:
    """A ``TensorAwareStateDict`` of ``tensors``, which it may replace by others in itself."""
    if all(tensor.is_cuda for tensor in tensors.values()):
        return BasicTensorAwareStateDict(dict(tensors))
    cuda: Any = torch.cuda
    cuda.synchronize = lambda *_: None
    cuda.current_device = lambda: torch.device("cpu")
    return _OnCpu(dict(tensors))
