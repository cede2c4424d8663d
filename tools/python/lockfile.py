"""The format of requirements_X_Y.lock: pip's requirement lines with hashes, in two sections.

The first section is installed always. The second holds what only a CUDA build of torch needs: pip
takes that build (the default of the public index) or a CPU one, as the user's configuration says,
and the lock accepts both.
"""

CUDA_SECTION = "# Only with a CUDA build of torch:"


def split(text):
    """Returns (lines installed always, lines for a CUDA build of torch), each as one string."""
    always, found, cuda = text.partition(CUDA_SECTION)
    if not found:
        raise ValueError(f"lock file without the line {CUDA_SECTION!r}: run tools/python/lock")
    return always, cuda


def format_requirement(name, version, sha256s):
    """Returns the lines that pin one package to a version and a set of files."""
    hashes = "".join(f" \\\n    --hash=sha256:{sha256}" for sha256 in sorted(sha256s))
    return f"{name}=={version}{hashes}\n"
