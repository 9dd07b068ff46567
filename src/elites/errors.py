"""The exception for errors of the user."""


class ElitesError(Exception):
    """An error that the user can fix. The command prints its message in one line, without a traceback."""


def require(condition: bool, name: str, given: object, allowed: str) -> None:
    """Raises an error that names an invalid argument, its value and what is allowed."""
    if not condition:
        raise ElitesError(f"{name} is {given}; it must be {allowed}")
