"""Repositories that only this repository's own lint needs: @source_tree and @buildifier."""

load(":buildifier.bzl", "buildifier_repository")
load(":source_tree.bzl", "source_tree_repository")

def _lint_impl(_ctx):
    source_tree_repository(name = "source_tree")
    buildifier_repository(name = "buildifier")

lint = module_extension(implementation = _lint_impl)
