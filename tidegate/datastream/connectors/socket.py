"""Lines of a socket as a source."""

from tidegate.connectors.socket import SocketSource

__all__ = ["SocketSource"]
