"""Stand-ins for hardware that is not here: a fake NVML, and fake trees of sysfs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class FakeNvml:
    """A healthy GPU with two NVLinks, of the four that NVML numbers; tests break it."""

    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_ERROR_INVALID_ARGUMENT = 2
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_NVLINK_MAX_LINKS = 4
    NVML_NVLINK_ERROR_DL_REPLAY = 0
    NVML_NVLINK_ERROR_DL_RECOVERY = 1
    NVML_NVLINK_ERROR_DL_CRC_FLIT = 2

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            "action": 0,
            "ecc": 0,
            "rows": (0, 0, 0, 0),
            "pages": NVMLError(3),  # as on GPUs that remap rows instead
        }
        self.links = {0: 1, 1: 1}
        self.link_errors = {(link, kind): 0 for link in (0, 1) for kind in (0, 1, 2)}
        self.num_gpus = 1

    def _answer(self, name: str) -> Any:
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if index >= self.num_gpus:
            raise NVMLError(2)
        return f"GPU {index}"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetFieldValues(self, _handle: str, _fields: list[int]) -> list[Any]:
        value = SimpleNamespace(uiVal=self._answer("action"))
        return [SimpleNamespace(nvmlReturn=0, value=value)]

    def nvmlDeviceGetTotalEccErrors(self, _handle: str, _kind: int, _counter: int) -> Any:
        return self._answer("ecc")

    def nvmlDeviceGetRemappedRows(self, _handle: str) -> Any:
        return self._answer("rows")

    def nvmlDeviceGetRetiredPagesPendingStatus(self, _handle: str) -> Any:
        return self._answer("pages")

    def nvmlDeviceGetNvLinkState(self, _handle: str, link: int) -> int:
        if link not in self.links:
            raise NVMLError(3)
        return self.links[link]

    def nvmlDeviceGetNvLinkErrorCounter(self, _handle: str, link: int, kind: int) -> int:
        return self.link_errors[link, kind]


def port(root: Path, device: str, **files: str) -> None:
    """One port of a healthy device; ``files`` replace what it shows, ``__`` for ``/``."""
    shown = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "hw_counters__rx_drops": "0",
        **files,
    }
    for name, text in shown.items():
        path = root / device / "ports" / "1" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
