"""The errors that programs may catch.

All are a `TidegateError`, and one of three kinds: after a `UserError` the program or its settings
must change, after an `ExternalError` its environment; an `InternalError` is a bug in Tidegate.
"""

# ruff: noqa: F403, F405
from tidegate.core.errors import *

__all__ = [
    "AlreadyRunning",
    "CheckpointFailed",
    "ConfigError",
    "CorruptCheckpoint",
    "DatabaseFailed",
    "DirectoryTaken",
    "ExternalError",
    "GraphError",
    "InternalError",
    "JobCanceled",
    "JobOutOfReach",
    "KafkaFailed",
    "KafkaRefused",
    "LocalStateFailed",
    "MissingField",
    "NoCheckpoint",
    "NotAccepted",
    "NotEnoughTaskSlots",
    "NotNow",
    "NotSerializable",
    "OrderRefused",
    "RepeatsCommitted",
    "RowRefused",
    "SavepointFailed",
    "SlotLost",
    "StateMisuse",
    "StateNotClaimed",
    "StateTooLarge",
    "StateTypeChanged",
    "StepFailed",
    "StorageError",
    "TableMismatch",
    "TidegateError",
    "TransactionLost",
    "TypeMismatch",
    "UndecodableRecord",
    "UnencodableRecord",
    "UnknownJob",
    "UnknownState",
    "UnknownTopic",
    "UnreadableInput",
    "UnsuitableServer",
    "UnsuitableSpark",
    "UnsupportedFormat",
    "UnsupportedKey",
    "UnwritableOutput",
    "UserError",
    "UserFunctionError",
]
