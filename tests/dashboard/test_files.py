"""The files of the dashboard: how much a browser loads, and what they may not do."""

import gzip
import re
from pathlib import Path

import tidegate

FILES = Path(tidegate.__file__).parent / "web" / "dashboard"
MOST_BYTES = 250_000
DANGEROUS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function"
)


def own_scripts():
    return [file for file in FILES.rglob("*.js") if file.parent.name != "vendor"]


def test_all_files_together_are_small():
    sizes = [len(gzip.compress(file.read_bytes())) for file in FILES.rglob("*") if file.is_file()]
    assert len(sizes) > 40
    assert sum(sizes) <= MOST_BYTES


def test_no_script_makes_html_of_text():
    assert len(own_scripts()) > 30
    assert [file.name for file in own_scripts() if DANGEROUS.search(file.read_text())] == []


def test_nothing_is_loaded_from_elsewhere():
    texts = {file: file.read_text() for file in FILES.rglob("*.*") if file.parent.name != "vendor"}
    addresses = [found for text in texts.values() for found in re.findall(r"https?://[\w.]+", text)]
    assert set(addresses) <= {"http://www.w3.org"}


def test_every_import_leads_to_a_file():
    missing = [
        f"{file.relative_to(FILES)}: {path}"
        for file in FILES.rglob("*.js")
        for path in re.findall(r'(?:from|import) ?"([^"]+)"', file.read_text())
        if not (file.parent / path).is_file()
    ]
    assert missing == []


def test_no_folder_is_crowded_and_no_script_long():
    assert [file.name for file in own_scripts() if len(file.read_text().splitlines()) > 400] == []
    folders = {file.parent for file in own_scripts()}
    assert [folder.name for folder in folders if len(list(folder.iterdir())) > 20] == []
