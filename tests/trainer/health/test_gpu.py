"""What a fake NVML says of a fake GPU, and what a kernel's failure says of a node."""

from typing import Any

import pytest

from tests.trainer.health.fakes import FakeNvml, NVMLError
from trainer.errors import ContextBroken, NodeUnhealthy
from trainer.health import cuda, nvlink, nvml
from trainer.health.finding import Verdict, refuse_unhealthy


@pytest.fixture(autouse=True)
def _no_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_healthy_gpu_passes_and_says_what_could_not_be_asked() -> None:
    finding = nvml.check_gpu(FakeNvml(), 0)
    assert finding.verdict is Verdict.PASSED
    assert "cannot be asked for: retired pages" in finding.reason


def test_a_gpu_that_cannot_be_asked_for_anything_is_skipped() -> None:
    fake = FakeNvml()
    fake.answers = dict.fromkeys(fake.answers, NVMLError(3))
    finding = nvml.check_gpu(fake, 0)
    assert finding.verdict is Verdict.SKIPPED
    assert "cannot be asked for: recovery action, memory errors" in finding.reason


@pytest.mark.parametrize(
    ("name", "answer", "reason"),
    [
        ("action", 1, "needs a reset of the GPU"),
        ("action", 2, "needs a reboot of the node"),
        ("action", 99, "needs action 99"),
        ("ecc", 3, "3 uncorrected memory errors"),
        ("rows", (0, 1, 1, 0), "waits for a reset to be remapped"),
        ("rows", (0, 1, 0, 1), "could not be remapped"),
        ("pages", 1, "waits for a reset to be retired"),
        ("ecc", NVMLError(15), "NVML error 15"),
    ],
)
def test_a_gpu_that_must_be_mended_fails(name: str, answer: Any, reason: str) -> None:
    fake = FakeNvml()
    fake.answers[name] = answer
    finding = nvml.check_gpu(fake, 0)
    assert finding.verdict is Verdict.FAILED
    assert reason in finding.reason


def test_rows_that_were_remapped_long_ago_do_not_fail() -> None:
    fake = FakeNvml()
    fake.answers["rows"] = (2, 1, 0, 0)
    assert nvml.check_gpu(fake, 0).verdict is Verdict.PASSED


def test_a_gpu_that_the_driver_does_not_see_fails() -> None:
    assert nvml.check_gpu(FakeNvml(), 7).verdict is Verdict.FAILED
    assert nvlink.check_gpu(FakeNvml(), 7, {}, {}).verdict is Verdict.FAILED


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, 1), ("4,5", 5), ("GPU-a, GPU-b", "GPU-b")]
)
def test_a_rank_asks_about_its_own_gpu(visible: str | None, expected: int | str) -> None:
    assert nvml.visible_gpu(1, visible) == expected


@pytest.mark.parametrize(("visible", "expected"), [(None, 8), ("", 0), ("4, 5", 2)])
def test_only_the_gpus_that_a_process_can_see_are_examined(
    visible: str | None, expected: int
) -> None:
    assert nvml.num_visible(8, visible) == expected


def test_a_rank_without_a_visible_gpu_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    finding = nvml.check_gpu(FakeNvml(), 1)
    assert finding.verdict is Verdict.FAILED
    assert "CUDA_VISIBLE_DEVICES=0 names no GPU 1" in finding.reason


def test_only_the_links_that_the_gpu_has_count() -> None:
    finding = nvlink.check_gpu(FakeNvml(), 0, {}, {})
    assert (finding.verdict, finding.reason) == (Verdict.PASSED, "GPU 0: 2 links are up")


def test_a_link_that_is_down_fails_by_number() -> None:
    fake = FakeNvml()
    fake.links[1] = 0
    finding = nvlink.check_gpu(fake, 0, {}, {})
    assert finding.verdict is Verdict.FAILED
    assert finding.reason.endswith("of 2 links, down: 1")


@pytest.mark.parametrize(
    ("links", "reason"),
    [({}, "down: 0, 1"), ({0: 0, 1: 0}, "down: 0, 1"), ({1: 1}, "down: 0")],
)
def test_links_that_were_up_at_the_last_attempt_fail_when_they_are_not(
    links: dict[int, int], reason: str
) -> None:
    fake, before = FakeNvml(), dict[str, int]()
    nvlink.check_gpu(fake, 0, {}, before)
    fake.links = links
    finding = nvlink.check_gpu(fake, 0, before, {})
    assert finding.verdict is Verdict.FAILED
    assert finding.reason.endswith(reason)


@pytest.mark.parametrize("links", [{}, {0: 0, 1: 0}])
def test_a_gpu_without_links_in_use_is_skipped(links: dict[int, int]) -> None:
    fake = FakeNvml()
    fake.links = links
    assert nvlink.check_gpu(fake, 0, {}, {}).verdict is Verdict.SKIPPED


@pytest.mark.parametrize(("kind", "verdict"), [(1, Verdict.FAILED), (0, Verdict.PASSED)])
def test_a_link_that_recovered_fails_and_one_that_replayed_is_told(
    kind: int, verdict: Verdict
) -> None:
    fake, before, now = FakeNvml(), dict[str, int](), dict[str, int]()
    nvlink.check_gpu(fake, 0, {}, before)
    fake.link_errors[1, kind] = 4
    finding = nvlink.check_gpu(fake, 0, before, now)
    assert finding.verdict is verdict
    assert "gpu0/link1/re" in finding.reason
    assert finding.reason.endswith("+4")
    assert nvlink.check_gpu(fake, 0, now, {}).verdict is Verdict.PASSED


def test_a_used_context_that_broke_condemns_the_process_alone() -> None:
    finding = cuda.broken(0, RuntimeError("CUDA error: illegal\nmore"), had_context=True)
    with pytest.raises(ContextBroken, match=r"node a: cuda: GPU 0 .* illegal"):
        refuse_unhealthy([finding], node="a")


def test_a_new_context_that_cannot_compute_condemns_the_node() -> None:
    finding = cuda.broken(0, TimeoutError(110, "no answer within 30 s"), had_context=False)
    with pytest.raises(NodeUnhealthy, match=r"node a: cuda: .* no answer within 30 s"):
        refuse_unhealthy([finding], node="a")


def test_a_lost_gpu_condemns_the_node_although_the_context_broke_too() -> None:
    fake = FakeNvml()
    fake.answers["action"] = 2
    used = cuda.broken(0, RuntimeError("CUDA error"), had_context=True)
    with pytest.raises(NodeUnhealthy, match=r"cuda: .*; nvml: .*reboot"):
        refuse_unhealthy([used, nvml.check_gpu(fake, 0)], node="a")


def test_a_gpu_that_torch_does_not_find_fails() -> None:
    finding = cuda.check_cuda(63)  # neither here nor on a real node
    assert finding.verdict is Verdict.FAILED
    assert not finding.is_of_process
