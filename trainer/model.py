"""The language model: a Llama from a named preset, sharded with FSDP2, with its first values.

It is built without memory, sharded, and only then given memory and values, so
no rank ever holds the whole model. A parameter's first values follow from the
seed, its name and the kind of device, never from the world size.
"""

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

from trainer.settings import ModelPreset, ModelSettings
from trainer.state import local_shard

# As published. Training is bounded by data.sequence_length; only generation reads this.
MAX_POSITIONS = 131_072


@dataclass(frozen=True, slots=True)
class _Shape:
    """What distinguishes one preset from another; the rest is common to all."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    tie_word_embeddings: bool
    vocabulary_size: int | None
    """None: the corpus decides."""

    rope_factor: float | None
    """How far RoPE's long wavelengths are stretched; None: not at all."""


_SHAPES = {
    ModelPreset.TINY: _Shape(64, 128, 2, 4, 2, True, None, None),
    # As published with Llama 3.2 1B and Llama 3.1 8B.
    ModelPreset.LLAMA_1B: _Shape(2048, 8192, 16, 32, 8, True, 128_256, 32.0),
    ModelPreset.LLAMA_3_1_8B: _Shape(4096, 14_336, 32, 32, 8, False, 128_256, 8.0),
}


def build_model(
    settings: ModelSettings,
    *,
    vocabulary_size: int,
    mesh: DeviceMesh | None,
    device: torch.device,
) -> Any:
    """A ``LlamaForCausalLM`` on ``device``, sharded over ``mesh`` or, without one, whole.

    Parameters are fp32. A sharded model on a GPU computes in bf16 and reduces gradients in fp32.
    Every rank of the mesh calls it, and no rank waits for another.
    """
    # Half a second to two of imports, which only a process that trains has to pay.
    from transformers.models.llama.modeling_llama import LlamaForCausalLM

    config = llama_config(settings.preset, vocabulary_size=vocabulary_size)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    if settings.activation_checkpointing:
        _checkpoint_activations(model)
    if mesh is not None:
        _shard(model, mesh, device)
    model.to_empty(device=device)
    model.tie_weights()  # to_empty gives a tied parameter two memories where it is not sharded
    _rebuild_rotary_buffers(model, device)
    _initialize(model, settings.seed, std=config.initializer_range)
    return model.train()


def llama_config(preset: ModelPreset, *, vocabulary_size: int) -> Any:
    """The ``LlamaConfig`` of ``preset``; a corpus with too large a vocabulary is refused."""
    from transformers.models.llama.configuration_llama import LlamaConfig

    shape = _SHAPES[preset]
    if shape.vocabulary_size is not None and vocabulary_size > shape.vocabulary_size:
        raise ValueError(
            f"the corpus has a vocabulary of {vocabulary_size} tokens but model.preset "
            f"{preset.value!r} has {shape.vocabulary_size}; prepare the dataset with its tokenizer"
        )
    return LlamaConfig(
        vocab_size=shape.vocabulary_size or vocabulary_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_hidden_layers,
        num_attention_heads=shape.num_attention_heads,
        num_key_value_heads=shape.num_key_value_heads,
        tie_word_embeddings=shape.tie_word_embeddings,
        rope_parameters=_rope(shape.rope_factor),
        max_position_embeddings=MAX_POSITIONS,
        rms_norm_eps=1e-5,
        bos_token_id=None if shape.vocabulary_size is None else 128_000,
        eos_token_id=vocabulary_size - 1 if shape.vocabulary_size is None else 128_001,
        use_cache=False,
        attn_implementation="sdpa",
    )


def mixed_precision(device: torch.device) -> MixedPrecisionPolicy:
    """On a GPU matrices are multiplied in bf16 and gradients reduced in fp32; else all is fp32."""
    if device.type != "cuda":
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def shard_slices(parameter: Tensor) -> tuple[slice, ...]:
    """Which part of the full tensor this rank holds, found without asking another rank."""
    bounds = [(0, size) for size in parameter.shape]
    if isinstance(parameter, DTensor):
        mesh = parameter.device_mesh
        for axis, placement in enumerate(parameter.placements):
            if isinstance(placement, Shard):
                start, stop = bounds[placement.dim]
                length = -(-(stop - start) // mesh.size(axis))  # the last ranks may hold less
                first = min(start + length * mesh.get_local_rank(axis), stop)
                bounds[placement.dim] = (first, min(first + length, stop))
    return tuple(slice(start, stop) for start, stop in bounds)


def _rope(factor: float | None) -> dict[str, Any]:
    if factor is None:
        return {"rope_type": "default", "rope_theta": 500_000.0}
    return {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


def _checkpoint_activations(model: Any) -> None:
    # transformers renamed the method between 5.17 and 5.24, and warns about the old name.
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable()
    else:
        model.gradient_checkpointing_enable({"use_reentrant": False})


def _shard(model: Any, mesh: DeviceMesh, device: torch.device) -> None:
    policy = mixed_precision(device)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    # Embedding, final norm and head, tied or not, stay together in the root's group.
    fully_shard(model, mesh=mesh, mp_policy=policy)


def _rebuild_rotary_buffers(model: Any, device: torch.device) -> None:
    """The buffers are computed from the config, saved nowhere, and lost with the meta device."""
    with torch.device(device):
        model.model.rotary_emb = type(model.model.rotary_emb)(model.config)


@torch.no_grad()
def _initialize(model: nn.Module, seed: int, *, std: float) -> None:
    for name, parameter in model.named_parameters():
        shard = local_shard(parameter)
        if name.endswith("norm.weight"):
            shard.fill_(1.0)
        elif name.endswith("bias"):
            shard.zero_()
        else:
            full = _noise(parameter.shape, seed, name, device=shard.device)
            shard.copy_(full.mul_(std)[shard_slices(parameter)])


def _noise(shape: torch.Size, seed: int, name: str, *, device: torch.device) -> Tensor:
    """The same on every rank: each draws the full tensor and keeps its part of it."""
    generator = torch.Generator(device=device)
    generator.manual_seed(random.Random(f"{seed} {name}").getrandbits(63))
    return torch.randn(shape, generator=generator, device=device)
