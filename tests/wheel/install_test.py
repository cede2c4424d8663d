"""The wheel as its users get it: installed by pip into a clean virtual environment."""

import os
import pathlib
import subprocess
import sys

import numpy
import pytest

from tools.python import find_pip

WHEEL = pathlib.Path(os.environ["WHEEL"]).resolve()
PACKAGES = pathlib.Path(numpy.__file__).parent.parent
DEADLINE_S = 240


@pytest.fixture(scope="module", name="python")
def python_fixture(tmp_path_factory):
    """A virtual environment with the wheel; torch comes from the locked packages by a .pth file."""
    folder = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    install = ["--python", python, "install", "--no-index", "--no-deps", "--no-compile", WHEEL]
    run(*find_pip.pip_command(), *install)
    site = (
        folder
        / "lib"
        / f"python{sys.version_info.major}.{sys.version_info.minor}"
        / "site-packages"
    )
    (site / "locked.pth").write_text(f"{PACKAGES}\n")
    return python


def run(*command, **environment):
    """Runs without Bazel's import paths; returns what was printed."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    result = subprocess.run(
        command,
        env={**clean, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


def test_torch_finds_the_device_by_itself(python):
    program = "import torch; print(torch.ones(2, device='openreg').sum().item())"
    assert run(python, "-c", program).endswith("2.0\n")


def test_importing_it_before_torch_works(python):
    program = "import torch_openreg, torch; print(torch.ones(2, device='openreg').sum().item())"
    assert run(python, "-c", program).endswith("2.0\n")


def test_autoload_can_be_switched_off(python):
    program = "import sys, torch; print('torch_openreg' in sys.modules)"
    assert run(python, "-c", program, TORCH_DEVICE_BACKEND_AUTOLOAD="0").endswith("False\n")


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_all_reduce_under_torchrun(python, ranks):
    script = pathlib.Path(__file__).with_name("all_reduce.py").resolve()
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    printed = run(python, *launch, script, OMP_NUM_THREADS="1")
    assert printed.count("all forms passed") == ranks
    assert str(python.parent.parent) in printed
