"""A stand-in for kubectl and the cluster behind it: objects in a file, deleted as the API would.

Run with `kubectl`'s arguments and STANDIN_CLUSTER naming the file. A claim stays
while a pod that names it exists, a volume while its claim does (their
finalizers), a pod of a deleted job leaves after ``pod_reads`` more looks, and one
that ``arrives_after_jobs`` is not seen before.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

KINDS = ("jobs.batch", "pods", "persistentvolumeclaims", "persistentvolumes")


def main() -> int:
    path = Path(os.environ["STANDIN_CLUSTER"])
    cluster = json.loads(path.read_text())
    words = [word for word in sys.argv[1:] if not word.startswith("--request-timeout")]
    assert words[0] == "--context"
    verb, kind = words[2], words[3]
    assert kind in KINDS, kind
    if cluster["silent"]:
        sys.stderr.write("Unable to connect to the server: dial tcp 10.0.1.7:443: i/o timeout\n")
        return 1
    with path.with_suffix(".log").open("a") as log:
        log.write(f"{words[1]} {' '.join(words[2:])}\n")
    if verb == "get":
        print(json.dumps({"items": _get(cluster, kind, words)}))
    else:
        assert verb == "delete", verb
        _delete(cluster, kind, words)
    _finish(cluster)
    path.write_text(json.dumps(cluster))
    return 0


def _get(cluster: Any, kind: str, words: list[str]) -> list[Any]:
    if kind == "pods":
        cluster["pod_reads"] -= cluster["deleting_jobs"]
        _finish(cluster)
    seen = [
        item
        for item in cluster[kind]
        if cluster["deleting_jobs"] or not item.get("arrives_after_jobs")
    ]
    if "--namespace" not in words:
        return seen
    return [item for item in seen if item["metadata"]["namespace"] == _namespace(words)]


def _delete(cluster: Any, kind: str, words: list[str]) -> None:
    if kind == "jobs.batch":
        assert "--cascade=foreground" in words
        cluster["deleting_jobs"] = True
        return
    for item in cluster[kind]:
        if item["metadata"]["name"] == words[4]:
            item["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z"


def _finish(cluster: Any) -> None:
    """What controllers would have done by now."""
    if cluster["deleting_jobs"] and cluster["pod_reads"] <= 0:
        cluster["jobs.batch"] = []
        cluster["pods"] = [pod for pod in cluster["pods"] if not _is_of_a_job(pod)]
    held = {
        volume["persistentVolumeClaim"]["claimName"]
        for pod in cluster["pods"]
        for volume in pod["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }
    _drop(cluster, "persistentvolumeclaims", held)
    claims = {claim["metadata"]["name"] for claim in cluster["persistentvolumeclaims"]}
    bound = {
        volume["metadata"]["name"]
        for volume in cluster["persistentvolumes"]
        if volume["spec"]["claimRef"]["name"] in claims
    }
    _drop(cluster, "persistentvolumes", bound)


def _drop(cluster: Any, kind: str, held: set[str]) -> None:
    cluster[kind] = [
        item
        for item in cluster[kind]
        if "deletionTimestamp" not in item["metadata"] or item["metadata"]["name"] in held
    ]


def _is_of_a_job(pod: Any) -> bool:
    return any(owner["kind"] == "Job" for owner in pod["metadata"].get("ownerReferences", []))


def _namespace(words: list[str]) -> str:
    return words[words.index("--namespace") + 1]


if __name__ == "__main__":
    sys.exit(main())
