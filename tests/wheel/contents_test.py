"""The wheel's files and metadata, and the dynamic sections of its binaries."""

import email
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

WHEEL = pathlib.Path(os.environ["WHEEL"])
BINARIES = {
    "torch_openreg/_C.so": (r"PyInit__C", "$ORIGIN/lib"),
    "torch_openreg/lib/liboccl.so": (r"occl[A-Z]\w*", "$ORIGIN"),
    "torch_openreg/lib/libopenreg.so": (r"or[A-Z]\w*", None),
}
# What every machine with this Python and torch has, and what the wheel brings.
MAY_NEED = re.compile(
    r"lib(torch|torch_cpu|torch_python|c10|occl|openreg|stdc\+\+|gcc_s|c|m|dl|pthread|rt)\.so[.\d]*"
    r"|ld-linux-x86-64\.so\.2"
)


@pytest.fixture(scope="module", name="unpacked")
def unpacked_fixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(WHEEL) as archive:
        archive.extractall(folder)
    return folder


def info(unpacked, name):
    (folder,) = unpacked.glob("*.dist-info")
    return (folder / name).read_text()


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_name_and_tag_fit_this_python(unpacked):
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"Tag: {tag}-{tag}-linux_x86_64\n" in info(unpacked, "WHEEL")
    assert WHEEL.name.endswith(f"-{tag}-{tag}-linux_x86_64.whl")


def test_metadata_names_torch_the_licence_and_the_modules_version(unpacked):
    metadata = email.message_from_string(info(unpacked, "METADATA"))
    module = pathlib.Path("MODULE.bazel").read_text()
    assert metadata["Name"] == "torch_openreg"
    assert f'version = "{metadata["Version"]}",' in module
    assert metadata.get_all("Requires-Dist") == ["torch==2.13.*"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Apache License" in info(unpacked, "licenses/LICENSE")
    assert info(unpacked, "entry_points.txt") == (
        "[torch.backends]\ntorch_openreg = torch_openreg:_autoload\n"
    )


@pytest.mark.parametrize(
    "path",
    [
        *BINARIES,
        "torch_openreg/__init__.py",
        "torch_openreg/_C.pyi",
        "torch_openreg/py.typed",
        "torch_openreg/include/openreg/api/openreg.h",
        "torch_openreg/include/occl/api/occl.h",
    ],
)
def test_file_is_there(unpacked, path):
    assert (unpacked / path).is_file()


def test_torch_is_not_bundled(unpacked):
    libraries = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*.so*")}
    assert libraries == set(BINARIES)


@pytest.mark.parametrize("path", BINARIES)
def test_binary_exports_only_its_api(unpacked, path):
    table = output("nm", "-D", "--defined-only", "--format=just-symbols", unpacked / path)
    symbols = [line.partition("@")[0] for line in table.splitlines()]
    assert symbols
    assert [name for name in symbols if not re.fullmatch(BINARIES[path][0], name)] == []


@pytest.mark.parametrize("path", BINARIES)
def test_binary_finds_its_libraries_relative_to_itself(unpacked, path):
    dynamic = output("readelf", "-dW", unpacked / path)
    run_paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic)
    assert run_paths == [BINARIES[path][1]] * (BINARIES[path][1] is not None)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    assert [name for name in needed if not MAY_NEED.fullmatch(name)] == []


@pytest.mark.parametrize("path", BINARIES)
def test_binary_holds_no_path_of_the_build_machine(unpacked, path):
    content = (unpacked / path).read_bytes()
    root = os.path.realpath("MODULE.bazel").rpartition("/")[0]
    home = os.path.expanduser("~root")
    for text in ("bazel-out", "execroot", "/sandbox/", "site-packages/torch/lib", root, home + "/"):
        assert text.encode() not in content, text


def test_headers_compile_as_c_and_link_to_the_libraries(unpacked, tmp_path):
    package = unpacked / "torch_openreg"
    source = tmp_path / "use.c"
    source.write_text(
        '#include "occl/api/occl.h"\n#include "openreg/api/openreg.h"\n'
        "int main(void) {\n  int count = 0, version = 0;\n"
        "  return orGetDeviceCount(&count) != orSuccess || count < 1 ||\n"
        "         occlGetVersion(&version) != occlSuccess || version < 1;\n}\n"
    )
    program = tmp_path / "use"
    flags = [f"-I{package}/include", f"-L{package}/lib", f"-Wl,-rpath,{package}/lib"]
    output(
        "gcc", "-std=c11", "-Wall", "-Werror", source, "-o", program, *flags, "-loccl", "-lopenreg"
    )
    output(program)
