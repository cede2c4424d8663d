"""Checks the whole tree, or mends what a tool can mend.

usage: tools/bazel run //tools/lint [-- --fix] [-- CHECK...]
"""

import argparse
import os
import sys

from tools.lint import checks, tree


def main():
    """Returns 1 when there are problems."""
    names = {check.__name__: check for check in checks.ALL}
    parser = argparse.ArgumentParser(prog="lint", description=__doc__.splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="mend what a tool can mend")
    parser.add_argument("check", nargs="*", help=f"of {', '.join(names)}; all of them by default")
    options = parser.parse_args()
    if unknown := set(options.check) - set(names):
        parser.error(f"no such check: {', '.join(sorted(unknown))}")
    root = os.environ["BUILD_WORKSPACE_DIRECTORY"]
    files = tree.files_of(root)
    failed = False
    for name in options.check or names:
        try:
            problems = names[name](root, files, options.fix)
        except checks.Unavailable as reason:
            print(f"{name}: not run: {reason}")
            continue
        print(f"{name}: {f'{len(problems)} lines of problems' if problems else 'good'}", flush=True)
        print("".join(line + "\n" for line in problems), end="")
        failed = failed or bool(problems)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
