"""How many buffers fit is counted in what the pod really has, and a smaller number is explained."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.snapshots.sizes import BufferPlan, Room, buffers_wanted, plan_buffers, room_in

GIB = 1 << 30
TIB = 1 << 40


def plan(room: Room, *, wanted: int = 2) -> BufferPlan:
    """For 8 ranks: 2 buffers of 18 GiB are 288 GiB, and 320 with what is left free; 3 are 480."""
    return plan_buffers(18 * GIB, wanted=wanted, ranks_here=8, room=room)


def test_what_is_wanted_is_planned_where_both_memories_have_room() -> None:
    assert plan(Room(folder_bytes=800 * GIB, memory_bytes=321 * GIB)) == BufferPlan(2, "")
    room = Room(folder_bytes=800 * GIB, memory_bytes=481 * GIB)
    assert plan(room, wanted=3) == BufferPlan(3, "")


def test_saves_from_snapshots_want_a_third_buffer() -> None:
    assert buffers_wanted(saves_from_them=False) == 2
    assert buffers_wanted(saves_from_them=True) == 3


def test_without_a_limit_of_the_pod_only_the_folder_counts() -> None:
    assert plan(Room(folder_bytes=321 * GIB, memory_bytes=None)).num_buffers == 2


@pytest.mark.parametrize(
    ("room", "scarce"),
    [
        (Room(folder_bytes=800 * GIB, memory_bytes=300 * GIB), "the pod's memory"),
        (Room(folder_bytes=300 * GIB, memory_bytes=TIB), "/dev/shm"),
    ],
)
def test_a_pod_with_less_memory_has_none_and_says_how_much_it_takes(
    room: Room, scarce: str
) -> None:
    assert plan(room) == BufferPlan(
        0,
        "snapshots in memory: none can be taken; 2 buffers of 18.0 GiB for each of 8 ranks take "
        f"320.0 GiB, and {scarce} has 300.0 GiB; raise its limit, or shard the state over more "
        "ranks",
    )


def test_a_pod_with_room_for_two_of_three_has_two_and_says_what_that_costs() -> None:
    planned = plan(Room(folder_bytes=321 * GIB, memory_bytes=None), wanted=3)
    assert planned.num_buffers == 2
    assert planned.reason.startswith(
        "snapshots in memory: none are taken while a checkpoint is written; 3 buffers of 18.0 GiB "
        "for each of 8 ranks take 480.0 GiB, and /dev/shm has 321.0 GiB"
    )


@given(
    st.integers(1, TIB),
    st.integers(2, 5),
    st.integers(1, 64),
    st.integers(0, TIB),
    st.none() | st.integers(0, TIB),
)
def test_a_plan_never_takes_more_than_there_is(
    buffer_bytes: int, wanted: int, ranks: int, folder_bytes: int, memory_bytes: int | None
) -> None:
    room = Room(folder_bytes, memory_bytes)
    planned = plan_buffers(buffer_bytes, wanted=wanted, ranks_here=ranks, room=room)
    assert planned.num_buffers in (0, *range(2, wanted + 1))
    assert (planned.reason == "") == (planned.num_buffers == wanted)
    taken = planned.num_buffers * buffer_bytes * ranks
    assert taken <= folder_bytes
    assert memory_bytes is None or taken <= memory_bytes


class Computer:
    """Files as a kernel shows them to a process in a cgroup."""

    def __init__(self, top: Path, membership: str) -> None:
        self.folder = top / "memory"
        self.folder.mkdir()
        self.cgroups = top / "cgroups"
        self.membership = top / "membership"
        self.membership.write_text(membership)

    def write(self, path: str, **values: object) -> None:
        (self.cgroups / path).mkdir(parents=True, exist_ok=True)
        for name, value in values.items():
            (self.cgroups / path / name.replace("__", ".")).write_text(f"{value}\n")

    def memory_bytes(self) -> int | None:
        room = room_in(self.folder, membership=self.membership, cgroups=self.cgroups)
        return room.memory_bytes


def test_version_2_leaves_what_is_neither_used_nor_can_be_taken_back(tmp_path: Path) -> None:
    computer = Computer(tmp_path, "0::/\n")
    statistics = "anon 5\ninactive_file 300\nactive_file 70"
    computer.write("", memory__max=1000, memory__current=600, memory__stat=statistics)
    assert computer.memory_bytes() == 700


def test_version_1_leaves_what_is_neither_used_nor_can_be_taken_back(tmp_path: Path) -> None:
    computer = Computer(tmp_path, "9:cpu:/other\n4:memory:/pod\n0::/\n")
    computer.write(
        "memory/pod",
        memory__limit_in_bytes=1000,
        memory__usage_in_bytes=600,
        memory__stat="inactive_file 1\ntotal_inactive_file 300",
    )
    assert computer.memory_bytes() == 700


def test_a_container_that_sees_only_its_own_cgroup_reads_that(tmp_path: Path) -> None:
    computer = Computer(tmp_path, "4:memory:/kubepods/pod7/container9\n")
    computer.write("memory", memory__limit_in_bytes=1000, memory__usage_in_bytes=600)
    assert computer.memory_bytes() == 400


def test_the_tightest_of_the_cgroups_above_counts(tmp_path: Path) -> None:
    computer = Computer(tmp_path, "0::/pods/pod7/container\n")
    computer.write("pods/pod7/container", memory__max=900, memory__current=100)
    computer.write("pods/pod7", memory__max=1000, memory__current=400)
    computer.write("pods", memory__max="max", memory__current=5000)
    assert computer.memory_bytes() == 600


@pytest.mark.parametrize(
    ("membership", "path", "values"),
    [
        ("0::/\n", "", {"memory__max": "max", "memory__current": 600}),
        (
            "4:memory:/\n",
            "memory",
            {"memory__limit_in_bytes": 9223372036854771712, "memory__usage_in_bytes": 600},
        ),
        ("", "", {}),
    ],
)
def test_no_limit_is_none(
    tmp_path: Path, membership: str, path: str, values: dict[str, object]
) -> None:
    computer = Computer(tmp_path, membership)
    computer.write(path, **values)
    assert computer.memory_bytes() is None


def test_a_system_without_cgroups_has_no_limit(tmp_path: Path) -> None:
    nowhere = tmp_path / "none"
    assert room_in(tmp_path, membership=nowhere, cgroups=nowhere).memory_bytes is None


def test_a_full_pod_leaves_nothing(tmp_path: Path) -> None:
    computer = Computer(tmp_path, "0::/\n")
    computer.write("", memory__max=1000, memory__current=1600)
    assert computer.memory_bytes() == 0


def test_buffers_of_an_earlier_process_count_as_room(folder: Path, tmp_path: Path) -> None:
    computer = Computer(tmp_path, "0::/\n")
    computer.write("", memory__max=40 << 20, memory__current=30 << 20)
    empty = room_in(folder, membership=computer.membership, cgroups=computer.cgroups)
    (folder / "buffer").write_bytes(bytes(16 << 20))
    used = room_in(folder, membership=computer.membership, cgroups=computer.cgroups)
    # The files of the cgroup are made up: they do not know of these 16 MiB.
    assert (empty.memory_bytes, used.memory_bytes) == (10 << 20, 26 << 20)
    # Others use this file system too.
    assert used.folder_bytes == pytest.approx(empty.folder_bytes, abs=8 << 20)


def test_the_files_of_this_computer_are_read_without_an_error(folder: Path) -> None:
    assert room_in(folder).folder_bytes > 0
