"""The process from which Spark forks its Python workers, with the modules of slots preloaded.

A replacement for a lost slot then starts at once, as the imports take more than a second. Spark
runs this instead of `pyspark.daemon` if `spark.python.daemon.module` is set to it.
"""

from __future__ import annotations

import gc
import sys
from contextlib import redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Final

_NEEDED: Final = (
    "pyspark.worker",
    "pandas",  # Arrow loads it for its first conversion to NumPy
    "pyarrow.compute",
    "pyarrow.parquet",
    "tidegate.datastream",
    "tidegate.driver.launch",  # with everything that runs in a slot
)


def unpacked(path: list[str]) -> list[str]:
    """The search path without PySpark's archive if PySpark is also installed unpacked.

    Python compiles the modules of an archive in every process.
    """

    def is_needless(entry: str) -> bool:
        is_archive = entry.endswith("/pyspark/python/lib/pyspark.zip")
        return is_archive and str(Path(entry).parents[3]) in path

    return [entry for entry in path if not is_needless(entry)]


def main() -> None:
    for needless in set(sys.path) - set(kept := unpacked(sys.path)):
        # Spark has every worker read the indexes of all archives again that were ever searched.
        sys.path_importer_cache.pop(needless, None)
    sys.path[:] = kept
    with redirect_stdout(sys.stderr):  # Spark reads standard output
        # Elsewhere, libraries load system frameworks that do not survive a fork.
        for module in _NEEDED if sys.platform == "linux" else ():
            with suppress(Exception):  # a worker that needs it will report the error
                import_module(module)
    gc.collect()
    gc.freeze()  # share unchanged pages with the workers
    import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
