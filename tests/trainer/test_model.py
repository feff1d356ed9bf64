"""The model: its first values know nothing of the world size, and it trains when sharded."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.functional import cross_entropy
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainer.model import build_model, llama_config, mixed_precision, shard_slices
from trainer.settings import ModelPreset, ModelSettings
from trainer.state import local_shard

CPU = torch.device("cpu")
TINY = ModelSettings(preset=ModelPreset.TINY)


@contextmanager
def mesh_of(world_size: int, rank: int) -> Iterator[DeviceMesh]:
    """This process as ``rank`` of a group whose other ranks do not exist and never answer."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
    try:
        yield init_device_mesh("cpu", (world_size,))
    finally:
        dist.destroy_process_group()


def build(mesh: DeviceMesh | None, settings: ModelSettings = TINY) -> Any:
    return build_model(settings, vocabulary_size=257, mesh=mesh, device=CPU)


def tokens() -> Tensor:
    return torch.arange(66).reshape(2, 33) * 3


def loss_of(model: Any) -> Tensor:
    logits = model(input_ids=tokens()[:, :-1]).logits
    return cross_entropy(logits.flatten(0, 1), tokens()[:, 1:].flatten())


def gradients(model: Any) -> dict[str, Tensor]:
    torch.autograd.backward(loss_of(model))
    return {name: local_shard(p.grad).clone() for name, p in model.named_parameters()}


def test_shards_of_three_ranks_join_to_the_model_of_one() -> None:
    whole = dict(build(None).named_parameters())
    shards: dict[str, list[Tensor]] = {name: [] for name in whole}
    for rank in range(3):
        with mesh_of(3, rank) as mesh:
            for name, parameter in build(mesh).named_parameters():
                shards[name].append(local_shard(parameter).detach().clone())
    assert [len(part) for part in shards["model.embed_tokens.weight"]] == [86, 86, 85]
    for name, parameter in whole.items():
        assert torch.equal(torch.cat(shards[name]), parameter), name


def test_a_rank_beyond_a_short_dimension_holds_nothing() -> None:
    with mesh_of(48, 40) as mesh:
        model = build(mesh)
        # 64 rows in parts of ceil(64/48) = 2 are spent after rank 31.
        assert shard_slices(model.model.norm.weight) == (slice(64, 64),)
        assert local_shard(model.model.norm.weight).numel() == 0


def test_first_values_are_noise_for_matrices_and_one_for_norms() -> None:
    model = build(None)
    assert torch.equal(model.model.norm.weight, torch.ones(64))
    embedding = model.model.embed_tokens.weight
    assert embedding.std().item() == pytest.approx(0.02, rel=0.05)
    assert embedding.mean().item() == pytest.approx(0.0, abs=1e-3)


def test_first_values_follow_from_the_seed() -> None:
    first, again = build(None), build(None)
    other = build(None, TINY.model_copy(update={"seed": 1}))
    embedding = first.model.embed_tokens.weight
    assert torch.equal(embedding, again.model.embed_tokens.weight)
    assert not torch.equal(embedding, other.model.embed_tokens.weight)
    q_proj = [layer.self_attn.q_proj.weight for layer in first.model.layers]
    assert not torch.equal(q_proj[0], q_proj[1])


def test_sharded_model_computes_what_the_whole_one_does(mesh: DeviceMesh) -> None:
    whole, sharded = gradients(build(None)), gradients(build(mesh))
    assert whole.keys() == sharded.keys()
    for name, gradient in whole.items():
        assert torch.equal(gradient, sharded[name]), name


def test_activation_checkpointing_changes_no_gradient(mesh: DeviceMesh) -> None:
    settings = TINY.model_copy(update={"activation_checkpointing": True})
    model = build(mesh, settings)
    assert all(layer.gradient_checkpointing for layer in model.model.layers)
    plain, checkpointed = gradients(build(mesh)), gradients(model)
    for name, gradient in plain.items():
        torch.testing.assert_close(gradient, checkpointed[name])


@pytest.mark.parametrize("sharded", [False, True])
def test_tied_head_is_the_embedding(sharded: bool, mesh: DeviceMesh) -> None:
    model = build(mesh if sharded else None)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert "lm_head.weight" not in dict(model.named_parameters())


def test_a_gpu_multiplies_in_bf16_and_reduces_in_fp32() -> None:
    policy = mixed_precision(torch.device("cuda"))
    assert (policy.param_dtype, policy.reduce_dtype) == (torch.bfloat16, torch.float32)


def test_a_cpu_stays_with_fp32() -> None:
    policy = mixed_precision(CPU)
    assert (policy.param_dtype, policy.reduce_dtype) == (None, None)


def test_untrained_model_is_as_good_as_guessing() -> None:
    # ln 257 = 5.549
    assert loss_of(build(None)).item() == pytest.approx(5.55, abs=0.1)


def test_rotary_buffers_survive_the_meta_device() -> None:
    rotary = build(None).model.rotary_emb
    # Wavelengths from 1 down by the 16th root of 500,000 each second channel: 8 of head size 16.
    assert rotary.inv_freq[0].item() == 1.0
    assert rotary.inv_freq[4].item() == pytest.approx(500_000**-0.5)
    assert len(rotary.inv_freq) == 8


@pytest.mark.parametrize(
    ("preset", "num_parameters"),
    [
        # As published: 1.24 and 8.03 billion.
        (ModelPreset.LLAMA_1B, 1_235_814_400),
        (ModelPreset.LLAMA_3_1_8B, 8_030_261_248),
    ],
)
def test_published_presets_have_the_published_size(
    preset: ModelPreset, num_parameters: int
) -> None:
    from transformers.models.llama.modeling_llama import LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(llama_config(preset, vocabulary_size=257))
    assert sum(parameter.numel() for parameter in model.parameters()) == num_parameters


def test_published_presets_stretch_rope() -> None:
    rope = llama_config(ModelPreset.LLAMA_3_1_8B, vocabulary_size=257).rope_parameters
    assert (rope["rope_type"], rope["rope_theta"], rope["factor"]) == ("llama3", 500_000.0, 8.0)


def test_a_vocabulary_larger_than_the_preset_is_refused_with_both_sizes() -> None:
    with pytest.raises(ValueError, match=r"200000 tokens but model.preset 'llama-1b' has 128256"):
        llama_config(ModelPreset.LLAMA_1B, vocabulary_size=200_000)
