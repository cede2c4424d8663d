"""openreg, a simulated accelerator, as a PyTorch device, and OCCL as its collective backend.

``import torch_openreg`` registers the device type ``openreg`` (``torch.openreg``,
``torch.device("openreg:0")``, ``tensor.openreg()``) and the process group backend ``occl``.

``import torch`` does the same by itself through the entry point ``torch.backends``, unless the
machine has another accelerator: a registered device of this kind would become
``torch.accelerator`` in its place. Then only the explicit import registers.
``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` switches the automatic import off.

Importing brings no device to life: a process may import, and fork.
"""

import logging
import sys


def _autoload() -> None:
    """Called by ``import torch`` (entry point ``torch.backends``).

    It stands above ``import torch``: where ``torch_openreg`` is imported first, torch calls it
    while this module is still being executed, and then the import below registers.
    """
    if not _REFUSED:
        return
    _LOGGER.info(
        "torch_openreg is not registered automatically because this machine has %s; "
        "`import torch_openreg` registers it",
        _REFUSED,
    )
    # So that the explicit import runs this module again.
    sys.modules.pop(__name__, None)


_LOGGER = logging.getLogger(__name__)
# The accelerator because of which autoload registers nothing.
_REFUSED = ""
# The minor version of torch that the extension is built for; it checks that itself, too.
_TORCH_VERSION = "2.13"

import torch  # noqa: E402


def _other_accelerator() -> str:
    """The name of an accelerator that this machine has besides openreg, or ""."""
    backend = torch._C._get_privateuse1_backend_name()
    if backend not in ("privateuseone", "openreg"):
        return backend
    for name in ("cuda", "xpu", "mtia"):
        module = getattr(torch, name)
        # device_count() creates no context (CUDA's asks the driver's management library).
        if getattr(module, "_is_compiled", lambda: True)() and module.device_count() > 0:
            return name
    return "mps" if torch.backends.mps.is_available() else ""


def _check_torch_version() -> None:
    if not torch.__version__.startswith(_TORCH_VERSION + "."):
        raise ImportError(
            f"torch_openreg was built for torch {_TORCH_VERSION}.*, but torch "
            f"{torch.__version__} is installed. Install torch=={_TORCH_VERSION}.*, or a "
            "torch_openreg built for this torch."
        )


def _register_device() -> None:
    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "openreg"):
        raise RuntimeError(
            f"torch_openreg cannot be registered: torch has room for one device of its kind, and "
            f"'{name}' has been registered in this process. Remove one of the two packages, or "
            "set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import only the one that is wanted."
        )
    from torch.utils import backend_registration

    from torch_openreg import backends, defaults, openreg, refusals, sharing

    backend_registration.rename_privateuse1_backend("openreg")
    torch._register_device_module("openreg", openreg)  # type: ignore[no-untyped-call]
    for name in ("amp", "devices", "memory", "nvtx", "random", "sanitizer", "streams"):
        # Or `import torch.openreg.memory` would run the file a second time under that name.
        sys.modules[f"torch.openreg.{name}"] = getattr(openreg, name)
    sys.modules["torch.backends.openreg"] = backends
    torch.backends.openreg = backends  # type: ignore[attr-defined]
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
    sharing.register()
    defaults.register(only_accelerator=not _other_accelerator())
    refusals.register()
    openreg.sanitizer._enable_from_environment()


def _register_backend() -> None:
    from torch_openreg import distributed

    distributed.register()


if getattr(torch.__spec__, "_initializing", False):
    # torch is importing this module: autoload.
    _REFUSED = _other_accelerator()

if not _REFUSED:
    _check_torch_version()
    _register_device()
    _register_backend()
