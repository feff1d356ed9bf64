"""Turns a checkpoint into Hugging Face weights: ``python -m trainer.export CHECKPOINT --out DIR``.

Needs neither a GPU nor a process group, and memory for a rank's part of the largest
tensor. The checksums are verified first, and ``DIR`` appears whole or not at all.
Exit 0 if it was written, 1 if checkpoint or disk prevented it, 2 if the arguments are
wrong, 130 if interrupted. Not covered: the tokenizer, which is not in a checkpoint.
"""

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer import exit_codes
from trainer.checkpoint import layout, survey
from trainer.checkpoint.layout import Checkpoint, sync_folder
from trainer.checkpoint.survey import NoCheckpoints, NothingValid, choose, gib

if TYPE_CHECKING:
    import torch


_EMBEDDING = "model.embed_tokens.weight"
_PREFIX = "model."
"""What ``TrainState`` puts before the name of a parameter."""


class CannotExport(ValueError):
    """The checkpoint or the disk does not allow it; one line with the remedy."""


class WrongArguments(ValueError):
    """What was asked for makes no sense; one line with the remedy."""


def main(argv: Sequence[str] | None = None) -> int:
    """Export, and say where to; what went wrong is one line on stderr."""
    arguments = _parse(argv)
    try:
        refuse_occupied(arguments.out)
        checkpoint = choose(arguments.checkpoint, say=_say)
        written = export(checkpoint, arguments.out, arguments.dtype)
    except (WrongArguments, NoCheckpoints) as error:
        _say(str(error))
        return 2
    except (CannotExport, NothingValid) as error:
        _say(str(error))
        return 1
    except OSError as error:
        where = error.filename or arguments.out
        _say(f"{where}: {error.strerror or error}; nothing was exported")
        return 1
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    record = checkpoint.record
    print(
        f"Exported step {record.step} (attempt {record.attempt}) to {arguments.out}: "
        f"{gib(written)} GiB, {arguments.dtype}"
    )
    return 0


def refuse_occupied(out: Path) -> None:
    """Raise WrongArguments unless ``out`` can become a new folder."""
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise WrongArguments(f"--out {out}: exists and is no empty folder; give a new one")
    if out.is_mount():  # which no folder can be renamed to
        raise WrongArguments(f"--out {out}: is a mount point; give a new folder in it")


def export(checkpoint: Checkpoint, out: Path, dtype_name: str) -> int:
    """Write the model of ``checkpoint`` to the new folder ``out``; return the bytes of weights.

    Raises:
        CannotExport: the checkpoint is not of a model that this version knows, or is too large.
        OSError: the storage fails.
    """
    import torch

    from trainer import weights_writer
    from trainer.checkpoint.stored_tensors import UnreadableTensors, stored_tensors
    from trainer.weights_writer import plan_files, size_bytes, write_weights

    dtype: torch.dtype = getattr(torch, dtype_name)
    try:
        stored = stored_tensors(checkpoint)
        config = model_config(checkpoint, stored.shapes(), dtype)
        shapes = _parameters(config)
        _compare(checkpoint, stored.shapes(), shapes)
        size = size_bytes(shapes, dtype)
        out.parent.mkdir(parents=True, exist_ok=True)
        _refuse_too_little_space(out.parent, size)
        files = plan_files(shapes, dtype, limit_bytes=weights_writer.LARGEST_FILE_BYTES)
        with _whole_or_not_at_all(out) as folder:
            write_weights(
                folder,
                files,
                shapes,
                dtype,
                lambda name: stored.pieces(_PREFIX + name),
                begin=_announce,
            )
            _write_configs(folder, config)
    except UnreadableTensors as error:
        raise CannotExport(str(error)) from error
    return size


@contextmanager
def _whole_or_not_at_all(out: Path) -> Iterator[Path]:
    """A folder to fill, which becomes ``out`` once all of it is durable."""
    partial = out.with_name(f".{out.name}.partial-{os.getpid()}")
    partial.mkdir()
    try:
        yield partial
        sync_folder(partial)
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    sync_folder(out.parent)


def model_config(
    checkpoint: Checkpoint, stored: dict[str, tuple[int, ...]], dtype: "torch.dtype"
) -> Any:
    """The ``LlamaConfig`` of the model that was trained, from what the checkpoint says of it."""
    from trainer.model import llama_config
    from trainer.settings import ModelPreset

    settings = checkpoint.record.fingerprint.get("model", {})
    embedding = stored.get(_PREFIX + _EMBEDDING)
    try:
        preset = ModelPreset(settings.get("preset"))
        config = llama_config(preset, vocabulary_size=embedding[0] if embedding else 0)
    except ValueError as error:
        raise CannotExport(
            f"{checkpoint.path}: {error}; export with the version that trained it"
        ) from error
    config.architectures = ["LlamaForCausalLM"]
    config.use_cache = True  # whoever loads it generates
    config.dtype = dtype
    return config


def _parameters(config: Any) -> dict[str, tuple[int, ...]]:
    """Names and shapes as transformers has them, a tied tensor once; takes no memory."""
    import torch
    from transformers.models.llama.modeling_llama import LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def _compare(
    checkpoint: Checkpoint,
    stored: dict[str, tuple[int, ...]],
    wanted: dict[str, tuple[int, ...]],
) -> None:
    held = {
        name.removeprefix(_PREFIX): shape
        for name, shape in stored.items()
        if name.startswith(_PREFIX)
    }
    for name in sorted(held.keys() | wanted.keys()):
        if held.get(name) != wanted.get(name):
            raise CannotExport(
                f"{checkpoint.path}: {name} has shape {held.get(name, 'none')} where its model has "
                f"{wanted.get(name, 'none')}; export with the version that trained it"
            )


def _refuse_too_little_space(folder: Path, size: int) -> None:
    if (free := layout.free_bytes(folder)) < size:
        raise CannotExport(
            f"{folder}: has {gib(free)} GiB free and the weights take {gib(size)} GiB; "
            "free space or give another --out"
        )


def _write_configs(folder: Path, config: Any) -> None:
    from transformers import GenerationConfig

    config.save_pretrained(folder)
    GenerationConfig.from_model_config(config).save_pretrained(folder)


def _announce(name: str, size: int) -> None:
    if size >= survey.LONG_BYTES:
        _say(f"writing {name} ({gib(size)} GiB)")


def _say(line: str) -> None:
    print(f"trainer.export: {line}", file=sys.stderr, flush=True)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trainer.export",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Write a checkpoint's model as Hugging Face safetensors, which\n"
        "AutoModelForCausalLM.from_pretrained(DIR) loads. Needs no GPU.",
        epilog="examples:\n"
        "  python -m trainer.export /fsx/runs/llama --out llama-tuned\n"
        "  python -m trainer.export \\\n"
        "    /fsx/runs/llama/checkpoints/step-00002000-attempt-0001 \\\n"
        "    --out llama-tuned --dtype bfloat16\n\n"
        "exit code: 0 written; 1 the checkpoint is damaged or the disk failed;\n"
        "2 wrong arguments; 130 interrupted. The tokenizer is not part of it.",
    )
    parser.add_argument(
        "checkpoint",
        type=Path,
        metavar="CHECKPOINT",
        help="a checkpoint's folder, or a run's, whose newest valid checkpoint is taken",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the new folder")
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="of the weights (default: float32, exactly what was trained)",
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    # So that a pod that is told to stop leaves no partial folder behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
