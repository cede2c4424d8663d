"""Installs a Bazel from the Debian archive: python3 tools/bootstrap PREFIX.

PREFIX is the folder that tools/bazel then runs Bazel from. The install is whole exactly when
PREFIX/complete exists: it is written last, after Bazel has built something. Everything before that
can be interrupted at any point; what an interrupted run leaves is removed, or in the case of
downloads used, by the next. A lock beside PREFIX keeps two runs apart.
"""

import os
import sys

# Whatever python3 is first on PATH comes here, so the linter's lowest version does not hold.
if sys.version_info < (3, 9):  # noqa: UP036
    sys.exit("tools/bazel: python3 on PATH is older than 3.9: put Python 3.11 on PATH.")
sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tools.bootstrap import install, report  # noqa: E402


def main() -> int:
    """Runs the install; the exit code."""
    if len(sys.argv) != 2:
        print("usage: python3 tools/bootstrap PREFIX", file=sys.stderr)
        return 2
    try:
        install.install(os.path.abspath(sys.argv[1]), report.Progress())
    except report.BootstrapError as error:
        print(f"\ntools/bazel: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ntools/bazel: interrupted; the next run goes on from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
