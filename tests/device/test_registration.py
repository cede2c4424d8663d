import os
import sys
from pathlib import Path

import pytest
import torch
import torch_openreg
from helpers import run_python
from torch_openreg import _C

PACKAGE_ROOT = Path(torch_openreg.__file__).parent.parent


@pytest.fixture
def installed(tmp_path):
    """Environments in which torch_openreg is installed, beside other plug-ins."""

    def install(**plugins):
        packages = {name: f"{name}:autoload" for name in plugins}
        packages["torch_openreg"] = "torch_openreg:_autoload"
        path = []
        for name, entry in packages.items():
            folder = tmp_path / name  # one each: torch loads them in the order of the search path
            info = folder / f"{name}-1.0.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            (info / "entry_points.txt").write_text(f"[torch.backends]\n{name} = {entry}\n")
            if name in plugins:
                (folder / f"{name}.py").write_text(plugins[name])
            path.append(str(folder))
        return {"PYTHONPATH": os.pathsep.join([*path, str(PACKAGE_ROOT), *sys.path])}

    return install


def test_import_of_torch_alone_registers(installed):
    code = """
        import torch
        assert torch.device("openreg").type == "openreg"
        assert torch.openreg.device_count() == 8
        import torch_openreg
    """
    run_python(code, installed())


def test_explicit_import_first_registers(installed):
    code = """
        import torch_openreg
        import torch
        assert torch.openreg.is_available()
        assert torch.accelerator.current_accelerator().type == "openreg"
    """
    run_python(code, installed())


def test_both_orders_without_an_entry_point():
    run_python("import torch, torch_openreg; torch.openreg.init()")
    run_python("import torch_openreg, torch; torch.openreg.init()")


def test_autoload_can_be_switched_off(installed):
    code = """
        import torch
        assert not hasattr(torch, "openreg")
        import torch_openreg
        assert torch.openreg.is_available()
    """
    run_python(code, {**installed(), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})


# Loaded before torch_openreg: makes torch believe that there is a CUDA device.
_FAKE_CUDA = """
import logging
logging.basicConfig(level=logging.INFO)
def autoload():
    import torch
    torch.cuda._is_compiled = lambda: True
    torch.cuda.device_count = lambda: 1
"""


def test_autoload_beside_another_accelerator_registers_nothing_and_says_so(installed):
    code = """
        import sys, torch
        assert not hasattr(torch, "openreg")
        assert torch._C._get_privateuse1_backend_name() == "privateuseone"
        assert not [name for name in sys.modules if name.startswith("torch_openreg")]
    """
    done = run_python(code, installed(aaa=_FAKE_CUDA))
    lines = [line for line in done.stderr.splitlines() if "torch_openreg" in line]
    assert len(lines) == 1 and "cuda" in lines[0] and "import torch_openreg" in lines[0]


def test_explicit_import_beside_another_accelerator_registers(installed):
    code = """
        import torch
        import torch_openreg
        assert torch.openreg.device_count() == 8
        assert torch.empty(3, device="openreg").device.type == "openreg"
    """
    run_python(code, installed(aaa=_FAKE_CUDA))


def test_explicit_import_first_beside_another_accelerator_registers(installed):
    run_python("import torch_openreg, torch; torch.openreg.init()", installed(aaa=_FAKE_CUDA))


def test_another_device_in_the_only_place_is_a_clear_error():
    code = """
        import torch
        torch.utils.rename_privateuse1_backend("other")
        try:
            import torch_openreg
        except RuntimeError as error:
            assert "'other'" in str(error), error
        else:
            raise SystemExit("registered twice")
    """
    run_python(code)


def test_another_version_of_torch_is_refused():
    code = """
        import torch
        torch.__version__ = "2.99.0"
        try:
            import torch_openreg
        except ImportError as error:
            assert "2.13" in str(error) and "2.99.0" in str(error), error
        else:
            raise SystemExit("imported")
    """
    run_python(code)


def test_package_and_extension_agree_on_torchs_version():
    assert _C._TORCH_VERSION == torch_openreg._TORCH_VERSION
    assert torch.__version__.startswith(_C._TORCH_VERSION + ".")


def test_importing_brings_nothing_to_life():
    code = """
        import threading, os
        import torch, torch_openreg
        assert not torch.openreg.is_initialized()
        assert torch.openreg.is_available() and torch.openreg.device_count() == 8
        torch.openreg.manual_seed_all(3)
        torch.ones(3).is_pinned()
        torch.openreg.empty_cache()
        torch.openreg.ipc_collect()
        assert torch.openreg.memory_allocated() == 0
        assert not torch.openreg.is_initialized()
        assert "memfd:openreg" not in open("/proc/self/maps").read()
        torch.empty(1, device="openreg")
        assert torch.openreg.is_initialized()
    """
    run_python(code)


def test_generated_methods():
    tensor = torch.ones(3)
    assert not tensor.is_openreg
    on_device = tensor.openreg(1)
    assert on_device.is_openreg and on_device.device.index == 1
    assert next(torch.nn.Linear(2, 2).openreg().parameters()).is_openreg
    assert tensor.untyped_storage().openreg().device.type == "openreg"


def test_submodules_are_the_same_under_both_names():
    import torch.openreg.memory
    import torch.openreg.streams
    import torch_openreg.openreg.streams

    assert torch.openreg.streams is torch_openreg.openreg.streams
    assert torch.openreg.memory.mem_get_info is torch.openreg.mem_get_info
