"""Exported weights: transformers loads what was trained, bit for bit; each misfit is one line."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, GenerationConfig

from tests.trainer.checkpoints import settings_for
from tests.trainer.ranks import Crew, background_worker
from tests.trainer.stored import flip_a_bit, parameters, store
from trainer import weights_writer
from trainer.checkpoint.checkpointer import Checkpointer
from trainer.checkpoint.layout import ShardFormat
from trainer.checkpoint.modes import writer_for
from trainer.data import Batches, open_corpus
from trainer.distributed import Job
from trainer.events import EventLog
from trainer.export import main
from trainer.model import build_model
from trainer.optimization import Optimization, adamw
from trainer.settings import TrainerSettings
from trainer.state import TrainState
from trainer.weights_writer import plan_files

EMBEDDING = "model.embed_tokens.weight"
TOKENS = torch.arange(3, 35).reshape(2, 16)


def train_and_save(job: Job, settings: TrainerSettings, num_steps: int) -> Any:
    """Train some steps on these ranks, save the last; the logits that the model then has."""
    torch.set_num_threads(1)
    corpus = open_corpus(settings.data)
    model = build_model(
        settings.model,
        vocabulary_size=corpus.vocabulary_size,
        mesh=job.mesh,
        device=job.device,
    )
    state = TrainState(model, adamw(model, settings.optimizer))
    steps = Optimization(settings, job=job, state=state, end_of_text=corpus.end_of_text)
    batches = Batches(corpus, settings.data)
    for step in range(1, num_steps + 1):
        steps.backward(batches.batch(step, job.rank, job.world_size)[1])
        steps.clip()
        steps.update(step)
    with closing(EventLog(settings.run_directory, rank=job.rank)) as events:
        events.attempt = 1
        checkpointer = Checkpointer(
            settings,
            job=job,
            state=state,
            writer=writer_for(settings, job, background_worker()),
            events=events,
            report_progress=lambda: None,
        )
        checkpointer.save(num_steps)
        checkpointer.wait()
    with torch.no_grad():
        return model(input_ids=TOKENS).logits.numpy()


def exported(checkpoint: Path, out: Path, *options: str) -> Path:
    assert main([str(checkpoint), "--out", str(out), *options]) == 0
    return out


def loaded(folder: Path, **options: Any) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, **options)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """The order in which a matrix product adds depends on the number of threads."""
    number = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(number)


@pytest.mark.distributed
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("mode", ["sync", "async", "async_local_shards"])
def test_the_exported_model_has_the_logits_of_the_trained_one(
    crew: Crew, tmp_path: Path, mode: str
) -> None:
    settings = settings_for(tmp_path / "run", mode)
    settings.run_directory.mkdir()
    trained, _ = crew.call(train_and_save, settings, 3)
    assert main([str(settings.run_directory), "--out", str(tmp_path / "out")]) == 0
    model = loaded(tmp_path / "out")
    assert model.dtype == torch.float32
    with torch.no_grad():
        logits = model(input_ids=TOKENS).logits
    assert torch.equal(logits, torch.from_numpy(trained))
    untrained = loaded(exported(store(tmp_path / "untrained", parameters()), tmp_path / "other"))
    with torch.no_grad():
        assert not torch.equal(untrained(input_ids=TOKENS).logits, logits)


@pytest.mark.parametrize("shard_format", ShardFormat)
def test_memory_is_for_a_piece_and_not_for_a_tensor(
    tmp_path: Path, shard_format: ShardFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported(store(tmp_path / "small", parameters()), tmp_path / "warm")  # imports need memory too
    tensors = parameters(vocabulary_size=500_000)  # 122 MiB, in 16 pieces of 7.6 MiB
    checkpoint = store(tmp_path / "run", tensors, world_size=16, shard_format=shard_format)
    held: list[int] = []
    write_all = weights_writer._write_all

    def measured(descriptor: int, content: object) -> None:
        held.append(_anonymous_bytes())
        write_all(descriptor, content)

    monkeypatch.setattr(weights_writer, "_write_all", measured)
    before = _anonymous_bytes()
    exported(checkpoint, tmp_path / "out", "--dtype", "bfloat16")
    assert len(held) > 16
    # The piece, and the same in bfloat16; never the piece before.
    assert max(held) - before < 14 << 20


def _anonymous_bytes() -> int:
    """Memory of this process that no file backs, so that nothing can take it back."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no RssAnon")


