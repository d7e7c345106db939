"""PySpark's daemon with everything imported, so that the workers it forks start at once."""

import faulthandler
import signal

from pyspark.daemon import manager

import tidegate.connectors.files.sink
import tidegate.connectors.kafka.sink
import tidegate.connectors.kafka.source
import tidegate.connectors.postgres.sink
import tidegate.exchange.step_task
import tidegate.slot.slot
import tidegate.state.rocksdb.backend  # noqa: F401

if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    manager()
