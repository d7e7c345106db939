"""`python -m tidegate` is the `tidegate` command."""

from tidegate.cli.main import app

app(prog_name="tidegate")
