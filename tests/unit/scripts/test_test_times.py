from scripts.test_times import main

REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.core.test_ids" name="test_a" time="0.5" />
<testcase classname="tests.unit.core.test_clock.TestClock" name="test_b" time="2.0" />
<testcase classname="tests.test_docs" name="test_c" time="1.0" />
</testsuite></testsuites>"""


def test_folders_and_tests_are_listed_by_their_time(tmp_path, capsys):
    report = tmp_path / "tests.xml"
    report.write_text(REPORT)
    assert main(report) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["3", "tests", "took", "4", "s", "on", "all", "workers"],
        ["2.5", "s", "tests/unit/core", "(2)"],
        ["1.0", "s", "tests", "(1)"],
        ["the", "slowest:"],
        ["2.0", "s", "tests/unit/core/test_clock/TestClock::test_b"],
        ["1.0", "s", "tests/test_docs::test_c"],
        ["0.5", "s", "tests/unit/core/test_ids::test_a"],
    ]


def test_without_a_report_it_says_how_to_make_one(tmp_path, capsys):
    assert main(tmp_path / "tests.xml") == 1
    assert "run `make test` first" in capsys.readouterr().err
