"""What a pytest_test promises, tried on small test files in a process of their own."""

import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import pytest

RUNNER = pathlib.Path("tools/pytest_runner.py").resolve()
TESTS = "def test_a(): pass\ndef test_b(): pass\ndef test_c(): pass\n"


@pytest.fixture(name="run")
def run_fixture(tmp_path):
    """Returns a function that runs the runner on a file and gives (code, names of cases run)."""

    def run(text, **environment):
        (tmp_path / "test_it.py").write_text(text)
        report = tmp_path / "test.xml"
        report.unlink(missing_ok=True)
        clean = {key: value for key, value in os.environ.items() if not key.startswith("TEST")}
        environment["XML_OUTPUT_FILE"] = str(report)
        result = subprocess.run(
            [sys.executable, RUNNER, "test_it.py"],
            cwd=tmp_path,
            env={**clean, **environment},
            check=False,
            timeout=120,
        )
        cases = xml.etree.ElementTree.parse(report).iter("testcase")
        return result.returncode, [case.get("name") for case in cases]

    return run


def test_each_case_is_in_the_report(run):
    assert run(TESTS) == (0, ["test_a", "test_b", "test_c"])


def test_a_failing_case_fails(run):
    assert run("def test_a(): assert False")[0] == 1


def test_a_file_without_tests_fails(run):
    assert run("")[0] != 0


def test_shards_are_disjoint_and_complete(run, tmp_path):
    names = []
    for index in range(2):
        status = tmp_path / f"status{index}"
        environment = {"TEST_TOTAL_SHARDS": "2", "TEST_SHARD_INDEX": str(index)}
        code, part = run(TESTS, TEST_SHARD_STATUS_FILE=str(status), **environment)
        assert code == 0
        assert status.exists()
        names += part
    assert sorted(names) == ["test_a", "test_b", "test_c"]


def test_a_shard_without_cases_passes(run):
    assert run(TESTS, TEST_TOTAL_SHARDS="9", TEST_SHARD_INDEX="8") == (0, [])


def test_a_file_without_tests_fails_in_every_shard(run):
    assert run("", TEST_TOTAL_SHARDS="2", TEST_SHARD_INDEX="1")[0] != 0


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("test_b", ["test_b"]),
        ("a or c", ["test_a", "test_c"]),
        ("test_it.py::test_c", ["test_c"]),
        ("no_such_case", []),
    ],
)
def test_filter_is_a_name_an_expression_or_a_node_id(run, wanted, names):
    assert run(TESTS, TESTBRIDGE_TEST_ONLY=wanted) == (0, names)


def test_a_child_process_imports_the_same_packages(run):
    text = "import subprocess, sys\n"
    text += (
        "def test_a(): subprocess.run([sys.executable, '-c', 'import expecttest'], check=True)\n"
    )
    assert run(text)[0] == 0
