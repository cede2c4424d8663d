"""The store of installed packages, and the format of the lock file."""

import os
import time

import pytest

from tools.python import lockfile, store


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "torch_openreg" / "packages"


@pytest.fixture(name="installed")
def installed_fixture(tmp_path):
    (tmp_path / "installed" / "pkg").mkdir(parents=True)
    (tmp_path / "installed" / "pkg" / "a.py").write_text("x = 1\n")
    return tmp_path / "installed"


def test_an_entry_gives_back_what_was_put(installed, tmp_path):
    assert not store.Entry("lock").take(str(tmp_path / "copy"))
    store.Entry("lock").put(str(installed))
    assert store.Entry("lock").take(str(tmp_path / "copy"))
    assert os.path.samefile(tmp_path / "copy" / "pkg" / "a.py", installed / "pkg" / "a.py")


def test_another_lock_file_has_another_entry(installed, tmp_path):
    store.Entry("lock").put(str(installed))
    assert not store.Entry("other").take(str(tmp_path / "copy"))


def test_other_indexes_have_another_entry(installed, tmp_path, monkeypatch):
    store.Entry("lock").put(str(installed))
    monkeypatch.setenv("PIP_FIND_LINKS", "elsewhere")
    assert not store.Entry("lock").take(str(tmp_path / "copy"))


def test_the_second_of_two_writers_changes_nothing(installed, cache):
    store.Entry("lock").put(str(installed))
    store.Entry("lock").put(str(installed))
    assert len(list(cache.iterdir())) == 1


def test_unused_entries_are_deleted(installed, cache):
    store.Entry("lock").put(str(installed))
    (old,) = cache.iterdir()
    os.utime(old, (0, time.time() - 31 * 24 * 3600))
    store.Entry("other").put(str(installed))
    assert not old.exists()


def test_without_a_cache_folder_nothing_is_kept(installed, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    store.Entry("lock").put(str(installed))
    assert not store.Entry("lock").take(str(tmp_path / "copy"))


def test_a_lock_file_has_two_sections():
    text = lockfile.format_requirement("a", "1", {"y", "x"}) + lockfile.CUDA_SECTION + "\nb==2\n"
    always, cuda = lockfile.split(text)
    assert always == "a==1 \\\n    --hash=sha256:x \\\n    --hash=sha256:y\n"
    assert cuda == "\nb==2\n"
    with pytest.raises(ValueError, match="tools/python/lock"):
        lockfile.split("a==1\n")
