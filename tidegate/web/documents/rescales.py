"""The parallelism of a job and its changes, under Flink's names."""

from __future__ import annotations

from typing import Annotated, Literal

from tidegate.driver.chronicle import Rescaling
from tidegate.driver.job_handle import JobHandle
from tidegate.web.documents.common import milliseconds, vertex_id
from tidegate.web.forms import Between, Form, Id, camel


class ParallelismBounds(Form, naming=camel):
    """The lower and upper bound."""

    lower_bound: Annotated[int, Between(1, 1 << 15)] = 1
    upper_bound: Annotated[int, Between(1, 1 << 15)]


class VertexRequirements(Form):
    """The possible parallelism of a vertex."""

    parallelism: ParallelismBounds


class RescaledVertexDocument(Form, naming=camel):
    """A vertex before and after a change of the parallelism."""

    job_vertex_id: Id
    job_vertex_name: str
    desired_parallelism: int
    sufficient_parallelism: int
    pre_rescale_parallelism: int
    post_rescale_parallelism: int


class RescaleDocument(Form, naming=camel):
    """A change of the parallelism."""

    rescale_uuid: Id
    rescale_attempt_id: int = 1
    vertices: dict[str, RescaledVertexDocument]
    start_timestamp_in_millis: int
    end_timestamp_in_millis: int | None
    terminal_state: Literal["COMPLETED"] | None
    trigger_cause: str = "UPDATE_REQUIREMENT"


class RescaleCounts(Form, naming=camel):
    """How many changes there were."""

    ignored: int = 0
    in_progress: int
    completed: int
    failed: int = 0


class LatestRescales(Form):
    """The latest of each kind."""

    completed: RescaleDocument | None
    failed: RescaleDocument | None = None
    ignored: RescaleDocument | None = None


class RescalesOverview(Form, naming=camel):
    """A summary of the changes of the parallelism."""

    rescales_counts: RescaleCounts
    latest: LatestRescales


def resource_requirements(job: JobHandle) -> dict[str, VertexRequirements]:
    return {
        vertex_id(vertex): VertexRequirements(
            parallelism=ParallelismBounds(upper_bound=vertex.parallelism)
        )
        for vertex in job.graph.vertices
    }


def rescales(job: JobHandle) -> list[RescaleDocument]:
    """The last changes, newest first."""
    return [_rescale(each) for each in job.chronicle.rescalings]


def rescales_overview(job: JobHandle) -> RescalesOverview:
    found = rescales(job)
    completed = [each for each in found if each.terminal_state is not None]
    counts = RescaleCounts(in_progress=len(found) - len(completed), completed=len(completed))
    latest = LatestRescales(completed=completed[0] if completed else None)
    return RescalesOverview(rescales_counts=counts, latest=latest)


def _rescale(rescaling: Rescaling) -> RescaleDocument:
    ended = rescaling.ended_at
    return RescaleDocument(
        rescale_uuid=rescaling.id,
        vertices={
            each.id: RescaledVertexDocument(
                job_vertex_id=each.id,
                job_vertex_name=each.name,
                desired_parallelism=each.after,
                sufficient_parallelism=1,
                pre_rescale_parallelism=each.before,
                post_rescale_parallelism=each.after,
            )
            for each in rescaling.vertices
        },
        start_timestamp_in_millis=milliseconds(rescaling.began_at),
        end_timestamp_in_millis=None if ended is None else milliseconds(ended),
        terminal_state=None if ended is None else "COMPLETED",
    )
