"""The cluster through ``kubectl``, as its user has set it up; one line for whatever goes wrong.

The context is named on every call, so that a command never reaches the cluster
that the user happened to work with last.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infra.settings import InfraSettings

TIMEOUT_SECONDS = 60
"""For a call that waits for nothing. ``kubectl`` itself gives up on a silent server earlier."""

_REQUEST_TIMEOUT = "--request-timeout=20s"


class KubectlError(RuntimeError):
    """``kubectl`` is missing, cannot reach the cluster, or was refused; says what to do."""


class KubectlForbiddenError(KubectlError):
    """The cluster answers, but this user may not ask for that."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    context: str
    remedy: str
    """What to do where the cluster does not answer."""

    def get(self, kind: str, *, namespace: str | None = None) -> list[dict[str, Any]]:
        """All objects of a kind, in one namespace or (None) in all of them, as the API has them.

        Raises:
            KubectlError: the cluster could not be asked.
        """
        where = ["--namespace", namespace] if namespace else ["--all-namespaces"]
        said = self.run(["get", kind, *where, "-o", "json"])
        try:
            items: list[dict[str, Any]] = json.loads(said)["items"]
        except (ValueError, KeyError, TypeError) as error:
            raise KubectlError(
                f"'kubectl get {kind}' did not answer with a list in JSON but with "
                f"{said[:60]!r}; see whether the kubectl on PATH is a real one"
            ) from error
        return items

    def run(self, arguments: Sequence[str], *, timeout_seconds: float = TIMEOUT_SECONDS) -> str:
        """The command's standard output.

        Raises:
            KubectlError: it failed, or did not end in time.
        """
        if shutil.which("kubectl") is None:
            raise KubectlError("kubectl is not on PATH; install it")
        command = ["kubectl", "--context", self.context, _REQUEST_TIMEOUT, *arguments]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=timeout_seconds,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise KubectlError(
                f"'kubectl {' '.join(arguments)}' took over {timeout_seconds:.0f} s; {self.remedy}"
            ) from error
        except OSError as error:
            raise KubectlError(f"kubectl cannot be run ({error.strerror}); install it") from error
        if done.returncode:
            said = " ".join(done.stderr.split())[-300:] or f"exit status {done.returncode}"
            if "(Forbidden)" in said:
                raise KubectlForbiddenError(
                    f"'kubectl {' '.join(arguments)}': {said}; use a principal of admin_arns"
                )
            raise KubectlError(f"'kubectl {' '.join(arguments)}': {said}; {self.remedy}")
        return done.stdout


def kubectl_for(settings: InfraSettings) -> Kubectl:
    """``kubectl`` on the context that README's ``update-kubeconfig`` makes for this cluster."""
    # The context is named after the cluster's ARN, whose partition follows from the region.
    partition = {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(
        settings.region.rsplit("-", 2)[0], "aws"
    )
    arn = f"arn:{partition}:eks:{settings.region}:{settings.account}:cluster/{settings.name}"
    command = f"aws eks update-kubeconfig --name {settings.name} --region {settings.region}"
    return Kubectl(context=arn, remedy=f"run '{command}' and see whether its API can be reached")
