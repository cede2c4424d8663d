"""Lists the files of the workspace, those that people write.

usage: tree.py ROOT        prints "HASH PATH" of each file, and "dir PATH" of each folder
"""

import hashlib
import os
import pathlib
import sys

# Beside these, what starts with "bazel-" is Bazel's.
_SKIPPED = {
    *("__pycache__", ".git", ".mypy_cache", ".pytest_cache", ".ruff_cache", "user.bazelrc"),
    # Written by //examples:train_digits where it is started.
    *("train_digits.json", "train_digits.png", "train_digits_trace.json"),
}


def walk(root):
    """Yields (folder, file names) below root, relative to it and sorted."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _SKIPPED
            and not name.startswith("bazel-")
            and not os.path.islink(os.path.join(folder, name))
        )
        wanted = [
            name
            for name in sorted(files)
            if name not in _SKIPPED and not name.startswith("bazel-") and not name.endswith(".pyc")
        ]
        yield os.path.relpath(folder, root), wanted


def files_of(root):
    """Returns the paths of all files, relative to root."""
    return [
        os.path.normpath(os.path.join(folder, name))
        for folder, names in walk(root)
        for name in names
    ]


def main(root):
    """Prints the listing."""
    for folder, names in walk(root):
        print("dir", folder)
        for name in names:
            path = os.path.normpath(os.path.join(folder, name))
            content = pathlib.Path(root, path).read_bytes()
            print(hashlib.sha256(content).hexdigest(), path)


if __name__ == "__main__":
    main(sys.argv[1])
