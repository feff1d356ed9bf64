"""``python -m trainer.standby ADDRESS PARENT``: imports all, then forks until PARENT ends."""

import sys

from trainer.parent_death import die_with
from trainer.standby.process import take_over


def main(address: str, parent: int) -> int:
    die_with(parent)
    from trainer.standby.readiness import import_everything, why_not_forkable
    from trainer.standby.server import Standby

    # Before the imports: whoever comes meanwhile waits for them, which began before its own would.
    standby = Standby(address, why_not_forkable)
    import_everything()
    if reason := why_not_forkable():
        sys.stderr.write(f"steadfast: no standby process: {reason}\n")
        return 0
    forked = standby.serve()
    take_over(forked.order, forked.descriptors)

    from trainer import train

    # Processes that the worker spawns import its main module, by this one's name.
    sys.modules["__main__"] = train
    return train.main()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
