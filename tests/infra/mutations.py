"""Ways to change a deployment file: what a user may mean, and what nobody can.

Each takes the file's values, changes them in place, and chooses by ``random`` alone.
"""

import copy
from collections.abc import Callable
from random import Random
from typing import Any

from infra.hardware import CATALOG

Values = dict[str, Any]
Mutation = Callable[[Values, Random], None]

ZONES = {
    "us-east-1": ("us-east-1a", "us-east-1d"),
    "us-west-2": ("us-west-2c", "us-west-2a"),
    "eu-north-1": ("eu-north-1b", "eu-north-1c"),
}
CAPACITIES: list[Values] = [
    {"kind": "on-demand"},
    {"kind": "on-demand", "placement_group": False},
    {"kind": "reservation", "reservation_id": "cr-0123456789abcdef0"},
    {"kind": "reservation", "reservation_id": "cr-0123456789abcdef0", "placement_group": "close"},
    {
        "kind": "reservation",
        "reservation_group_arn": "arn:aws:resource-groups:us-east-1:111122223333:group/h100",
    },
    {
        "kind": "capacity-block",
        "reservation_id": "cr-0123456789abcdef0",
        "ends_at": "2027-03-01T11:30:00Z",
    },
    {
        "kind": "capacity-block",
        "reservation_id": "cr-0123456789abcdef0",
        "starts_at": "2027-02-26T11:30:00+02:00",
        "ends_at": "2027-03-01T11:30:00Z",
    },
]
SYSTEM_TYPES = ("m7i.xlarge", "m6i.large", "r8a.4xlarge")
"""What system nodes may be meant to be, the default first."""

NO_TYPES = ("zz9.huge", "m7i.huge", "m7g.xlarge", "c5.8xlarge", "t3.large", "p5", "xlarge", "m7i.")
STORAGE: list[Values] = [
    {"size_gib": 1200},
    {"size_gib": 2400},
    {"size_gib": 48000, "claim": "shared-data"},
    {"deployment_type": "PERSISTENT_2", "throughput_mbps_per_tib": 250, "size_gib": 4800},
    {"size_gib": 2400, "data_repository": "s3://our-datasets/tokens"},
    {
        "deployment_type": "PERSISTENT_2",
        "throughput_mbps_per_tib": 1000,
        "data_repository": "s3://our-datasets",
    },
]
NETWORKS: list[Values] = [
    {},
    {"interface_endpoints": True},
    {"interface_endpoints": False},
    {"vpc_cidr": "10.64.0.0/17"},
    {"vpc_cidr": "192.168.0.0/18", "service_cidr": "10.100.0.0/16"},
    {"public_endpoint_cidrs": ["203.0.113.0/24", "198.51.100.7/32"]},
]
ODD_VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    10**30,
    float("nan"),
    float("inf"),
    "",
    " ",
    "x" * 300,
    "latest",
    "p5.48xlarge ",
    "0",
    "${AWS::Region}",
    "{{resolve:ssm:/x}}",
    "a\nb",
    "\u00fc\u4e2d",
    [],
    {},
    [[]],
    ["us-east-1a"],
    {"kind": "spot"},
    {"a": {"b": 1}},
]


def _group(values: Values, random: Random) -> Values:
    group: Values = random.choice(list(values["node_groups"].values()))
    return group


def set_instance_type(values: Values, random: Random) -> None:
    _group(values, random)["instance_type"] = random.choice(list(CATALOG))


def set_counts(values: Values, random: Random) -> None:
    group = _group(values, random)
    group["num_nodes"] = random.choice([1, 2, 4, 8, 64, 1000])
    group["spare_nodes"] = random.choice([0, 1, 3])


def set_nodes_of_a_run(values: Values, random: Random) -> None:
    random.choice(list(values["runs"].values()))["num_nodes"] = random.choice([1, 2, 4])


def set_capacity(values: Values, random: Random) -> None:
    _group(values, random)["capacity"] = copy.deepcopy(random.choice(CAPACITIES))


def set_node_details(values: Values, random: Random) -> None:
    key, value = random.choice(
        [
            ("efa_layout", "ena-primary"),
            ("efa_layout", "efa-primary"),
            ("root_volume_gib", random.choice([20, 100, 2000, 100_000])),
            ("ami_id", "ami-0123456789abcdef0"),
        ]
    )
    _group(values, random)[key] = value


