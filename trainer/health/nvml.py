"""What the NVIDIA driver knows of a GPU: lost, to be reset, memory errors, rows to be remapped.

Xid errors reach a process only while it listens, and the kernel's log cannot be read in a
pod; what the driver concludes from them, the recovery action, can be asked (since 570).

Not covered: Xids that ask for no reset; clocks and heat, which make a GPU slow, not wrong;
a node with different GPUs, which CUDA may number otherwise than the driver does.
"""

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from trainer.health.finding import Finding, failed, passed, skipped

T = TypeVar("T")

CHECK = "nvml"
_NAMES_OF_NO_ANSWER = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NO_PERMISSION", "INVALID_ARGUMENT")
_RECOVERY_ACTIONS = {
    1: "a reset of the GPU",
    2: "a reboot of the node",
    3: "an end of all peer-to-peer traffic",
    4: "a drain and a reset of the GPU",
}


class NoDriver(Exception):
    """The message says what is missing."""


@contextmanager
def driver() -> Iterator[Any]:
    """The module ``pynvml``, ready to be asked."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        raise NoDriver("the Python package nvidia-ml-py is not installed") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NoDriver(f"the NVIDIA driver does not answer ({error})") from None
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def visible_gpu(local_rank: int, cuda_visible_devices: str | None) -> int | str:
    """The driver's index or UUID of what this rank knows as GPU ``local_rank``."""
    if cuda_visible_devices is None:
        return local_rank
    names = _names(cuda_visible_devices)
    if local_rank >= len(names):
        raise IndexError(f"CUDA_VISIBLE_DEVICES={cuda_visible_devices} names no GPU {local_rank}")
    name = names[local_rank]
    return int(name) if name.isdecimal() else name


def num_visible(num_gpus: int, cuda_visible_devices: str | None) -> int:
    """How many of the driver's GPUs a process can use, whether those it names exist or not."""
    return num_gpus if cuda_visible_devices is None else len(_names(cuda_visible_devices))


def _names(cuda_visible_devices: str) -> list[str]:
    return [name.strip() for name in cuda_visible_devices.split(",") if name.strip()]


def handle_of(nvml: Any, local_rank: int) -> Any:
    """Raises IndexError or NVMLError if the driver has no such GPU."""
    gpu = visible_gpu(local_rank, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if isinstance(gpu, int):
        return nvml.nvmlDeviceGetHandleByIndex(gpu)
    return nvml.nvmlDeviceGetHandleByUUID(gpu)


def answer(nvml: Any, ask: Callable[[], T]) -> T | None:
    """What the driver answers; None where this GPU or this driver does not know the question."""
    no_answer = [getattr(nvml, f"NVML_ERROR_{name}") for name in _NAMES_OF_NO_ANSWER]
    try:
        return ask()
    except nvml.NVMLError as error:
        if error.value in no_answer:
            return None
        raise


def check_gpu(nvml: Any, local_rank: int) -> Finding:
    """Any sign that the GPU must be reset, repaired or replaced fails."""
    try:
        handle = handle_of(nvml, local_rank)
        asked = {
            "recovery action": answer(nvml, lambda: _recovery_action(nvml, handle)),
            "memory errors": answer(nvml, lambda: _memory_errors(nvml, handle)),
            "remapped rows": answer(nvml, lambda: _remapped_rows(nvml, handle)),
            "retired pages": answer(nvml, lambda: _retired_pages(nvml, handle)),
        }
    except (nvml.NVMLError, IndexError) as error:
        return failed(CHECK, f"GPU {local_rank}: {error}")
    if problems := [problem for problem in asked.values() if problem]:
        return failed(CHECK, f"GPU {local_rank}: {', '.join(problems)}")
    known = [name for name, said in asked.items() if said is not None]
    unknown = [name for name, said in asked.items() if said is None]
    if not known:
        return skipped(CHECK, f"GPU {local_rank} cannot be asked for: {', '.join(unknown)}")
    return passed(
        CHECK,
        f"GPU {local_rank} has nothing to report of: {', '.join(known)}"
        + (f"; cannot be asked for: {', '.join(unknown)}" if unknown else ""),
    )


def _recovery_action(nvml: Any, handle: Any) -> str | None:
    field = getattr(nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
    if field is None:
        return None
    (value,) = nvml.nvmlDeviceGetFieldValues(handle, [field])
    if value.nvmlReturn != nvml.NVML_SUCCESS:
        return None
    action = int(value.value.uiVal)
    return f"it needs {_RECOVERY_ACTIONS.get(action, f'action {action}')}" if action else ""


def _memory_errors(nvml: Any, handle: Any) -> str:
    uncorrected = nvml.nvmlDeviceGetTotalEccErrors(
        handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    )
    return f"{uncorrected} uncorrected memory errors since the driver began" if uncorrected else ""


def _remapped_rows(nvml: Any, handle: Any) -> str:
    _, _, is_pending, has_failed = nvml.nvmlDeviceGetRemappedRows(handle)
    if has_failed:
        return "a row of its memory could not be remapped"
    return "a row of its memory waits for a reset to be remapped" if is_pending else ""


def _retired_pages(nvml: Any, handle: Any) -> str:
    is_pending = nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)
    return "a page of its memory waits for a reset to be retired" if is_pending else ""
