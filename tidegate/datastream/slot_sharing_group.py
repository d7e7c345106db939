"""Slot sharing groups: accepted for compatibility, without effect.

Slot i hosts subtask i of every operator, whatever its group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from tidegate.core.fluent import FluentBuilder
from tidegate.core.memory_size import MemorySize

__all__ = ["MemorySize", "SlotSharingGroup"]


@dataclass(frozen=True, slots=True)
class SlotSharingGroup:
    """A group of operators by name."""

    name: str
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external_resources: dict[str, float] = field(default_factory=dict, hash=False)

    def get_name(self) -> str:
        """The name of the group."""
        return self.name

    def get_cpu_cores(self) -> float | None:
        """The number of cores; accepted and not used."""
        return self.cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        """The size of heap memory; accepted and not used."""
        return self.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """The size of other memory; accepted and not used."""
        return self.task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        """The size of managed memory; accepted and not used."""
        return self.managed_memory

    def get_external_resources(self) -> dict[str, float]:
        """Other resources; accepted and not used."""
        return dict(self.external_resources)

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """Create a builder for a group with this name."""
        return SlotSharingGroup.Builder(name=name)

    class Builder(FluentBuilder):
        """Builds a group."""

        def set_cpu_cores(self, cpu_cores: float) -> Self:
            return self._with(cpu_cores=cpu_cores)

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> Self:
            return self._with(task_heap_memory=task_heap_memory)

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> Self:
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> Self:
            return self._with(task_off_heap_memory=task_off_heap_memory)

        def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> Self:
            return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> Self:
            return self._with(managed_memory=managed_memory)

        def set_managed_memory_mb(self, managed_memory_mb: int) -> Self:
            return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> Self:
            known = self._chosen.get("external_resources", {})
            return self._with(external_resources={**known, name: value})

        def build(self) -> SlotSharingGroup:
            return SlotSharingGroup(**self._chosen)
