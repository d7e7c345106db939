"""`python -m benchmarks`: see `benchmarks/README.md`."""

from benchmarks.cli import app

app(prog_name="python -m benchmarks")
