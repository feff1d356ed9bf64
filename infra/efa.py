"""Which network interfaces an instance type is launched with.

EC2 attaches EFA devices only at launch, so this list is the whole configuration
of the fabric. Card and device are the two indexes of a slot: no slot is used
twice, and slot (0, 0) always carries IP, which an ``efa-only`` device cannot.
"""

from dataclasses import dataclass
from typing import Literal

from infra.hardware import InstanceType

Layout = Literal["ena-primary", "efa-primary"]


@dataclass(frozen=True, slots=True)
class Interface:
    card: int
    device: int
    kind: Literal["interface", "efa", "efa-only"]
    """IP alone (ENA), IP and RDMA, RDMA alone. An ``efa-only`` device takes no address."""


def plan_interfaces(hardware: InstanceType, layout: Layout) -> tuple[Interface, ...]:
    """One EFA device on every card that takes one, and one interface that carries IP.

    ``ena-primary`` is the layout of today's EC2 guide: a plain interface carries
    IP and every EFA device is RDMA alone. ``efa-primary`` is the older one: the
    device on card 0 carries both.

    Raises:
        ValueError: ``efa-primary`` on a type whose card 0 takes no EFA device.
    """
    cards = range(hardware.first_efa_card, hardware.first_efa_card + hardware.num_efa)
    ip = Interface(card=0, device=0, kind="interface")
    if not cards:
        return (ip,)
    match layout:
        case "ena-primary":
            return (ip, *(Interface(card, _device_beside(ip, card), "efa-only") for card in cards))
        case "efa-primary":
            if 0 not in cards:
                raise ValueError(
                    f"efa_layout 'efa-primary' cannot be had on {hardware.name}, whose card 0 "
                    "takes no EFA device; use 'ena-primary'"
                )
            others = (Interface(card, 1, "efa-only") for card in cards[1:])
            return (Interface(card=0, device=0, kind="efa"), *others)


def _device_beside(ip: Interface, card: int) -> int:
    """The first free device index of ``card``; index 2 does not exist on the large types."""
    return 1 if card == ip.card else 0
