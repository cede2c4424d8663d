"""Finds a pip for this interpreter, also where Python came without one."""

import glob
import os
import subprocess
import sys


def pip_command():
    """Returns the command line that runs pip; without one, exits with a sentence that helps."""
    run = [sys.executable, "-m", "pip"]
    if subprocess.run([*run, "--version"], capture_output=True, check=False).returncode == 0:
        return run
    # pip's wheel runs as it is: ensurepip brings one, and so do Debian's packages.
    patterns = [
        os.environ.get("TORCH_OPENREG_PIP_WHEEL", ""),
        os.path.join(os.path.dirname(os.__file__), "ensurepip", "_bundled", "pip-*.whl"),
        "/usr/share/python-wheels/pip-*.whl",
    ]
    for pattern in filter(None, patterns):
        for wheel in sorted(glob.glob(pattern), reverse=True):
            return [sys.executable, os.path.join(wheel, "pip")]
    sys.exit(f"{sys.executable} has no pip: install it (Debian: apt-get install python3-pip).")
