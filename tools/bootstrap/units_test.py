"""The parts of the bootstrap that need no process: what is read, decided, rewritten and said."""

import errno
import io
import os
import types
import zipfile

import pytest

from tools.bootstrap import apt_sources, archive, host, modules, prefix, report

LIST = """\
# deb http://commented.invalid/debian bookworm main
deb [arch=amd64 signed-by=/k] http://one.invalid/debian bookworm main contrib # note
deb-src http://source.invalid/debian bookworm main
deb http://one.invalid/debian-security bookworm-security main
deb http://one.invalid/debian bookworm-updates main
deb [ trusted=yes ] http://vendor.invalid/tool stable main
deb cdrom:[Debian]/ bookworm main
deb mirror+file:/etc/mirrors bookworm main
"""
DEB822 = """\
# The archive
Types: deb deb-src
URIs: http://two.invalid/debian
 http://three.invalid/debian
Suites: trixie trixie-updates
# a comment inside
Components: main
Signed-By: /k

Types: deb
URIs: http://off.invalid/debian
Suites: trixie
Components: main
Enabled: no

Types: deb
URIs: http://vendor.invalid/deb
Suites: nodistro
Components: main
"""


def test_one_line_sources_give_the_main_archive():
    sources = list(apt_sources.parse_list(LIST))
    vendor = "http://vendor.invalid/tool"
    assert apt_sources.debian_mirrors(sources, "bookworm") == [
        "http://one.invalid/debian",
        vendor,  # "stable" may be Debian's: it is tried, and has no fitting Bazel.
        "mirror+file:/etc/mirrors",
    ]


def test_deb822_sources_give_enabled_mirrors_with_continuation_lines():
    sources = list(apt_sources.parse_deb822(DEB822))
    assert apt_sources.debian_mirrors(sources, None) == [
        "http://two.invalid/debian",
        "http://three.invalid/debian",
    ]


def test_a_code_name_of_the_future_is_known_from_the_machine():
    sources = list(apt_sources.parse_list("deb http://m.invalid/debian next main\n"))
    assert apt_sources.debian_mirrors(sources, None) == []
    assert apt_sources.debian_mirrors(sources, "next") == ["http://m.invalid/debian"]


def test_both_styles_are_read_from_a_folder_and_other_files_are_not(tmp_path):
    (tmp_path / "a.list").write_text("deb http://a.invalid/debian sid main\n")
    (tmp_path / "b.sources").write_text(DEB822)
    (tmp_path / "c.list.save").write_text("deb http://c.invalid/debian sid main\n")
    sources = apt_sources.read_sources(str(tmp_path / "missing.list"), str(tmp_path))
    assert [source.uri for source in sources[:2]] == [
        "http://a.invalid/debian",
        "http://two.invalid/debian",
    ]
    assert "http://c.invalid/debian" not in [source.uri for source in sources]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("7.7.1+ds-8+b1", True),
        ("7.4.0-1", True),
        ("1:7.10.0-1", True),
        ("7.3.2-1", False),
        ("4.2.3+ds-9", False),
        ("8.0.0-1", False),
        ("17.4.0-1", False),
    ],
)
def test_versions_from_7_4_to_the_last_7_fit(version, expected):
    assert archive.fits(version) == expected


DEBIAN_12 = {"ID": "debian", "VERSION_ID": "12", "PRETTY_NAME": "Debian 12"}


@pytest.mark.parametrize("version", ["12", "13", ""])
def test_debian_12_and_newer_on_x86_64_will_do(version):
    host.check_platform({**DEBIAN_12, "VERSION_ID": version}, "Linux", "x86_64")


@pytest.mark.parametrize(
    ("release", "system", "machine", "found"),
    [
        (
            {"ID": "ubuntu", "PRETTY_NAME": "Ubuntu 24.04"},
            "Linux",
            "x86_64",
            "this is Ubuntu 24.04",
        ),
        ({}, "Darwin", "x86_64", "this is Darwin"),
        (DEBIAN_12, "Linux", "aarch64", "this is aarch64"),
        ({**DEBIAN_12, "VERSION_ID": "11"}, "Linux", "x86_64", "12 or newer"),
    ],
)
def test_another_platform_is_named_with_what_to_do(release, system, machine, found):
    with pytest.raises(report.BootstrapError) as raised:
        host.check_platform(release, system, machine)
    assert found in str(raised.value)
    assert "put it on PATH" in str(raised.value)


def test_os_release_is_read_without_quotes(tmp_path):
    (tmp_path / "os-release").write_text('ID=debian\nVERSION_ID="12"\n# note\n')
    assert host.os_release(str(tmp_path / "os-release")) == {"ID": "debian", "VERSION_ID": "12"}
    assert host.os_release(str(tmp_path / "none")) == {}


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "is full: free at least"),
        (errno.EDQUOT, "is full: free at least"),
        (errno.EACCES, "cannot write below /cache (Permission denied)"),
        (errno.EROFS, "cannot write below /cache (Read-only file system)"),
        (errno.EIO, "remove /cache"),
    ],
)
def test_errors_of_the_file_system_become_one_sentence(number, words):
    error = report.from_os_error(OSError(number, os.strerror(number)), "/cache", 900)
    assert words in str(error)
    assert "\n" not in str(error)


