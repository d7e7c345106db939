"""The one error of this package that is nobody's fault."""


class Unavailable(Exception):
    """A server cannot be had on this machine; says what is missing and how to get it."""
