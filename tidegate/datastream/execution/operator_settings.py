"""The settings of a single operator, for streams and sinks."""

from __future__ import annotations

import logging
from typing import Self, TypeVar

from tidegate.core.durations import DurationLike, as_milliseconds
from tidegate.core.errors import ConfigError
from tidegate.core.options import TEXT, Kind, integer
from tidegate.core.setting_groups import MAX_PARALLELISM
from tidegate.datastream.slot_sharing_group import SlotSharingGroup
from tidegate.graph.logical import ChainingStrategy, Transformation

_log = logging.getLogger(__name__)

T = TypeVar("T")
_PARALLELISM = integer(1, MAX_PARALLELISM)


class OperatorSettings:
    """Setters that return the stream or sink they were called on."""

    def _operator(self, call: str) -> Transformation:
        """The operator that `call` configures; GraphError if there is not exactly one."""
        raise NotImplementedError

    def get_name(self) -> str:
        """The name of the operator."""
        return self._operator("get_name").name

    def name(self, name: str) -> Self:
        """Name the operator, for logs, plans and error messages."""
        self._operator("name").name = _checked("name", TEXT, name)
        return self

    def uid(self, uid: str) -> Self:
        """Identify the operator's state across versions of the program; once in a job."""
        self._operator("uid").uid = _checked("uid", TEXT, uid)
        return self

    def set_description(self, description: str) -> Self:
        """Set a longer description of the operator, for plans."""
        self._operator("set_description").description = _checked("description", TEXT, description)
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of subtasks of the operator."""
        operator = self._operator("set_parallelism")
        _checked("parallelism", _PARALLELISM, parallelism)
        if operator.max_parallelism == 1 and parallelism != 1:
            raise ConfigError(
                "parallelism", parallelism, f"{operator.name!r} cannot run in parallel: leave it 1"
            )
        operator.parallelism = parallelism
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups, the limit for rescaling."""
        operator = self._operator("set_max_parallelism")
        operator.max_parallelism = _checked("max parallelism", _PARALLELISM, max_parallelism)
        return self

    def force_non_parallel(self) -> Self:
        """Always run a single subtask, even after rescaling."""
        operator = self._operator("force_non_parallel")
        operator.parallelism = operator.max_parallelism = 1
        return self

    def start_new_chain(self) -> Self:
        """Do not chain the operator to the one before it; later operators may be chained to it."""
        self._operator("start_new_chain").chaining = ChainingStrategy.HEAD
        return self

    def disable_chaining(self) -> Self:
        """Do not chain the operator to its neighbours."""
        self._operator("disable_chaining").chaining = ChainingStrategy.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Accepted for compatibility: all groups share the slots."""
        operator = self._operator("slot_sharing_group")
        if isinstance(slot_sharing_group, SlotSharingGroup):
            slot_sharing_group = slot_sharing_group.get_name()
        if slot_sharing_group != "default":
            _log.info("%r shares its slots with all groups", operator.name)
        return self

    def set_buffer_timeout(self, timeout_millis: DurationLike) -> Self:
        """Accepted for compatibility: the timeout of the environment counts for all operators."""
        self._operator("set_buffer_timeout")
        checked_buffer_timeout(timeout_millis)
        return self


def checked_buffer_timeout(timeout: DurationLike) -> int:
    """Milliseconds; -1 stands for no timeout."""
    milliseconds = as_milliseconds(timeout)
    if milliseconds < -1:
        raise ConfigError("buffer timeout", timeout, "give -1, 0 or more milliseconds")
    return milliseconds


def _checked(what: str, kind: Kind[T], value: T) -> T:
    try:
        return kind.parse(value)
    except ValueError as error:
        raise ConfigError(what, value, str(error)) from None
