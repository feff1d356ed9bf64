"""The one error that a pass reports: a call that did not do what it should."""


class CallError(RuntimeError):
    """Kubernetes or AWS was not reached or refused; one line, with what to look at."""
