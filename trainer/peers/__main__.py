"""``python -m trainer.peers FOLDER PARENT PODS RANKS RATE``: a pod's courier until PARENT ends.

PODS and RANKS are descriptors of the sockets that PARENT listens on, so that a courier that
is started anew is reached as the one before it was. RATE is in bytes a second.
"""

import os
import socket
import sys
from pathlib import Path

from trainer.parent_death import die_with

_NICENESS = 10
"""Behind the ranks, where processors are few."""


def main(folder: Path, parent: int, pods: int, ranks: int, bytes_per_second: int) -> None:
    die_with(parent)
    from trainer.peers.courier import Courier
    from trainer.peers.notes import Address

    os.nice(_NICENESS)
    courier = Courier(folder, Address.read(folder), bytes_per_second)
    courier.serve(socket.socket(fileno=pods), socket.socket(fileno=ranks))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(word) for word in sys.argv[2:]))
