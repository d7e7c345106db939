"""Files as a sink, each record once: in progress, then pending, then finished by a rename.

A reader never sees a part of a file. Every checkpoint ends the files that are open; without
checkpoints they are finished when the input has ended.
"""

from __future__ import annotations

from typing import Any, Self

from tidegate.connectors.file_encodings import FileEncoding
from tidegate.connectors.part_files import (
    OutputFileConfig,
    PartCommitter,
    PartSettings,
    PartWriter,
)
from tidegate.connectors.rolling import BucketAssigner, RollingPolicy
from tidegate.connectors.sink import (
    Committer,
    CommittingWriter,
    SupportsCommitter,
    WriterContext,
)

__all__ = ["FileSink", "FileSinkBuilder", "OutputFileConfig"]


class FileSink(SupportsCommitter):
    """Writes `part-…` files below a directory.

    The directory must not hold part files of another job when this one begins anew, unless they
    may be replaced (`overwrite`). As a table it has a file even if there is no record, so that
    readers find its columns.
    """

    def __init__(
        self,
        directory: str,
        encoding: FileEncoding,
        *,
        overwrite: bool = False,
        names: OutputFileConfig | None = None,
        rolling: RollingPolicy | None = None,
        buckets: BucketAssigner | None = None,
        is_table: bool = False,
    ) -> None:
        self._directory = str(directory)
        self._settings = PartSettings(
            encoding=encoding,
            names=names or OutputFileConfig(),
            rolling=rolling or RollingPolicy(),
            buckets=buckets or BucketAssigner.base_path_bucket_assigner(),
            overwrite=overwrite,
            is_never_empty=is_table,
        )

    @staticmethod
    def for_row_format(base_path: str, encoder: FileEncoding) -> FileSinkBuilder:
        return FileSinkBuilder(base_path, encoder)

    @staticmethod
    def for_bulk_format(base_path: str, writer_factory: FileEncoding) -> FileSinkBuilder:
        return FileSinkBuilder(base_path, writer_factory)

    def create_writer(self, context: WriterContext) -> CommittingWriter:
        return PartWriter(self._directory, context, self._settings)

    def create_committer(self, context: WriterContext) -> Committer:
        return PartCommitter(self._directory, context.permit)


class FileSinkBuilder:
    """Settings of a FileSink, under PyFlink's names."""

    def __init__(self, directory: str, encoding: FileEncoding) -> None:
        self._directory = directory
        self._encoding = encoding
        self._settings: dict[str, Any] = {}

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
        self._settings["names"] = output_file_config
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
        self._settings["rolling"] = rolling_policy
        return self

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
        self._settings["buckets"] = bucket_assigner
        return self

    def with_bucket_check_interval(self, interval: int) -> Self:
        """Accepted for PyFlink's sake: buckets are looked at after every step."""
        return self

    def build(self) -> FileSink:
        return FileSink(self._directory, self._encoding, **self._settings)
