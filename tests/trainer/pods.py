"""One pod of two ranks under ft_launcher, as the chart starts it, with a standby or without."""

import importlib.metadata
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.trainer.ranks import trainer_settings
from trainer.events import Event, read_events
from trainer.timeouts import derive_timeouts
from workloads.launcher import RENDEZVOUS_PORT, SETTINGS_PATH, container_command

ROOT = Path(__file__).parents[2]

# The first workers, too, are forked then.
AFTER_THE_STANDBY = 'while [ ! -S "$STEADFAST_STANDBY" ]; do sleep 0.05; done; exec '


def run_pod(
    folder: Path, *, max_steps: int, standby: bool, wait: bool = False, **groups: dict[str, Any]
) -> list[Event]:
    """Its events, once it has ended well; ``wait`` has the launcher wait for the standby.

    The log is ``folder``'s ``log``; ``groups`` are settings.
    """
    settings = trainer_settings(folder / "run", **groups)
    settings = settings.model_copy(update={"max_steps": max_steps})
    file = folder / "settings.json"
    file.write_text(settings.model_dump_json())
    version = importlib.metadata.version("nvidia-resiliency-ext")
    command = container_command(
        settings,
        nvrx_version=version,
        num_nodes=1,
        workers_per_node=2,
        rendezvous_host="127.0.0.1",
        rendezvous_id="pod",
        timeouts=derive_timeouts(settings.timeouts, device="cpu"),
    )
    here = {SETTINGS_PATH: str(file), "$(POD_IP)": "127.0.0.1", "python": sys.executable}
    port = _free_port()
    words = [here.get(word, word.replace("$(POD_IP)", "127.0.0.1")) for word in command]
    words = [word.replace(f":{RENDEZVOUS_PORT}", f":{port}") for word in words]
    if wait:
        launcher = words.index("ft_launcher")
        words[launcher:] = ["sh", "-c", AFTER_THE_STANDBY + shlex.join(words[launcher:])]
    # A short path of its own, as a pod has: Unix sockets are made there.
    with tempfile.TemporaryDirectory() as temporary, (folder / "log").open("wb") as log:
        done = subprocess.run(
            words,
            cwd=ROOT,
            env={**_environment(folder, standby=standby), "TMPDIR": temporary},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
        assert list(Path(temporary).glob("steadfast-*")) == []
    assert done.returncode == 0, (folder / "log").read_text()[-3000:]
    return read_events(folder / "run")


def _environment(folder: Path, *, standby: bool) -> dict[str, str]:
    values = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "error",
        "STEADFAST_EXIT_FILE": str(folder / "exit"),
    }
    return values if standby else {**values, "STEADFAST_STANDBY": ""}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