def test_a_large_file_is_announced_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = store(tmp_path / "run", parameters())
    monkeypatch.setattr("trainer.checkpoint.survey.LONG_BYTES", 300_000)
    exported(checkpoint, tmp_path / "out")
    assert capsys.readouterr().err == "trainer.export: writing model.safetensors (0.00 GiB)\n"


def test_files_are_filled_in_order_up_to_their_limit() -> None:
    shapes = {"a": (10,), "b": (15,), "c": (1,), "d": (50,), "e": (5,)}
    files = plan_files(shapes, torch.float32, limit_bytes=100)
    assert [file.tensors for file in files] == [("a", "b"), ("c",), ("d",), ("e",)]
    assert files[3].name == "model-00004-of-00004.safetensors"


def test_a_tied_head_is_written_once_and_loaded_tied(tmp_path: Path) -> None:
    out = exported(store(tmp_path / "run", parameters()), tmp_path / "out")
    with safe_open(out / "model.safetensors", framework="pt") as file:
        names = list(file.keys())
    assert EMBEDDING in names
    assert "lm_head.weight" not in names
    model = loaded(out)
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_bfloat16_weights_are_the_rounded_ones(tmp_path: Path) -> None:
    tensors = parameters()
    checkpoint = store(tmp_path / "run", tensors)
    model = loaded(exported(checkpoint, tmp_path / "out", "--dtype", "bfloat16"))
    assert model.dtype == torch.bfloat16
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"
    for name, value in model.named_parameters():
        assert torch.equal(value, tensors[f"model.{name}"].to(torch.bfloat16)), name


def test_several_files_and_their_index_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = parameters()
    monkeypatch.setattr(weights_writer, "LARGEST_FILE_BYTES", 100_000)
    out = exported(store(tmp_path / "run", tensors), tmp_path / "out")
    files = sorted(path.name for path in out.glob("*.safetensors"))
    assert len(files) > 1
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(files)
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in tensors.values())
    for name, value in loaded(out).named_parameters():
        assert torch.equal(value, tensors[f"model.{name}"]), name


def test_the_exported_model_generates(tmp_path: Path) -> None:
    out = exported(store(tmp_path / "run", parameters()), tmp_path / "out")
    assert GenerationConfig.from_pretrained(out).eos_token_id == 256
    tokens = loaded(out).generate(TOKENS[:1], max_new_tokens=3, do_sample=False, pad_token_id=256)
    assert tokens.shape[1] > 16


def test_of_a_run_the_newest_valid_checkpoint_is_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store(tmp_path / "run", parameters(), step=10)
    newest = store(tmp_path / "run", parameters(), step=20)
    flip_a_bit(newest / "__1_0.distcp")
    exported(tmp_path / "run", tmp_path / "out")
    out, err = capsys.readouterr()
    assert out.startswith("Exported step 10 (attempt 1)")
    assert "passed over step-00000020-attempt-0001: __1_0.distcp has a wrong checksum" in err


def test_of_a_run_no_other_run_s_checkpoint_is_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store(tmp_path / "run", parameters(), step=10)
    foreign = store(tmp_path / "other", parameters(), step=20)
    copy = shutil.copytree(foreign, tmp_path / "run" / "checkpoints" / foreign.name)
    exported(tmp_path / "run", tmp_path / "out")
    out, err = capsys.readouterr()
    assert out.startswith("Exported step 10 (attempt 1)")
    assert "it is of run 'other'" in err
    exported(copy, tmp_path / "asked-for")


def test_an_empty_out_is_filled_and_missing_parents_are_made(tmp_path: Path) -> None:
    checkpoint = store(tmp_path / "run", parameters())
    empty = tmp_path / "empty"
    empty.mkdir()
    for out in (empty, tmp_path / "a" / "b"):
        loaded(exported(checkpoint, out))
