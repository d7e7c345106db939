"""Ctrl-C and SIGTERM at moments when they would do harm."""

import signal

import pytest

from tidegate.driver.interrupts import held_interrupts, plain_interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_the_end_of_the_block(number):
    done = []

    def interrupted():
        with held_interrupts():
            signal.raise_signal(number)
            done.append("the rest of the block")

    with plain_interrupts(), pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done


def test_a_second_interrupt_does_not_wait():
    done = []

    def interrupted():
        with held_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("the first waits")
            signal.raise_signal(signal.SIGINT)
            done.append("never")

    with plain_interrupts(), pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["the first waits"]


def test_handlers_that_the_block_installs_do_not_stay():
    before = signal.getsignal(signal.SIGINT)
    with held_interrupts():
        signal.signal(signal.SIGINT, lambda number, frame: None)
    assert signal.getsignal(signal.SIGINT) is before
