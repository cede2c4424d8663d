"""The tree passes every check of tools/lint."""

import os
import pathlib

import pytest

from tools.lint import checks

# The sandbox links to the real files; the listing is what makes this test run again.
ROOT = pathlib.Path(os.path.realpath("MODULE.bazel")).parent
FILES = [
    line.partition(" ")[2]
    for line in pathlib.Path(os.environ["SOURCE_TREE"]).read_text().splitlines()
    if not line.startswith("dir ")
]


def test_the_listing_is_of_this_tree():
    assert "tools/lint/lint_test.py" in FILES
    assert len(FILES) > 50


@pytest.mark.parametrize("check", checks.ALL, ids=lambda check: check.__name__)
def test_tree_passes(check):
    try:
        problems = check(str(ROOT), FILES, False)
    except checks.Unavailable as reason:
        pytest.skip(str(reason))
    if problems:
        pytest.fail(
            "\n".join([*problems, "mend: tools/bazel run //tools/lint -- --fix"]), pytrace=False
        )
