"""docs/configuration.md says what the options say."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_page_has_every_option_as_it_is():
    script = runpy.run_path(str(ROOT / "scripts" / "configuration_page.py"))
    written = (ROOT / "docs" / "configuration.md").read_text()
    assert script["page"](written) == written, "run python scripts/configuration_page.py"
