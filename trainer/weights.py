"""Starts a model from published weights: safetensors in a folder or of a hub id.

One tensor at a time is read, and of that only this rank's shard. Not covered:
a load that fails halfway leaves a model that must not be trained.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from trainer.model import shard_slices
from trainer.state import local_shard

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"


class WeightsError(ValueError):
    """Weights that do not fit the model or cannot be read; names source, tensor and remedy."""


def load_weights(model: nn.Module, source: str) -> None:
    """Copy the weights of ``source`` into ``model``; no rank waits for another.

    ``source`` is a local folder or, where no such folder exists, a hub id to download.

    Raises:
        WeightsError: a tensor is missing, unknown or of another shape, or a file is unreadable.
    """
    folder = _folder_of(source)
    parameters = dict(model.named_parameters())
    # A tied head has no parameter of its own, and some files carry it nevertheless.
    aliases = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    absent = set(parameters)
    for name, stored in _tensors(folder):
        if name in parameters:
            _copy(parameters[name], stored, f"{folder}: tensor {name!r}")
            absent.discard(name)
        elif name not in aliases and not name.endswith("rotary_emb.inv_freq"):
            raise WeightsError(
                f"{folder}: tensor {name!r} has no place in this model; "
                "take the model.preset that the weights were made for"
            )
    if absent:
        raise WeightsError(
            f"{folder}: tensor {min(absent)!r} is missing ({len(absent)} in all); "
            "take complete weights of the chosen model.preset"
        )


def _folder_of(source: str) -> Path:
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, allow_patterns=["*.safetensors", INDEX_NAME]))
    except (OSError, ValueError) as error:
        raise WeightsError(
            f"model.weights {source!r} is neither a folder here nor a hub id that can be "
            f"downloaded ({type(error).__name__}); give the path of a folder with safetensors"
        ) from error


def _tensors(folder: Path) -> Iterator[tuple[str, Any]]:
    """Name and lazily read slice of every tensor, file by file."""
    for path in _files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118  not a mapping
                    yield name, file.get_slice(name)
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"{path}: cannot be read ({error}); fetch it again") from error


def _files(folder: Path) -> list[Path]:
    if (folder / INDEX_NAME).exists():
        return [folder / name for name in sorted(set(_weight_map(folder / INDEX_NAME).values()))]
    if (folder / SINGLE_NAME).exists():
        return [folder / SINGLE_NAME]
    raise WeightsError(f"{folder}: has neither {INDEX_NAME} nor {SINGLE_NAME}; convert the weights")


def _weight_map(path: Path) -> Mapping[str, str]:
    try:
        weight_map = json.loads(path.read_bytes())["weight_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{path}: holds no weight_map ({error}); fetch it again") from error
    return dict(weight_map)


@torch.no_grad()
def _copy(parameter: Tensor, stored: Any, described: str) -> None:
    if tuple(stored.get_shape()) != tuple(parameter.shape):
        raise WeightsError(
            f"{described} has shape {tuple(stored.get_shape())} but the model's is "
            f"{tuple(parameter.shape)}; take the model.preset that the weights were made for"
        )
    shard = local_shard(parameter)
    if shard.numel():  # a rank may hold nothing of a small tensor
        shard.copy_(stored[shard_slices(parameter)])
