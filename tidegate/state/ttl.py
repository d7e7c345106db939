"""Time to live: how long a value is kept after the last write or read."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from typing import Any, Self

from tidegate.core.durations import DurationLike, as_milliseconds, as_timedelta
from tidegate.core.errors import ConfigError
from tidegate.core.fluent import FluentBuilder


class UpdateType(Enum):
    """Which accesses extend the life of a value."""

    Disabled = 0
    OnCreateAndWrite = 1
    OnReadAndWrite = 2


class StateVisibility(Enum):
    """Whether a value may be seen between its expiry and its removal."""

    ReturnExpiredIfNotCleanedUp = 0
    NeverReturnExpired = 1


class TtlTimeCharacteristic(Enum):
    """Which clock counts."""

    ProcessingTime = 0


class CleanupStrategies:
    """When expired values are removed, besides on access."""

    class Strategies(Enum):
        """Flink's strategies."""

        FULL_STATE_SCAN_SNAPSHOT = auto()
        INCREMENTAL_CLEANUP = auto()
        ROCKSDB_COMPACTION_FILTER = auto()

    @dataclass(frozen=True, slots=True)
    class IncrementalCleanupStrategy:
        """A few keys are checked as records flow."""

        cleanup_size: int = 5
        run_cleanup_for_each_record: bool = False

        def get_cleanup_size(self) -> int:
            return self.cleanup_size

        def run_cleanup_for_every_record(self) -> bool:
            return self.run_cleanup_for_each_record

    @dataclass(frozen=True, slots=True)
    class RocksdbCompactFilterCleanupStrategy:
        """Compaction drops expired values."""

        query_time_after_num_entries: int = 1000
        periodic_compaction_time: timedelta = timedelta(days=30)

        def get_query_time_after_num_entries(self) -> int:
            return self.query_time_after_num_entries

        def get_periodic_compaction_time(self) -> timedelta:
            return self.periodic_compaction_time

    def __init__(
        self, strategies: dict[Strategies, Any] | None = None, is_cleanup_in_background: bool = True
    ) -> None:
        self._strategies = dict(strategies or {})
        self._in_background = is_cleanup_in_background

    def is_cleanup_in_background(self) -> bool:
        return self._in_background

    def in_full_snapshot(self) -> bool:
        return self.Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

    def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
        default = self.IncrementalCleanupStrategy() if self._in_background else None
        return self._strategies.get(self.Strategies.INCREMENTAL_CLEANUP, default)

    def get_rocksdb_compact_filter_cleanup_strategy(
        self,
    ) -> RocksdbCompactFilterCleanupStrategy | None:
        default = self.RocksdbCompactFilterCleanupStrategy() if self._in_background else None
        return self._strategies.get(self.Strategies.ROCKSDB_COMPACTION_FILTER, default)


@dataclass(frozen=True, slots=True)
class StateTtlConfig:
    """Time to live of a state: of its value, of each element of a list, or of each map entry.

    >>> StateTtlConfig(timedelta(hours=1)).get_ttl()
    datetime.timedelta(seconds=3600)
    """

    ttl: timedelta
    update_type: UpdateType = UpdateType.OnCreateAndWrite
    state_visibility: StateVisibility = StateVisibility.NeverReturnExpired
    ttl_time_characteristic: TtlTimeCharacteristic = TtlTimeCharacteristic.ProcessingTime
    cleanup_strategies: CleanupStrategies = field(default_factory=CleanupStrategies, compare=False)

    def __post_init__(self) -> None:
        if as_milliseconds(self.ttl) <= 0:
            raise ConfigError("state time to live", self.ttl, "give at least one millisecond")

    @staticmethod
    def new_builder(ttl: DurationLike) -> Builder:
        """Create a builder with this time to live."""
        return Builder(ttl)

    def get_ttl(self) -> timedelta:
        """How long state lives."""
        return self.ttl

    def get_update_type(self) -> UpdateType:
        """Which accesses extend the life of state."""
        return self.update_type

    def get_state_visibility(self) -> StateVisibility:
        """Whether expired state that is not removed yet can be read."""
        return self.state_visibility

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        """Which time counts: processing time."""
        return self.ttl_time_characteristic

    def get_cleanup_strategies(self) -> CleanupStrategies:
        """How expired state is removed."""
        return self.cleanup_strategies

    def is_enabled(self) -> bool:
        """Whether state expires."""
        return self.update_type is not UpdateType.Disabled


