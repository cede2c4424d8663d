"""torch's DistributedTest, made to run on a device and backend that its source does not know.

Nothing of torch's source is written anywhere: it is changed in memory while it is loaded.
"""

import re

# The half of the suite that is written for CPU tensors and gloo.
_GLOO_HALF = [
    (r'BACKEND != "gloo"', "BACKEND not in GLOO_LIKE"),
    (r'BACKEND == "gloo"', "BACKEND in GLOO_LIKE"),
    (
        r'require_backend_is_available\(\{"gloo"\}\)',
        "require_backend_is_available(GLOO_LIKE)",
    ),
    # Legacy constructors ignore the default device.
    (r"torch\.DoubleTensor\(1\)", "torch.empty(1, dtype=torch.double)"),
]

# Work that an accelerator does in seconds and a processor in half an hour, or with more memory than
# it has; what is tested does not depend on the size.
_SIZES = [
    (
        r"def test_ddp_uneven_inputs\(self\):\n            dim = 1000",
        r"def test_ddp_uneven_inputs(self):\n            dim = 40",
    ),
    # Ten times the elements with each rank: at 8 ranks 5 GB in each of them.
    (r"10 \*\* \(i \+ 1\)", "10 * 3**i"),
]

_MOVE = ".to(device=_device("


def _nccl_half(device):
    """The half that is written for CUDA tensors and NCCL."""
    return [
        (r'BACKEND == "nccl"', "BACKEND in NCCL_LIKE"),
        (r'BACKEND != "nccl"', "BACKEND not in NCCL_LIKE"),
        (r'(?<![\w.])backend == "nccl"', "backend in NCCL_LIKE"),
        (r'(?<![\w.])backend != "nccl"', "backend not in NCCL_LIKE"),
        (r'backend="nccl"', "backend=BACKEND"),
        (r"backend=dist\.Backend\.NCCL", "backend=BACKEND"),
        (r"import torch\.cuda\n", ""),
        (
            r"from torch\.cuda\.amp import autocast, GradScaler",
            "import functools as _functools\n"
            f'autocast = _functools.partial(torch.amp.autocast, "{device}")\n'
            f'GradScaler = _functools.partial(torch.amp.GradScaler, "{device}")',
        ),
        (r"torch\.cuda\.", f"torch.{device}."),
        (r"\.cuda\(\s*\)", f'.to("{device}")'),
        (r"\.cuda\(", _MOVE),
        (r'"cuda:', f'"{device}:'),
        (r"'cuda:", f"'{device}:"),
        (r'"cuda"', f'"{device}"'),
        (r"'cuda'", f"'{device}'"),
        (
            r'require_backend_is_available\(\{"nccl"\}\)',
            "require_backend_is_available(NCCL_LIKE)",
        ),
    ]


def _close_moves(source):
    """Ends each `.to(device=_device(...` with a second parenthesis."""
    parts, position = [], 0
    while (start := source.find(_MOVE, position)) >= 0:
        end, depth = start + len(_MOVE), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(source[end], 0)
            end += 1
        parts.append(source[position:end] + ")")
        position = end
    return "".join(parts) + source[position:]


def ported(source, device, mode):
    """The suite's source for `mode`: "asis", "default-device" or "port"."""
    if mode == "asis":
        return source
    half = _GLOO_HALF if mode == "default-device" else _nccl_half(device)
    for pattern, replacement in [*_SIZES, *half]:
        source = re.sub(pattern, replacement, source)
    return _close_moves(source) if mode == "port" else source
