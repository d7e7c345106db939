import platform
import resource
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from tidegate.slot.slot import set_up_memory

set_up_memory()

def batch():
    return [np.ones(1 << 17) for _ in range(8)]

batch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    batch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is set up")
def test_the_pages_of_a_batch_are_used_again_for_the_next():
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    ).stdout
    pages_of_a_batch = 8 * (8 << 17) // resource.getpagesize()
    assert int(printed) < 5 * pages_of_a_batch
