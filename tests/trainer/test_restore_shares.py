"""Who verifies which file of a checkpoint before it is read: no rank does another's work."""

from trainer.checkpoint.layout import FileRecord
from trainer.checkpoint.restore import share_of


def files_of(num_ranks: int) -> list[FileRecord]:
    """In the order of the record: the metadata comes after the first rank's shard."""
    shards = [FileRecord(f"__{rank}_0.distcp", 7_400_000_000, rank) for rank in range(num_ranks)]
    return [shards[0], FileRecord(".metadata", 60_000, 9), *shards[1:]]


def shares(num_ranks: int) -> list[tuple[FileRecord, ...]]:
    files = files_of(num_ranks)
    return [share_of(files, rank=rank, world_size=num_ranks) for rank in range(num_ranks)]


def test_no_rank_verifies_two_shards() -> None:
    for num_ranks in (1, 2, 3, 32):
        large = [[f.name for f in share if f.size_bytes > 1e9] for share in shares(num_ranks)]
        assert [len(names) for names in large] == [1] * num_ranks


def test_every_file_is_verified_by_one_rank() -> None:
    for num_ranks in (1, 2, 3, 32):
        names = [file.name for share in shares(num_ranks) for file in share]
        assert sorted(names) == sorted(file.name for file in files_of(num_ranks))
