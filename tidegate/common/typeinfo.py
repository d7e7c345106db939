"""`Types` and the type information that it makes."""

from tidegate.types import typeinfo
from tidegate.types.typeinfo import *  # noqa: F403

__all__ = typeinfo.__all__