def test_a_disk_without_room_is_found_before_the_download(tmp_path):
    host.check_disk(str(tmp_path), have_mb=host.NEEDED_MB)
    with pytest.raises(report.BootstrapError, match="is full"):
        host.check_disk(str(tmp_path), have_mb=-(2**40))


def test_a_disk_where_programs_cannot_run_is_found_before_the_download(tmp_path, monkeypatch):
    flags = types.SimpleNamespace(f_flag=os.ST_NOEXEC | os.ST_NOSUID)
    monkeypatch.setattr(os, "statvfs", lambda folder: flags)
    with pytest.raises(report.BootstrapError, match="mounted noexec"):
        host.check_disk(str(tmp_path), have_mb=0)


def test_progress_off_a_terminal_is_a_line_per_tenth():
    stream = io.StringIO()
    progress = report.Progress(stream)
    for percent in (0, 4, 11, 12, 35, 100, 100):
        progress.update("unpacking", percent)
    progress.update("again", 100)
    percents = [line.split()[-2] for line in stream.getvalue().splitlines()]
    assert percents == ["0", "11", "35", "100", "100"]


def _jar(path, class_path=None):
    with zipfile.ZipFile(path, "w") as jar:
        if class_path is not None:
            jar.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\r\n{class_path}\r\n")


def test_the_class_path_is_closed_over_what_jars_ask_for(tmp_path):
    java = tmp_path / "usr/share/java"
    java.mkdir(parents=True)
    (tmp_path / prefix.BAZEL_SHARE).mkdir(parents=True)
    listed = tmp_path / prefix.BAZEL_SHARE / "bazel_classpath_debian_depends.txt"
    listed.write_text("/usr/share/java/a.jar\n/usr/share/java/absent.jar\n")
    _jar(java / "a.jar", "Class-Path: /usr/share/java/b.jar /usr/sh\r\n are/java/c.jar beside.jar")
    _jar(java / "b.jar", "Class-Path: /usr/share/java/a.jar")
    _jar(java / "c.jar")
    _jar(java / "perfmark-api.jar")
    prefix.relocate(str(tmp_path))
    names = [os.path.relpath(line, java) for line in listed.read_text().splitlines()]
    assert names == ["a.jar", "perfmark-api.jar", "b.jar", "c.jar"]


def test_absolute_links_become_relative(tmp_path):
    (tmp_path / "usr/share/bazel").mkdir(parents=True)
    listed = tmp_path / prefix.BAZEL_SHARE / "bazel_classpath_debian_depends.txt"
    listed.write_text("")
    (tmp_path / "etc/java").mkdir(parents=True)
    (tmp_path / "etc/java/security").write_text("yes")
    (tmp_path / "usr/conf").symlink_to("/etc/java")
    (tmp_path / "usr/security").symlink_to("/etc/java/security")
    (tmp_path / "usr/near").symlink_to("security")
    prefix.relocate(str(tmp_path))
    assert os.readlink(tmp_path / "usr/conf") == "../etc/java"
    assert (tmp_path / "usr/near").read_text() == "yes"


def _written_modules(root):
    for part in ("googletest", "googlemock"):
        (root / "usr/src/googletest" / part / "test").mkdir(parents=True)
        (root / "usr/src/googletest" / part / "kept.cc").write_text("")
    modules.write(str(root))
    return (root / "bazelrc").read_text()


def test_every_overridden_module_is_in_every_graph(tmp_path):
    rc = _written_modules(tmp_path)
    overridden = {
        line.split("=")[1]
        for line in rc.splitlines()
        if line.startswith("common --override_module")
    }
    anchor = (tmp_path / "modules/apple_support/MODULE.bazel").read_text()
    asked = {line.split('"')[1] for line in anchor.splitlines() if line.startswith("bazel_dep")}
    assert overridden == asked | {"apple_support"}
    assert {"googletest", "rules_cc", "rules_python", "platforms", "bazel_skylib"} <= overridden


def test_a_path_with_a_space_is_quoted_in_the_rc(tmp_path):
    root = tmp_path / "with space"
    root.mkdir()
    rc = _written_modules(root)
    assert f'common "--registry=file://{root}/registry"' in rc.splitlines()


def test_googletest_is_taken_without_its_own_tests(tmp_path):
    _written_modules(tmp_path)
    folder = tmp_path / "modules/googletest/googletest"
    assert [path.name for path in folder.iterdir()] == ["kept.cc"]
