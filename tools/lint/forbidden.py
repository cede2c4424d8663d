"""Text that no file may hold: addresses of package registries, and paths of one machine.

A build must take both from the machine's own configuration: registries have mirrors, and a path of
the author's machine is wrong on every other one.
"""

import re

_REGISTRIES = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|deb\.debian\.org|snapshot\.debian\.org"
    r"|security\.debian\.org|bcr\.bazel\.build|mirror\.bazel\.build|download\.pytorch\.org"
    r"|proxy\.golang\.org|crates\.io)\b"
)
_MACHINE_PATHS = re.compile(r"(?<![\w.$}/:])/(?:root|work|opt|Users|home/\w+)(?:/|\b)")


def problems(path, source):
    """Returns one line for each forbidden text of this file."""
    found = []
    for number, line in enumerate(source.splitlines(), 1):
        for what, pattern in (
            ("address of a package registry", _REGISTRIES),
            ("path of one machine", _MACHINE_PATHS),
        ):
            if match := pattern.search(line):
                found.append(f"{path}:{number}: {what}: {match.group()}")
    return found
