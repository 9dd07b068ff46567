"""The one exception that is meant for the person at the keyboard."""


class ElitesError(Exception):
    """Something the user can act on. The command prints its message as one line and no traceback."""


def require(holds: bool, name: str, given: object, allowed: str) -> None:
    """Says which argument makes no sense, what was given and what is allowed."""
    if not holds:
        raise ElitesError(f"{name} is {given}; it must be {allowed}")
