"""A store of installed lock files, so that a second output base does not install them again.

An entry is a folder under ~/.cache/torch_openreg/packages whose files are hard links to those of
the repositories made from it: no space is used twice, and either side may be deleted. An entry gets
its name when it is complete, by renaming. Whatever goes wrong with it, pip is asked instead.
"""

import hashlib
import os
import shutil
import sys
import tempfile
import time

# An entry that nothing has used for so long is deleted.
_MAX_AGE_DAYS = 30


def _folder():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "torch_openreg", "packages")


class Entry:
    """The installed packages of one lock file for this interpreter."""

    def __init__(self, lock_text):
        # What pip chooses depends on its user's configuration too: a CPU or a CUDA build of torch.
        indexes = [f"{key}={value}" for key, value in sorted(os.environ.items()) if "PIP_" in key]
        key = "\n".join([lock_text, sys.executable, sys.version, *indexes])
        self._path = os.path.join(_folder(), hashlib.sha256(key.encode()).hexdigest()[:16])

    def take(self, target):
        """Makes `target` from the entry; returns False when there is none."""
        if not os.path.isdir(self._path):
            return False
        try:
            shutil.copytree(self._path, target, symlinks=True, copy_function=os.link)
        except OSError:
            # Another file system, or an entry that is being deleted.
            shutil.rmtree(target, ignore_errors=True)
            return False
        os.utime(self._path)
        return True

    def put(self, target):
        """Makes the entry from `target`, and deletes entries that are no longer used."""
        try:
            os.makedirs(_folder(), exist_ok=True)
            self._delete_old()
            with tempfile.TemporaryDirectory(prefix="new-", dir=_folder()) as temporary:
                copy = os.path.join(temporary, "packages")
                shutil.copytree(target, copy, symlinks=True, copy_function=os.link)
                os.rename(copy, self._path)
        except OSError:
            pass  # No home, another file system, or another process was first.

    @staticmethod
    def _delete_old():
        oldest = time.time() - _MAX_AGE_DAYS * 24 * 3600
        for name in os.listdir(_folder()):
            path = os.path.join(_folder(), name)
            if os.stat(path).st_mtime < oldest:
                shutil.rmtree(path, ignore_errors=True)
