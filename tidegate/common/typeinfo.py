"""`Types`, the type information that it makes, and types of Python classes and schemas."""

from tidegate.types import typeinfo
from tidegate.types.infer import as_type_info
from tidegate.types.typeinfo import *  # noqa: F403

__all__ = ["as_type_info"]
__all__ += typeinfo.__all__
