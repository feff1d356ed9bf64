"""Each variable is there for a reason that the run or the instance type gives."""

import pytest

from infra.hardware import CATALOG
from tests.workloads.test_launcher import settings_for
from trainer.settings import RecoveryLayer, TrainerSettings
from trainer.timeouts import derive_timeouts
from workloads.environment import container_environment

DISCOURAGED = {
    "FI_PROVIDER",
    "FI_EFA_FORK_SAFE",
    "FI_EFA_USE_DEVICE_RDMA",
    "FI_EFA_ENABLE_SHM_TRANSFER",
    "RDMAV_FORK_SAFE",
    "NCCL_BUFFSIZE",
    "NCCL_PROTO",
    "NCCL_MIN_NCHANNELS",
    "NCCL_TUNER_PLUGIN",
}


def environment_of(settings: TrainerSettings, instance_type: str) -> dict[str, str]:
    hardware = CATALOG[instance_type]
    on_it = settings.model_copy(update={"device": hardware.device})
    timeouts = derive_timeouts(on_it.timeouts, device=on_it.device)
    return container_environment(on_it, hardware=hardware, timeouts=timeouts)


@pytest.mark.parametrize("layer", RecoveryLayer)
@pytest.mark.parametrize("instance_type", CATALOG)
def test_no_variable_that_aws_advises_against_is_set(
    instance_type: str, layer: RecoveryLayer
) -> None:
    assert not DISCOURAGED & environment_of(settings_for(layer), instance_type).keys()


@pytest.mark.parametrize("layer", RecoveryLayer)
def test_a_node_without_gpus_gets_nothing_of_nccl_or_efa(layer: RecoveryLayer) -> None:
    names = environment_of(settings_for(layer), "m7i.2xlarge")
    assert not [name for name in names if name.startswith(("NCCL_", "FI_", "TORCH_NCCL_"))]
    assert names["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    ("layer", "value"), [("in_process", "0"), ("layered", "0"), ("in_job", None)]
)
def test_nvlink_sharp_is_given_up_where_a_living_process_trains_again(
    layer: RecoveryLayer, value: str | None
) -> None:
    values = environment_of(settings_for(layer), "p5.48xlarge")
    assert values.get("NCCL_NVLS_ENABLE") == value
    assert values.get("TORCH_NCCL_RETHROW_CUDA_ERRORS") == value


@pytest.mark.parametrize(
    ("layer", "value"), [("in_process", "0"), ("layered", "0"), ("in_job", None)]
)
def test_efa_keeps_its_huge_pages_unless_a_rank_forks(
    layer: RecoveryLayer, value: str | None
) -> None:
    values = environment_of(settings_for(layer), "p5.48xlarge")
    assert values.get("FI_EFA_USE_HUGE_PAGE") == value


@pytest.mark.parametrize(
    ("weights", "offline"),
    [(None, "1"), ("/fsx/weights/llama", "1"), ("some-team/some-model", None)],
)
def test_the_model_hub_is_out_of_reach_unless_weights_come_from_it(
    weights: str | None, offline: str | None
) -> None:
    settings = settings_for(RecoveryLayer.POD)
    model = settings.model.model_copy(update={"weights": weights})
    values = environment_of(settings.model_copy(update={"model": model}), "m7i.2xlarge")
    assert values.get("HF_HUB_OFFLINE") == offline
