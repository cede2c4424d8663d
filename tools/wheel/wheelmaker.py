"""Writes a wheel from a manifest (see tools/wheel.bzl). The same files give the same bytes.

usage: wheelmaker MANIFEST.json OUTPUT.whl
"""

import base64
import csv
import hashlib
import io
import json
import pathlib
import sys
import zipfile

# The earliest time that a zip archive can hold.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def metadata(manifest, description):
    """Returns the text of METADATA (version 2.4: licence expression and licence files)."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {manifest['distribution']}",
        f"Version: {manifest['version']}",
        *(f"{key}: {value}" for key, value in sorted(manifest["headers"].items())),
        "License-File: LICENSE",
        *(f"Requires-Dist: {requirement}" for requirement in manifest["requires"]),
        "Description-Content-Type: text/markdown",
        "",
        description,
    ]
    return "\n".join(lines)


def wheel_file(manifest):
    """Returns the text of WHEEL."""
    return (
        "Wheel-Version: 1.0\nGenerator: torch_openreg tools/wheel\n"
        f"Root-Is-Purelib: false\nTag: {manifest['tag']}\n"
    )


def entry_points(manifest):
    """Returns the text of entry_points.txt."""
    return "\n".join(
        f"[{group}]\n" + "".join(line + "\n" for line in lines)
        for group, lines in sorted(manifest["entry_points"].items())
    )


def contents(manifest):
    """Returns {path in the wheel: bytes} of all files but RECORD."""
    info = f"{manifest['distribution']}-{manifest['version']}.dist-info"
    description = pathlib.Path(manifest["description"]).read_text(encoding="utf-8")
    found = {
        destination.replace("{dist_info}", info): pathlib.Path(source).read_bytes()
        for destination, source in manifest["files"].items()
    }
    found[f"{info}/METADATA"] = metadata(manifest, description).encode()
    found[f"{info}/WHEEL"] = wheel_file(manifest).encode()
    if manifest["entry_points"]:
        found[f"{info}/entry_points.txt"] = entry_points(manifest).encode()
    return info, found


def record(info, files):
    """Returns the bytes of RECORD: hash and size of each file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for path, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        writer.writerow([path, f"sha256={digest}", len(content)])
    writer.writerow([f"{info}/RECORD", "", ""])
    return text.getvalue().encode()


def write(manifest, output):
    """Writes the wheel: package first, RECORD last, no time stamps, fixed modes."""
    info, files = contents(manifest)
    members = sorted(files.items(), key=lambda item: (item[0].startswith(info), item[0]))
    members.append((f"{info}/RECORD", record(info, files)))
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path, content in members:
            member = zipfile.ZipInfo(path, _EPOCH)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.create_system = 3  # Unix, whose modes follow
            member.external_attr = (0o100755 if path.endswith(".so") else 0o100644) << 16
            archive.writestr(member, content)


if __name__ == "__main__":
    write(json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")), sys.argv[2])
