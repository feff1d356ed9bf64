"""The peer tier: each rank's snapshot once more, in the memory of a pod on another node."""
