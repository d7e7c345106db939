"""Chooses which windows with built-in aggregates run on columns, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tidegate.operators.aggregations.accumulators import (
    Accumulator,
    Columns,
    Count,
    Extreme,
    Pick,
    Sum,
    can_be_numbers,
)
from tidegate.operators.aggregations.aggregates import (
    AggregateKind,
    AggregatePlan,
    key_fits_columns,
)
from tidegate.operators.aggregations.choice import (
    adds_up_in_columns,
    aggregation_output_type,
    check_aggregation,
)
from tidegate.operators.aggregations.columnar import first_places
from tidegate.operators.aggregations.kinds import Aggregation
from tidegate.operators.windows.assigners import (
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SlicedWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from tidegate.operators.windows.columnar.combining import WindowCombiner
from tidegate.operators.windows.columnar.operator import (
    ColumnarWindowOperator,
    SessionWindowing,
    SlicedWindowing,
    WindowResults,
)
from tidegate.operators.windows.columnar.slicing import Slicing
from tidegate.operators.windows.operator import WindowSettings
from tidegate.operators.windows.triggers import EventTimeTrigger, ProcessingTimeTrigger
from tidegate.state.keys.selection import KeySelection
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.typeinfo import TypeInformation

_SLICED: Final = (
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
)
_SESSIONS: Final = (EventTimeSessionWindows, ProcessingTimeSessionWindows)
_GREATEST: Final = (Aggregation.MAX, Aggregation.MAX_BY)


def columnar_windowing(settings: WindowSettings) -> SlicedWindowing | SessionWindowing | None:
    """The windows, if they only fire at their end; None: they run record by record."""
    assigner = settings.assigner
    waiting = EventTimeTrigger if assigner.is_event_time() else ProcessingTimeTrigger
    if type(settings.trigger) is not waiting:
        return None
    if type(assigner) in _SLICED and isinstance(assigner, SlicedWindows):
        return SlicedWindowing(assigner.size, assigner.slide, assigner.offset)
    if isinstance(assigner, _SESSIONS) and type(assigner) in _SESSIONS:
        return SessionWindowing(assigner.gap)
    return None


def columnar_agg(
    settings: WindowSettings, plan: AggregatePlan, side_formats: dict[str, ArrowFormat | None]
) -> ColumnarWindowOperator | None:
    """The operator of `window(...).agg(...)`; None: it runs record by record."""
    windowing = columnar_windowing(settings)
    output_format = plan.output_format
    if windowing is None or plan.format is None or output_format is None:
        return None
    assert plan.key_columns is not None
    named = ", ".join(f"{name} {each.kind.value}" for name, each in plan.aggregates.items())
    return ColumnarWindowOperator(
        f"window aggregates {named}",
        windowing,
        plan.key_columns,
        plan.format,
        RowPlan(plan),
        output_format,
        settings,
        side_formats,
    )


def window_combiner(settings: WindowSettings, plan: AggregatePlan) -> WindowCombiner | None:
    """What adds records up before they travel; None: they may become results one by one.

    That is where what becomes of a record depends on more than its slice.
    """
    windowing = columnar_windowing(settings)
    if not isinstance(windowing, SlicedWindowing) or windowing.slide > windowing.size:
        return None
    if not settings.assigner.is_event_time() or settings.allowed_lateness or settings.late_tag:
        return None
    slicing = Slicing(windowing.size, windowing.slide, windowing.offset)
    return WindowCombiner(slicing, plan)


def columnar_aggregation(
    settings: WindowSettings,
    aggregation: Aggregation,
    field: int | str | None,
    key: KeySelection,
    type_info: TypeInformation | None,
    side_formats: dict[str, ArrowFormat | None],
) -> ColumnarWindowOperator | None:
    """The operator of `window(...).sum(field)` and the like; None: it runs record by record."""
    windowing = columnar_windowing(settings)
    format = arrow_format(type_info)
    output_format = arrow_format(aggregation_output_type(aggregation, key, type_info))
    if windowing is None or format is None or output_format is None:
        return None
    if key.columns is None or not key_fits_columns(format, key):
        return None
    place = None if field is None else format.column_of(field)
    if place is not None and aggregation is not Aggregation.COUNT:
        check_aggregation(aggregation, place, format)
        kind = format.schema.field(place).type
        fits = adds_up_in_columns if aggregation is Aggregation.SUM else can_be_numbers
        if not fits(kind):
            return None
    plan = RecordPlan(aggregation, place, key.columns, format, output_format)
    if isinstance(windowing, SessionWindowing) and any(
        isinstance(each, Pick) for each in plan.accumulators()
    ):
        # Which record of merged sessions comes first depends on the order of merges.
        return None
    of = "records" if place is None else f"field {place}"
    name = f"window {aggregation.value} of {of}"
    return ColumnarWindowOperator(
        name, windowing, key.columns, format, plan, output_format, settings, side_formats
    )


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Rows of the key's fields and named aggregates."""

    plan: AggregatePlan

    def accumulators(self) -> list[Accumulator]:
        return self.plan.accumulators()

    def columns(self, results: WindowResults) -> Columns:
        values = iter(results.values)
        found: Columns = []
        for aggregate in self.plan.aggregates.values():
            if aggregate.kind is AggregateKind.WINDOW_START:
                found.append(pa.array(results.starts))
            elif aggregate.kind is AggregateKind.WINDOW_END:
                found.append(pa.array(results.ends))
            else:
                found += next(values)
        return [*results.keys, *found]


@dataclass(frozen=True, slots=True)
class RecordPlan:
    """The first record with an aggregated field, a chosen record, or the key and a count."""

    aggregation: Aggregation
    place: int | None
    key_columns: int | tuple[int, ...]
    format: ArrowFormat
    output_format: ArrowFormat

    @property
    def _keys(self) -> tuple[int, ...]:
        key = self.key_columns
        return (key,) if isinstance(key, int) else key

    def accumulators(self) -> list[Accumulator]:
        if self.aggregation is Aggregation.COUNT:
            return [Count("count", self.place)]
        assert self.place is not None
        kinds = self.format.schema.types
        greatest = self.aggregation in _GREATEST
        if self.aggregation in (Aggregation.MIN_BY, Aggregation.MAX_BY):
            everything = range(len(kinds))
            return [Pick("best", self.place, everything, kinds, greatest=greatest)]
        kind = kinds[self.place]
        found: list[Accumulator] = [
            Sum("sum", self.place, kind, kind)
            if self.aggregation is Aggregation.SUM
            else Extreme("best", self.place, kind, greatest=greatest)
        ]
        firsts = first_places(self.format.schema, self._keys, self.place)
        if firsts:
            found.append(Pick("first", None, firsts, [kinds[place] for place in firsts]))
        return found

    def columns(self, results: WindowResults) -> Columns:
        if self.aggregation is Aggregation.COUNT:
            kind = self.output_format.schema.field(0).type
            key = results.keys[0]
            if pa.types.is_struct(kind):
                key = pa.StructArray.from_arrays(results.keys, fields=list(kind))
            return [key, *results.values[0]]
        if self.aggregation in (Aggregation.MIN_BY, Aggregation.MAX_BY):
            return results.values[0]
        assert self.place is not None
        found = dict(zip(self._keys, results.keys, strict=True))
        if len(results.values) > 1:
            firsts = first_places(self.format.schema, self._keys, self.place)
            found.update(zip(firsts, results.values[1], strict=True))
        found[self.place] = results.values[0][0]
        return [found[place] for place in range(len(self.format.schema))]
