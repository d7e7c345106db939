"""Names of side outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tidegate.types.privacy import declare_immutable
from tidegate.types.typeinfo import RowTypeInfo, TypeInformation


@dataclass(frozen=True, slots=True, init=False)
class OutputTag:
    """A side output: `yield tag, value` sends to it, `get_side_output(tag)` reads it.

    Tags with the same id are the same output, whatever types they declare. Without a type, records
    travel as pickled Python objects.
    """

    tag_id: str
    type_info: TypeInformation | None
    are_used: ClassVar[bool] = False
    """Whether this process has made a tag: before that, no result can hold one."""

    def __new__(cls, *_: object, **__: object) -> OutputTag:
        OutputTag.are_used = True
        return object.__new__(cls)

    def __init__(
        self, tag_id: str, type_info: TypeInformation | Sequence[TypeInformation] | None = None
    ) -> None:
        if not tag_id:
            raise ValueError(f"an output tag needs a name that is not empty, got {tag_id!r}")
        if isinstance(type_info, list | tuple):
            type_info = RowTypeInfo(list(type_info))
        if type_info is not None and not isinstance(type_info, TypeInformation):
            raise TypeError(
                f"the type of output tag {tag_id!r} must come from Types, got {type_info!r}"
            )
        object.__setattr__(self, "tag_id", tag_id)
        object.__setattr__(self, "type_info", type_info)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and other.tag_id == self.tag_id

    def __hash__(self) -> int:
        return hash(self.tag_id)


declare_immutable(OutputTag)
