"""How a job has ended is known after its driver is gone."""

import threading

from tests.programs import PATIENCE
from tidegate.web.registry import Registration, known_jobs


def test_a_driver_waits_until_the_end_of_its_job_is_written_down(serve, monkeypatch):
    served = serve({})
    write, begun, may_write = Registration.end, threading.Event(), threading.Event()

    def slowly(registration, record):
        begun.set()
        assert may_write.wait(PATIENCE)
        write(registration, record)

    monkeypatch.setattr(Registration, "end", slowly)
    served.job.cancel()
    assert begun.wait(PATIENCE)
    exiting = threading.Thread(target=served.server._last_words)
    exiting.start()
    exiting.join(0.2)
    assert exiting.is_alive()
    may_write.set()
    exiting.join(PATIENCE)
    assert [record.state for record in known_jobs()] == ["CANCELED"]
