"""Puts the JavaScript packages of the dashboard into its folder `vendor`, with their licences.

Browsers resolve no package names without an import map, and a strict content security policy
allows none in the page. So the imports of the packages become paths. Needs `npm`, to download.
"""

import io
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
VENDOR = ROOT / "tidegate" / "web" / "dashboard" / "vendor"


class Package(NamedTuple):
    name: str
    version: str
    files: dict[str, str]
    """From the name here to the path in the package."""


PACKAGES = (
    Package(
        "preact",
        "11.2.0",
        {"preact.js": "dist/preact.mjs", "hooks.js": "hooks/dist/hooks.mjs"},
    ),
    Package("htm", "3.1.1", {"htm.js": "dist/htm.mjs"}),
    Package("@preact/signals-core", "1.14.5", {"signals-core.js": "dist/signals-core.mjs"}),
    Package("@preact/signals", "2.11.4", {"signals.js": "dist/signals.mjs"}),
    Package(
        "uplot", "1.6.32", {"uplot.js": "dist/uPlot.iife.min.js", "uplot.css": "dist/uPlot.min.css"}
    ),
    Package("@dagrejs/dagre", "3.1.1", {"dagre.js": "dist/dagre.esm.js"}),
)
IMPORTS = {
    '"preact"': '"./preact.js"',
    '"preact/hooks"': '"./hooks.js"',
    '"@preact/signals-core"': '"./signals-core.js"',
}
APPENDED = {"uplot.js": "\nexport default uPlot;\n"}
"""Its small form is a script that defines a variable."""


def main() -> None:
    VENDOR.mkdir(exist_ok=True)
    notices = []
    for package in PACKAGES:
        content = downloaded(package)
        for name, path in package.files.items():
            (VENDOR / name).write_text(adapted(name, content[f"package/{path}"].decode()))
        licence = content["package/LICENSE"].decode().strip()
        names = ", ".join(package.files)
        notices.append(f"{package.name} {package.version} ({names})\n\n{licence}\n")
    rule = "\n" + 100 * "-" + "\n\n"
    (VENDOR / "LICENSES.txt").write_text(rule.join(notices))


def downloaded(package: Package) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        wanted = f"{package.name}@{package.version}"
        command = ["npm", "pack", "--silent", "--pack-destination", folder, wanted]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).iterdir()
        with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as files:
            return {
                member.name: found.read()
                for member in files
                if (found := files.extractfile(member)) is not None
            }


def adapted(name: str, code: str) -> str:
    lines = [line for line in code.splitlines() if not line.startswith("//# sourceMappingURL")]
    text = "\n".join(lines) + "\n"
    if name.endswith(".js"):
        for package, path in IMPORTS.items():
            text = text.replace(f"from{package}", f"from{path}")
    return text + APPENDED.get(name, "")


if __name__ == "__main__":
    main()
