"""@buildifier//:buildifier: the program, from its npm package or from PATH.

No Python package or Debian package carries it. On a machine without it, or without a network, the
target is a text file with the reason, and lint says that this check was not run.
"""

_PACKAGE = "@bazel/buildifier@8.2.1"
_SHA256 = "b96ea9b13003036c801f52bee6f9b0314738f8432e5cb9d814c89f59292604ee"

def _from_npm(ctx):
    """Fetches the program; returns an error message, or None when it is there."""
    npm = ctx.which("npm")
    if not npm:
        return "neither npm nor buildifier is on PATH"
    result = ctx.execute([npm, "pack", "--silent", _PACKAGE], timeout = 300)
    if result.return_code != 0:
        return "npm could not fetch %s: %s" % (_PACKAGE, result.stderr.strip().splitlines()[-1:])
    archive = result.stdout.strip().splitlines()[-1]
    found = ctx.execute(["sha256sum", archive]).stdout.split(" ")[0]
    if found != _SHA256:
        fail("%s has the hash %s, not %s" % (_PACKAGE, found, _SHA256))
    ctx.extract(archive, stripPrefix = "package")
    ctx.delete(archive)
    return None

def _buildifier_repository_impl(ctx):
    ctx.report_progress("Fetching " + _PACKAGE)
    error = _from_npm(ctx)
    program = "buildifier-linux_amd64"
    if error and ctx.which("buildifier"):
        program = "buildifier"
        ctx.symlink(ctx.which("buildifier"), program)
    elif error:
        program = "unavailable.txt"
        ctx.file(program, error + "\n")
    ctx.file("BUILD.bazel", """\
alias(
    name = "program",
    actual = "%s",
    visibility = ["//visibility:public"],
)
""" % program)

buildifier_repository = repository_rule(implementation = _buildifier_repository_impl)