class Builder(FluentBuilder):
    """Collects the settings of a StateTtlConfig, as in PyFlink."""

    def __init__(self, ttl: DurationLike) -> None:
        super().__init__(ttl=as_timedelta(ttl))
        self._strategies: dict[CleanupStrategies.Strategies, Any] = {}
        self._in_background = True

    def set_ttl(self, ttl: DurationLike) -> Self:
        return self._with(ttl=as_timedelta(ttl))

    def set_update_type(self, update_type: UpdateType) -> Self:
        return self._with(update_type=update_type)

    def update_ttl_on_create_and_write(self) -> Self:
        return self.set_update_type(UpdateType.OnCreateAndWrite)

    def update_ttl_on_read_and_write(self) -> Self:
        return self.set_update_type(UpdateType.OnReadAndWrite)

    def set_state_visibility(self, state_visibility: StateVisibility) -> Self:
        return self._with(state_visibility=state_visibility)

    def return_expired_if_not_cleaned_up(self) -> Self:
        return self.set_state_visibility(StateVisibility.ReturnExpiredIfNotCleanedUp)

    def never_return_expired(self) -> Self:
        return self.set_state_visibility(StateVisibility.NeverReturnExpired)

    def set_ttl_time_characteristic(self, characteristic: TtlTimeCharacteristic) -> Self:
        return self._with(ttl_time_characteristic=characteristic)

    def use_processing_time(self) -> Self:
        return self.set_ttl_time_characteristic(TtlTimeCharacteristic.ProcessingTime)

    def cleanup_full_snapshot(self) -> Self:
        """Omit expired values from snapshots, which always happens."""
        self._strategies[CleanupStrategies.Strategies.FULL_STATE_SCAN_SNAPSHOT] = None
        return self

    def cleanup_incrementally(
        self, cleanup_size: int, run_cleanup_for_every_record: bool = False
    ) -> Self:
        """Check `cleanup_size` keys per record."""
        self._strategies[CleanupStrategies.Strategies.INCREMENTAL_CLEANUP] = (
            CleanupStrategies.IncrementalCleanupStrategy(cleanup_size, run_cleanup_for_every_record)
        )
        return self

    def cleanup_in_rocksdb_compact_filter(
        self,
        query_time_after_num_entries: int = 1000,
        periodic_compaction_time: DurationLike = timedelta(days=30),
    ) -> Self:
        self._strategies[CleanupStrategies.Strategies.ROCKSDB_COMPACTION_FILTER] = (
            CleanupStrategies.RocksdbCompactFilterCleanupStrategy(
                query_time_after_num_entries, as_timedelta(periodic_compaction_time)
            )
        )
        return self

    def disable_cleanup_in_background(self) -> Self:
        self._in_background = False
        return self

    def build(self) -> StateTtlConfig:
        cleanup = CleanupStrategies(self._strategies, self._in_background)
        return StateTtlConfig(**self._chosen, cleanup_strategies=cleanup)


# PyFlink accesses these through the configuration's class.
StateTtlConfig.UpdateType = UpdateType  # type: ignore[attr-defined]
StateTtlConfig.StateVisibility = StateVisibility  # type: ignore[attr-defined]
StateTtlConfig.TtlTimeCharacteristic = TtlTimeCharacteristic  # type: ignore[attr-defined]
StateTtlConfig.CleanupStrategies = CleanupStrategies  # type: ignore[attr-defined]
StateTtlConfig.Builder = Builder  # type: ignore[attr-defined]
