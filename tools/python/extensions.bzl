"""The module extension that makes @python_interpreter and @pypi."""

load(":interpreter.bzl", "interpreter_repository")
load(":packages.bzl", "packages_repository")

def _python_impl(_ctx):
    interpreter_repository(name = "python_interpreter")
    packages_repository(
        name = "pypi",
        interpreter = "@python_interpreter//:interpreter.json",
    )

python = module_extension(implementation = _python_impl)
