"""`Types`, the type information that it creates, and types from Python classes and schemas."""

from tidegate.types import typeinfo
from tidegate.types.infer import as_type_info
from tidegate.types.typeinfo import *  # noqa: F403

__all__ = ["as_type_info"]
__all__ += typeinfo.__all__
