"""State of keyed functions: descriptors, handles and time to live."""

from tidegate.state import descriptors, handles
from tidegate.state.descriptors import *  # noqa: F403
from tidegate.state.handles import *  # noqa: F403
from tidegate.state.operator_state import OperatorStateStore

__all__ = ["OperatorStateStore"]
__all__ += descriptors.__all__
__all__ += handles.__all__
