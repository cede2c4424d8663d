"""The sums of .ci/run, from build events and test.xml files as Bazel writes them."""

import json
import pathlib
import runpy

import pytest

count = runpy.run_path(str(pathlib.Path(__file__).with_name("results.py")))["count"]


@pytest.fixture(name="write")
def write_fixture(tmp_path):
    """Returns a function that writes events (and their reports) and gives the file's path."""

    def write(*events):
        (tmp_path / "events.json").write_text("".join(json.dumps(event) + "\n" for event in events))
        return tmp_path / "events.json"

    return write


@pytest.fixture(name="result")
def result_fixture(tmp_path):
    """Returns a function that makes the event of one run of a test."""

    def result(label, status, cases="", shard=1):
        report = tmp_path / f"{label.replace('/', '_')}_{shard}.xml"
        report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
        output = [{"name": "test.xml", "uri": report.as_uri()}]
        return {
            "id": {"testResult": {"label": label, "run": 1, "shard": shard}},
            "testResult": {"status": status, "testActionOutput": output},
        }

    return result


CASES = '<testcase name="a"/><testcase name="b"/><testcase name="c"><skipped/></testcase>'
FAILURE = '<testcase name="d"><failure/></testcase>'


def test_cases_are_counted_and_skipped_ones_are_neither(write, result):
    events = write(result("//a", "PASSED", CASES), result("//b", "FAILED", CASES + FAILURE))
    assert count(events) == {("//a", 1): (2, 0), ("//b", 1): (2, 1)}


def test_a_test_without_cases_is_one(write, result):
    assert count(write(result("//a", "PASSED"))) == {("//a", 1): (1, 0)}


def test_a_failed_test_whose_cases_passed_is_a_failure(write, result):
    assert count(write(result("//a", "TIMEOUT", CASES))) == {("//a", 1): (2, 1)}


def test_each_shard_counts(write, result):
    events = write(result("//a", "PASSED", CASES, 1), result("//a", "PASSED", CASES, 2))
    assert count(events) == {("//a", 1): (2, 0), ("//a", 2): (2, 0)}


def test_a_target_that_does_not_build_is_a_failure(write):
    event = {"id": {"targetCompleted": {"label": "//a"}}, "completed": {}}
    built = {"id": {"targetCompleted": {"label": "//b"}}, "completed": {"success": True}}
    assert count(write(event, built)) == {("//a", 0): (0, 1)}
