"""What the tests took: ``python scripts/test_times.py REPORT``, written by pytest's --junitxml."""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

SLOWEST = 40


def main(report):
    if not report.exists():
        print(f"there is no {report}: run `make test` first", file=sys.stderr)
        return 1
    tests, folders, numbers = Counter(), Counter(), Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        path, seconds = case.get("classname", "").replace(".", "/"), float(case.get("time", 0))
        folder = path.partition("/test_")[0]
        tests[f"{path}::{case.get('name')}"] += seconds
        folders[folder] += seconds
        numbers[folder] += 1
    print(f"{sum(numbers.values())} tests took {sum(tests.values()):.0f} s on all workers")
    for folder, seconds in folders.most_common():
        print(f"{seconds:8.1f} s  {folder} ({numbers[folder]})")
    print("the slowest:")
    for test, seconds in tests.most_common(SLOWEST):
        print(f"{seconds:8.1f} s  {test}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
