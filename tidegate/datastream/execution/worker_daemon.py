"""The process from which Spark forks its Python workers, with what slots need already imported.

A slot that replaces a lost one is then up at once: its imports take a second and more. Spark runs
this instead of `pyspark.daemon` in sessions that have `spark.python.daemon.module` set to it.
"""

from __future__ import annotations

import gc
import sys
from contextlib import redirect_stdout, suppress
from importlib import import_module
from typing import Final

from pyspark.daemon import manager

_NEEDED: Final = (
    "pyspark.worker",
    "pandas",  # Arrow loads it for its first conversion to NumPy
    "pyarrow.compute",
    "pyarrow.parquet",
    "tidegate.datastream",
    "tidegate.driver.launch",  # with everything that runs in a slot
)


def main() -> None:
    with redirect_stdout(sys.stderr):  # Spark reads the other one
        # Elsewhere libraries load frameworks of the system that do not survive a fork.
        for module in _NEEDED if sys.platform == "linux" else ():
            with suppress(Exception):  # a worker that needs it says what is wrong with it
                import_module(module)
    gc.collect()
    gc.freeze()  # pages that nobody writes to are shared with the workers
    manager()


if __name__ == "__main__":
    main()
