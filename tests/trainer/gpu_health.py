"""Health on a machine with GPUs: ``python -m tests.trainer.gpu_health``, by hand, not in CI.

Prints what each GPU's checks find and cost, first and once warm, then breaks this
process's context and shows that the process is condemned and the node is not. Exit 0 if
all of that holds.

Not covered: a broken GPU, link or port, which nobody here can order.
"""

import contextlib
import sys

import torch

from trainer.health.finding import Finding, failures
from trainer.health.node import gpu_findings

WARM_SECONDS = 0.05


def main() -> int:
    holds = True
    for gpu in range(torch.cuda.device_count()):
        counters: dict[str, int] = {}
        first = gpu_findings(gpu, {}, counters)
        warm = gpu_findings(gpu, counters, {})
        show("first", first)
        show("warm", warm)
        cost = sum(each.seconds for each in warm)
        print(f"GPU {gpu}: {cost * 1000:.1f} ms once warm, {len(counters)} counters\n")
        holds &= not failures(warm) and cost < WARM_SECONDS
    break_context()
    after = gpu_findings(0, {}, {})
    show("broken", after)
    bad = failures(after)
    holds &= bool(bad) and all(each.is_of_process for each in bad)
    print("holds" if holds else "DOES NOT HOLD")
    return 0 if holds else 1


def show(when: str, findings: list[Finding]) -> None:
    for each in findings:
        print(f"{when:<7} {each.verdict:<8} {each.check:<7} {each.seconds:.4f} s  {each.reason}")


def break_context() -> None:
    """An index out of bounds stops the kernel, and every later one of this process."""
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device="cuda")[torch.tensor([9], device="cuda")].item()


if __name__ == "__main__":
    sys.exit(main())
