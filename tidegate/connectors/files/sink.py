"""Files as an exactly-once sink: in progress, then pending, then finished by a rename.

Readers never see partial files. Every checkpoint closes all open files; without checkpoints, they
are finished at the end of the input.
"""

from __future__ import annotations

from typing import Self

from tidegate.connectors.files.encodings import FileEncoding
from tidegate.connectors.files.part_files import (
    ExistingFiles,
    OutputFileConfig,
    PartCommitter,
    PartSettings,
    PartWriter,
)
from tidegate.connectors.files.rolling import BucketAssigner, RollingPolicy
from tidegate.connectors.sink import Committer, CommittingWriter, SupportsCommitter, WriterContext
from tidegate.core.fluent import FluentBuilder

__all__ = ["FileSink", "FileSinkBuilder", "OutputFileConfig"]


class FileSink(SupportsCommitter):
    """Writes `part-…` files below a directory.

    Files of other jobs stay, unless a job that starts fresh replaces them (`overwrite`). A table
    has a file even without records, so that readers find its columns.
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
            existing=ExistingFiles.REPLACE if overwrite else ExistingFiles.KEEP,
            is_never_empty=is_table,
        )

    @staticmethod
    def for_row_format(base_path: str, encoder: FileEncoding) -> FileSinkBuilder:
        """Create a sink that encodes records one by one, with a bucket for every hour."""
        return FileSinkBuilder(directory=base_path, encoding=encoder)

    @staticmethod
    def for_bulk_format(base_path: str, writer_factory: FileEncoding) -> FileSinkBuilder:
        """Create a sink that encodes whole files, such as Parquet, with the same buckets."""
        return FileSinkBuilder(directory=base_path, encoding=writer_factory)

    def create_writer(self, context: WriterContext) -> CommittingWriter:
        return PartWriter(self._directory, context, self._settings)

    def create_committer(self, context: WriterContext) -> Committer:
        return PartCommitter(self._directory, context.permit)


class FileSinkBuilder(FluentBuilder):
    """Settings of a FileSink, under PyFlink's names."""

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
        """Set how part files are named."""
        return self._with(names=output_file_config)

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
        """Set when a file is closed."""
        return self._with(rolling=rolling_policy)

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
        """Choose the directory of each record."""
        return self._with(buckets=bucket_assigner)

    def with_bucket_check_interval(self, interval: int) -> Self:
        """Accepted for compatibility: buckets are checked after every step."""
        return self

    def build(self) -> FileSink:
        """Build the sink."""
        return FileSink(**{"buckets": BucketAssigner.date_time_bucket_assigner(), **self._chosen})
