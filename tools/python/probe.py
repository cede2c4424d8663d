"""Prints what the build must know about the interpreter that runs it, as JSON."""

import json
import os
import sys
import sysconfig


def describe():
    """Returns path, version and header folder (None without Python.h) of this interpreter."""
    # In a virtual environment _base_executable is the interpreter that it was made from.
    path = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    include = sysconfig.get_path("include", vars={"base": sys.base_prefix})
    has_headers = os.path.exists(os.path.join(include, "Python.h"))
    return {
        "path": path,
        "version": f"{sys.version_info.major}.{sys.version_info.minor}",
        "tag": f"cp{sys.version_info.major}{sys.version_info.minor}",
        "include": include if has_headers else None,
    }


if __name__ == "__main__":
    json.dump(describe(), sys.stdout, indent=2, sort_keys=True)
