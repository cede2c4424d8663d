"""What each layer depends on today. check_arrows.py proves that Bazel refuses wrong arrows."""

import pathlib
import re


def deps(name):
    text = pathlib.Path(f"tests/layering/{name}_deps").read_text()
    return set(text.splitlines())


def matching(labels, pattern):
    return sorted(label for label in labels if re.search(pattern, label))


def test_openreg_knows_only_itself():
    labels = deps("openreg")
    assert matching(labels, r"^//openreg/runtime")
    assert matching(labels, r"^//(occl|python|tests|examples)\b|pypi//|python_interpreter//") == []


def test_occl_knows_openreg_and_no_torch():
    labels = deps("occl")
    assert matching(labels, r"^//occl/")
    assert matching(labels, r"^//(python|tests|examples)\b|pypi//|python_interpreter//") == []


def test_the_binding_knows_torch_and_no_tests():
    labels = deps("torch_openreg")
    assert matching(labels, r"pypi//:torch$")
    assert matching(labels, r"^//(tests|examples)\b") == []
