"""The exception for errors of the user."""


class ElitesError(Exception):
    """An error that the user can fix. The command prints its message in one line, without a traceback."""


def require(condition: bool, name: str, value: object, allowed: str) -> None:
    """Raises an error that names an invalid argument, its value and what is allowed."""
    if not condition:
        raise ElitesError(f"{name} is {value}; it must be {allowed}")


def describe_error(error: BaseException) -> str:
    """The type and the text of an exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def format_error(error: BaseException) -> str:
    """An exception in one line: an ElitesError as it is, others with their type."""
    return str(error) if isinstance(error, ElitesError) else describe_error(error)
