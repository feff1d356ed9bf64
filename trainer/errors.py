"""The one error that decides about recovery: trying again cannot help."""


class CannotTrain(Exception):
    """Every further attempt would meet the same; the message says what is wrong and what to do."""
