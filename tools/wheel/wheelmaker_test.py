"""The wheels that wheelmaker writes: same bytes, right RECORD, readable metadata."""

import base64
import email
import hashlib
import zipfile

import pytest

from tools.wheel import wheelmaker


@pytest.fixture(name="manifest")
def manifest_fixture(tmp_path):
    (tmp_path / "README.md").write_text("# Title\n")
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "b.so").write_bytes(b"\x7fELF")
    return {
        "distribution": "pkg",
        "version": "1.2",
        "tag": "cp311-cp311-linux_x86_64",
        "headers": {"Summary": "S", "Requires-Python": ">=3.11"},
        "requires": ["torch==2.13.*"],
        "description": str(tmp_path / "README.md"),
        "entry_points": {"torch.backends": ["pkg = pkg:load"]},
        "files": {
            "pkg/b.so": str(tmp_path / "b.so"),
            "pkg/a.py": str(tmp_path / "a.py"),
            "{dist_info}/licenses/LICENSE": str(tmp_path / "README.md"),
        },
    }


def test_the_same_manifest_gives_the_same_bytes(manifest, tmp_path):
    wheelmaker.write(manifest, tmp_path / "1.whl")
    manifest["files"] = dict(reversed(manifest["files"].items()))
    (tmp_path / "a.py").touch()
    wheelmaker.write(manifest, tmp_path / "2.whl")
    assert (tmp_path / "1.whl").read_bytes() == (tmp_path / "2.whl").read_bytes()


def test_record_lists_each_file_with_its_hash(manifest, tmp_path):
    wheelmaker.write(manifest, tmp_path / "1.whl")
    with zipfile.ZipFile(tmp_path / "1.whl") as wheel:
        lines = wheel.read("pkg-1.2.dist-info/RECORD").decode().splitlines()
        assert sorted(line.split(",")[0] for line in lines) == sorted(wheel.namelist())
        assert wheel.namelist()[-1] == "pkg-1.2.dist-info/RECORD"
        for path, digest, size in (line.split(",") for line in lines[:-1]):
            content = wheel.read(path)
            raw = base64.urlsafe_b64decode(digest.removeprefix("sha256=") + "=")
            assert raw == hashlib.sha256(content).digest()
            assert int(size) == len(content)


def test_metadata_is_complete(manifest, tmp_path):
    wheelmaker.write(manifest, tmp_path / "1.whl")
    with zipfile.ZipFile(tmp_path / "1.whl") as wheel:
        metadata = email.message_from_bytes(wheel.read("pkg-1.2.dist-info/METADATA"))
        entry_points = wheel.read("pkg-1.2.dist-info/entry_points.txt").decode()
        modes = {info.filename: info.external_attr >> 16 for info in wheel.infolist()}
    assert metadata["Name"] == "pkg"
    assert metadata["Version"] == "1.2"
    assert metadata["Requires-Dist"] == "torch==2.13.*"
    assert metadata["License-File"] == "LICENSE"
    assert metadata.get_payload() == "# Title\n"
    assert entry_points == "[torch.backends]\npkg = pkg:load\n"
    assert modes["pkg/b.so"] == 0o100755
    assert modes["pkg/a.py"] == 0o100644
