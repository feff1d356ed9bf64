"""Published weights: what transformers saved is what is loaded, and each misfit is named."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.device_mesh import DeviceMesh
from transformers import LlamaForCausalLM

from trainer.model import build_model
from trainer.settings import ModelPreset, ModelSettings
from trainer.state import local_shard
from trainer.weights import WeightsError, load_weights

EMBEDDING = "model.embed_tokens.weight"


def build(seed: int, mesh: DeviceMesh | None = None) -> Any:
    settings = ModelSettings(preset=ModelPreset.TINY, seed=seed)
    return build_model(settings, vocabulary_size=257, mesh=mesh, device=torch.device("cpu"))


def save(folder: Path, **options: Any) -> Path:
    build(seed=7).save_pretrained(folder, **options)
    return folder


def change(folder: Path, name: str, tensor: torch.Tensor | None) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors.pop(name, None)
    if tensor is not None:
        tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors")


def assert_loaded(model: Any, folder: Path) -> None:
    expected = dict(LlamaForCausalLM.from_pretrained(folder).named_parameters())
    actual = dict(model.named_parameters())
    assert actual.keys() == expected.keys()
    for name, parameter in expected.items():
        assert torch.equal(local_shard(actual[name]), parameter), name


def test_one_file_is_loaded_as_transformers_loads_it(tmp_path: Path) -> None:
    model = build(seed=0)
    load_weights(model, str(save(tmp_path)))
    assert_loaded(model, tmp_path)


def test_several_files_are_loaded_into_a_sharded_model(tmp_path: Path, mesh: DeviceMesh) -> None:
    save(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    model = build(seed=0, mesh=mesh)
    load_weights(model, str(tmp_path))
    assert_loaded(model, tmp_path)


def test_bf16_weights_become_fp32_parameters(tmp_path: Path) -> None:
    save(tmp_path)
    change(tmp_path, "model.norm.weight", torch.full((64,), 1.5, dtype=torch.bfloat16))
    model = build(seed=0)
    load_weights(model, str(tmp_path))
    assert model.model.norm.weight.dtype == torch.float32
    assert torch.equal(model.model.norm.weight, torch.full((64,), 1.5))


def test_a_head_saved_beside_the_embedding_it_is_tied_to_is_passed_over(tmp_path: Path) -> None:
    save(tmp_path)
    change(tmp_path, "lm_head.weight", torch.zeros(257, 64))
    model = build(seed=0)
    load_weights(model, str(tmp_path))
    assert torch.equal(model.lm_head.weight, build(seed=7).lm_head.weight)


def test_a_missing_tensor_is_refused_by_name(tmp_path: Path) -> None:
    save(tmp_path)
    change(tmp_path, EMBEDDING, None)
    with pytest.raises(WeightsError, match=f"{EMBEDDING}' is missing"):
        load_weights(build(seed=0), str(tmp_path))


def test_a_tensor_of_another_shape_is_refused_with_both_shapes(tmp_path: Path) -> None:
    save(tmp_path)
    change(tmp_path, EMBEDDING, torch.zeros(300, 64))
    message = rf"{EMBEDDING}' has shape \(300, 64\) but the model's is \(257, 64\)"
    with pytest.raises(WeightsError, match=message):
        load_weights(build(seed=0), str(tmp_path))


def test_a_tensor_without_a_place_is_refused_by_name(tmp_path: Path) -> None:
    save(tmp_path)
    change(tmp_path, "model.layers.2.mlp.up_proj.weight", torch.zeros(128, 64))
    with pytest.raises(WeightsError, match=r"layers.2.mlp.up_proj.weight' has no place"):
        load_weights(build(seed=0), str(tmp_path))


def test_a_truncated_file_is_refused_by_name(tmp_path: Path) -> None:
    path = save(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(WeightsError, match=r"model\.safetensors: cannot be read"):
        load_weights(build(seed=0), str(tmp_path))


def test_an_index_without_a_map_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}}))
    with pytest.raises(WeightsError, match="holds no weight_map"):
        load_weights(build(seed=0), str(tmp_path))


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="has neither"):
        load_weights(build(seed=0), str(tmp_path))


def test_a_path_that_does_not_exist_is_refused_without_a_download(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="neither a folder here nor a hub id"):
        load_weights(build(seed=0), str(tmp_path / "weights"))
