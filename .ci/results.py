"""Counts test cases from what Bazel writes: its build events, and each test's test.xml."""

import json
import pathlib
import urllib.parse
import xml.etree.ElementTree


def _cases(report):
    """Returns (passed, failed) of a test.xml; skipped cases count as neither."""
    passed = failed = 0
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        outcomes = {child.tag for child in case}
        if outcomes & {"failure", "error"}:
            failed += 1
        elif "skipped" not in outcomes:
            passed += 1
    return passed, failed


def _of_attempt(event):
    """Returns (passed, failed) of one run of a test or of one shard."""
    succeeded = event["status"] == "PASSED"
    passed = failed = 0
    for output in event.get("testActionOutput", []):
        if output["name"] == "test.xml":
            path = pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path))
            try:
                passed, failed = _cases(path)
            except (OSError, xml.etree.ElementTree.ParseError):
                continue
    if succeeded:
        # A test that reports no cases (a plain program, an empty shard) is one case.
        return max(passed, 1), 0
    return passed, max(failed, 1)


def count(events):
    """Returns {name of a test, shard or target that failed to build: (passed, failed)}."""
    found = {}
    built_badly = {}
    with open(events, encoding="utf-8") as file:
        for line in file:
            event = json.loads(line)
            if "testResult" in event:
                name = event["id"]["testResult"]
                key = (name["label"], name.get("shard", 1))
                # A later attempt of the same shard replaces an earlier one.
                found[key] = _of_attempt(event["testResult"])
            elif "targetCompleted" in event["id"] and not event.get("completed", {}).get("success"):
                built_badly[(event["id"]["targetCompleted"]["label"], 0)] = (0, 1)
    tested = {label for label, _ in found}
    return found | {key: value for key, value in built_badly.items() if key[0] not in tested}
