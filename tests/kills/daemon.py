"""PySpark's daemon with everything imported, so that the workers it forks start at once."""

# ruff: noqa: F401
import faulthandler
import gc
import signal

import confluent_kafka
import pandas
import psycopg
import pyspark.worker
from pyspark.daemon import manager

import tests.kills.programs
import tidegate.checkpoint.locate
import tidegate.connectors.postgres.sink
import tidegate.exchange.step_task
import tidegate.operators.aggregations.columnar
import tidegate.operators.joins.interval_join
import tidegate.operators.windows.columnar.operator
import tidegate.slot.slot
import tidegate.state.canonical.files
import tidegate.state.columnar.backend
import tidegate.state.rocksdb.backend
import tidegate.state.rocksdb.columnar

if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    gc.freeze()
    manager()
