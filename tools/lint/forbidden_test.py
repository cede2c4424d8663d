"""What is forbidden, and what only looks like it."""

import pytest

from tools.lint import forbidden

# Put together here, so that this file does not hold what it looks for.
REGISTRY = "pypi" + ".org"
HOME = "/" + "root"


@pytest.mark.parametrize(
    "line",
    [
        f"url = https://{REGISTRY}/simple",
        f"cd {HOME}/project",
        f'"{HOME}"',
        "see /" + "home/anna/notes",
        "PATH=/" + "opt/x/bin",
    ],
)
def test_forbidden_text_is_found(line):
    assert len(forbidden.problems("a/b.py", "x\n" + line + "\n")) == 1
    assert forbidden.problems("a/b.py", "x\n" + line + "\n")[0].startswith("a/b.py:2: ")


@pytest.mark.parametrize(
    "line",
    [
        "https://github.com/pytorch/pytorch",
        "a/work/b",
        "$HOME/work/x",
        "${PREFIX}" + HOME,
        "/rooted and /worker",
        "/usr/share/java",
        "send/recv, all/opt",
    ],
)
def test_other_text_is_left_alone(line):
    assert forbidden.problems("a/b.py", line) == []
