"""Snapshots: the whole state in host memory, from which a rank goes on that lost its own."""
