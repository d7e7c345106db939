"""Where DataFrames are handed over to slots and back."""

from __future__ import annotations

import atexit
import tempfile
import uuid

from pyarrow import fs

from tidegate.core.setting_groups import SparkSettings
from tidegate.storage.locations import resolve


class ExchangeDirectory:
    """A directory of one environment, made when it is first needed.

    It stays until the process ends, as DataFrames that were read from it may be computed any time,
    unless it is removed before.
    """

    def __init__(self) -> None:
        self._path: str | None = None

    def path(self, settings: SparkSettings) -> str:
        if self._path is None:
            parent = settings.exchange_directory or tempfile.gettempdir()
            self._path = f"{parent.rstrip('/')}/tidegate-exchange-{uuid.uuid4().hex[:12]}"
            atexit.register(self.remove)
        return self._path

    def remove(self) -> None:
        if self._path is None:
            return
        path, self._path = self._path, None
        atexit.unregister(self.remove)
        file_system, inner = resolve(path)
        if file_system.get_file_info(inner).type is fs.FileType.Directory:
            file_system.delete_dir(inner)
