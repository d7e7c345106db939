from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.core.errors import ConfigError
from tidegate.verify.content import check_address, read_content


def test_files_are_the_lines_of_those_that_are_not_hidden(tmp_path):
    directory = tmp_path / "out-first"
    (directory / "2024").mkdir(parents=True)
    (directory / "part-0.txt").write_text("a\nb\n")
    (directory / "2024" / "part-1.txt").write_text("b\n")
    (directory / ".part-2.txt").write_text("half a li")
    (directory / "_SUCCESS").write_text("done\n")
    assert read_content(str(tmp_path / "out-{run}"), "first") == Counter("abb")


def test_parquet_files_are_their_rows(tmp_path):
    (tmp_path / "out-first").mkdir()
    table = pa.table({"key": ["a", "a"], "values": [[1], [2]]})
    pq.write_table(table, tmp_path / "out-first" / "part-0.parquet")
    found = read_content(f"file://{tmp_path}/out-{{run}}", "first")
    assert found == Counter([(("key", "a"), ("values", (1,))), (("key", "a"), ("values", (2,)))])


def test_how_many_csv_files_there_are_does_not_matter(tmp_path):
    for run, files in {"one": ["k,v\n1,2\n3,4\n"], "two": ["k,v\n1,2\n", "k,v\n3,4\n"]}.items():
        (tmp_path / run).mkdir()
        for number, text in enumerate(files):
            (tmp_path / run / f"part-{number}.csv").write_text(text)
    address = str(tmp_path / "{run}")
    assert read_content(address, "one") == read_content(address, "two")


def test_a_function_reads_what_nobody_else_can(tmp_path):
    (tmp_path / "check.py").write_text("def results(run):\n    return [run, [1, 2], {'a': 1}]\n")
    found = read_content(f"{tmp_path}/check.py:results", "first")
    assert found == Counter(["first", (1, 2), (("a", 1),)])


def test_a_directory_that_is_not_there_is_empty(tmp_path):
    assert not read_content(str(tmp_path / "{run}"), "first")


@pytest.mark.parametrize(
    "address", ["/tmp/results", "kafka://localhost:9092/results", "postgresql://localhost/db#table"]
)
def test_an_address_that_all_runs_share_is_refused(address):
    with pytest.raises(ConfigError, match=r"put \{run\} into it"):
        check_address(address)


def test_a_function_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no such file or function"):
        read_content(f"{tmp_path}/check.py:results", "first")
