"""The one exception that is meant for the person at the keyboard."""


class ElitesError(Exception):
    """Something the user can act on. The command prints its message as one line and no traceback."""
