#!/usr/bin/env python3
"""Proves that wrong arrows between layers fail, by asking Bazel to analyse them.

usage: tests/layering/check_arrows.py        (from anywhere; it runs tools/bazel)

A test cannot run Bazel inside Bazel; .ci/run and people run this. What each layer depends on today
is checked by //tests/layering:layers_test.
"""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ARROWS = HERE / "arrows"


def arrows():
    """Returns the labels of all targets under arrows/."""
    labels = []
    for build in sorted(ARROWS.rglob("BUILD.bazel")):
        package = build.parent.relative_to(ARROWS)
        names = re.findall(r'name = "(\w+)"', build.read_text())
        labels += [f"//{package}:{name}" for name in names]
    return labels


def analyse(labels):
    """Returns (exit code, what Bazel printed) of analysing the targets, as many as can be."""
    command = [ROOT / "tools/bazel", "build", "--nobuild", "--keep_going", "--color=no"]
    command += [f"--package_path=%workspace%:{ARROWS}", *labels]
    result = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return result.returncode, result.stdout


def main():
    """Returns the number of arrows that Bazel took the wrong way, at most 1 as exit code."""
    labels = arrows()
    wrong = [label for label in labels if ":wrong_" in label]
    right = [label for label in labels if ":right_" in label]
    if not wrong or not right or len(wrong) + len(right) != len(labels):
        sys.exit(f"arrows are named right_* or wrong_*, and there are some of each: {labels}")
    code, printed = analyse(right)
    mistakes = [f"{label}: refused" for label in right] if code else []
    if code:
        print(printed)
    _, refusals = analyse(wrong)
    for label in wrong:
        # The refusal names the arrow's own target, and its reason is visibility.
        visibility = rf"'[^']*' is not visible from\s+target '{re.escape(label)}'"
        if not re.search(visibility, refusals):
            mistakes.append(f"{label}: not refused because of visibility")
    if mistakes:
        print(refusals)
    print("\n".join(mistakes))
    print(f"arrows: {len(labels) - len(mistakes)} passed, {len(mistakes)} failed")
    return min(len(mistakes), 1)


if __name__ == "__main__":
    sys.exit(main())
