"""What tests execute: ``python scripts/coverage_by_package.py REPORT [PACKAGE]``.

The report is written by `coverage json`. Of the package, by default `tidegate/protocol`, every
line and branch is listed that is never executed.
"""

import json
import sys
from collections import Counter
from pathlib import Path


def main(report, chosen="tidegate/protocol"):
    files = json.loads(Path(report).read_text())["files"]
    sums = {}
    for path, found in files.items():
        package = "/".join(path.split("/")[:2]) if path.count("/") > 1 else path.split("/")[0]
        numbers = {k: v for k, v in found["summary"].items() if isinstance(v, int)}
        sums.setdefault(package, Counter()).update(numbers)
    sums["all"] = sum(sums.values(), Counter())
    print("| package | lines | executed | branches | taken |\n|---|---|---|---|---|")
    for package, n in sums.items():
        lines = _share(n["covered_lines"], n["num_statements"])
        branches = _share(n["covered_branches"], n["num_branches"])
        print(f"| {package} | {n['num_statements']} | {lines} | {n['num_branches']} | {branches} |")
    for path, found in files.items():
        if path.startswith(f"{chosen}/") and (found["missing_lines"] or found["missing_branches"]):
            print(f"{path}: lines {found['missing_lines']}, branches {found['missing_branches']}")


def _share(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
