"""@source_tree//:files.txt: the files of the workspace with a hash of each.

It is how a test of the whole tree runs again when any file changes, without a filegroup in every
package.
"""

def _source_tree_repository_impl(ctx):
    root = ctx.path(ctx.attr._module).dirname
    python = json.decode(ctx.read(ctx.attr._interpreter))["path"]
    result = ctx.execute([python, "-I", ctx.path(ctx.attr._tree), root])
    if result.return_code != 0:
        fail("The source tree could not be listed: " + result.stderr)
    for line in result.stdout.splitlines():
        kind, _, path = line.partition(" ")
        if kind == "dir":
            root.get_child(path).readdir(watch = "yes")
        else:
            ctx.watch(root.get_child(path))
    ctx.file("files.txt", result.stdout)
    ctx.file("BUILD.bazel", "exports_files([\"files.txt\"])\n")

source_tree_repository = repository_rule(
    implementation = _source_tree_repository_impl,
    attrs = {
        "_interpreter": attr.label(default = "@python_interpreter//:interpreter.json"),
        "_module": attr.label(default = "//:MODULE.bazel"),
        "_tree": attr.label(default = "//tools/lint:tree.py"),
    },
)
