"""PostgreSQL as a sink. Needs the extra `postgres`."""

from tidegate.connectors.guarantee import DeliveryGuarantee
from tidegate.connectors.postgres.sink import PostgresSink, PostgresSinkBuilder

__all__ = ["DeliveryGuarantee", "PostgresSink", "PostgresSinkBuilder"]