def add_group(values: Values, random: Random) -> None:
    """A second group, and a run that says on which it trains."""
    name = random.choice(["spare", "other-type", "a"])
    first = next(iter(values["node_groups"]))
    values["node_groups"][name] = copy.deepcopy(values["node_groups"][first])
    for run in values["runs"].values():
        run["node_group"] = random.choice([first, name])


def set_storage(values: Values, random: Random) -> None:
    values["storage"] = copy.deepcopy(random.choice(STORAGE))


def set_network(values: Values, random: Random) -> None:
    values["network"] = copy.deepcopy(random.choice(NETWORKS))


def set_region(values: Values, random: Random) -> None:
    values["region"] = random.choice(list(ZONES))
    values["training_zone"], values["second_zone"] = ZONES[values["region"]]


def set_top_level(values: Values, random: Random) -> None:
    key, value = random.choice(
        [
            ("name", random.choice(["a", "steadfast-of-the-research-team", "t" * 40])),
            ("account", "999988887777"),
            ("kubernetes_version", random.choice(["1.34", "1.35", "1.36"])),
            ("lifetime", random.choice(["ephemeral", "durable"])),
            ("namespace", random.choice(["ml", "research-training"])),
            ("kubectl_provider", random.choice([True, False])),
            ("admin_arns", ["arn:aws:iam::111122223333:role/platform"]),
            ("submitter_arns", ["arn:aws:iam::111122223333:user/ann"]),
            ("system_nodes", {"instance_type": random.choice(SYSTEM_TYPES), "num_nodes": 3}),
        ]
    )
    values[key] = value


def set_images(values: Values, random: Random) -> None:
    values["image"] = {
        "repository": random.choice(["trainer", "team/steadfast/trainer"]),
        "tag": random.choice(["1.0.0", "sha-0123abc", "2026_11"]),
        "nvrx_version": random.choice(["0.4.1", "0.6.0", "0.7.0"]),
    }


def set_node_repair(values: Values, random: Random) -> None:
    if random.random() < 0.3:
        values.pop("node_repair", None)
        return
    values["node_repair"] = {
        "image": {"repository": "ours/node-repair", "tag": "3"},
        "mode": random.choice(["dry-run", "act"]),
        "max_at_once": random.choice([1, 4]),
        "max_per_hour": random.choice([1, 20]),
    }


def _somewhere(values: Values, random: Random) -> tuple[Values, str]:
    """A mapping of the file and one of its keys, at any depth."""
    mapping = values
    while True:
        key = random.choice(list(mapping))
        inner = mapping[key]
        if not (isinstance(inner, dict) and inner) or random.random() < 0.2:
            return mapping, key
        mapping = inner


def delete_key(values: Values, random: Random) -> None:
    mapping, key = _somewhere(values, random)
    del mapping[key]


def misspell_key(values: Values, random: Random) -> None:
    mapping, key = _somewhere(values, random)
    mapping[random.choice([f"{key}s", key[:-1] or "x", key.upper(), "", " "])] = mapping.pop(key)


def set_odd_value(values: Values, random: Random) -> None:
    mapping, key = _somewhere(values, random)
    mapping[key] = copy.deepcopy(random.choice(ODD_VALUES))


def set_a_type_that_is_none(values: Values, random: Random) -> None:
    nodes = random.choice([_group(values, random), values.setdefault("system_nodes", {})])
    nodes["instance_type"] = random.choice(NO_TYPES)


def swap_values(values: Values, random: Random) -> None:
    """As a paste into the wrong line does."""
    (one, first), (other, second) = _somewhere(values, random), _somewhere(values, random)
    taken = copy.deepcopy(one[first])
    one[first] = copy.deepcopy(other[second])
    other[second] = taken


MEANT: tuple[Mutation, ...] = (
    set_instance_type,
    set_counts,
    set_nodes_of_a_run,
    set_capacity,
    set_node_details,
    add_group,
    set_storage,
    set_network,
    set_region,
    set_top_level,
    set_images,
    set_node_repair,
)
NOT_MEANT: tuple[Mutation, ...] = (
    delete_key,
    misspell_key,
    set_odd_value,
    set_a_type_that_is_none,
    swap_values,
)
