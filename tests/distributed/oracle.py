"""What each collective gives, computed on the CPU from what every rank puts in."""

import functools

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

_BINARY = {
    "SUM": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}
_WIDE = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
    torch.uint16: torch.int64,
    torch.uint32: torch.int64,
    torch.uint64: torch.int64,
}


def reduced(tensors, op="SUM"):
    """The reduction of `tensors` (one per rank, on the CPU) in rank order.

    16-bit floats are accumulated in float32 and rounded once; SUM and PRODUCT of bool are "or" and
    "and"; AVG of integers truncates toward zero.
    """
    dtype = tensors[0].dtype
    if dtype == torch.bool:
        names = {"SUM": "BOR", "MAX": "BOR", "PRODUCT": "BAND", "MIN": "BAND"}
        return functools.reduce(_BINARY[names.get(op, op)], tensors)
    wide = [tensor.to(_WIDE.get(dtype, dtype)) for tensor in tensors]
    if op == "AVG":
        total = functools.reduce(torch.add, wide)
        if dtype.is_complex:  # torch divides complex numbers by complex ones: not rounded once
            return torch.view_as_complex(torch.view_as_real(total) / len(tensors)).to(dtype)
        if dtype.is_floating_point:
            return (total / len(tensors)).to(dtype)
        return torch.div(total, len(tensors), rounding_mode="trunc").to(dtype)
    return functools.reduce(_BINARY[op], wide).to(dtype)


def operation(op):
    return getattr(ReduceOp, op)


FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex32, torch.complex64, torch.complex128]
FLOAT8 = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]
MOVED = [*FLOATS, *INTEGERS, *UNSIGNED, *COMPLEX, *FLOAT8, torch.bool]


def operations_of(dtype):
    if dtype == torch.bool:
        return ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]
    if dtype.is_complex:
        return ["SUM", "PRODUCT", "AVG"]
    if dtype.is_floating_point:
        return ["SUM", "AVG", "PRODUCT", "MIN", "MAX"]
    return ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]


def as_bytes(tensor):
    """For comparing bit for bit, whatever the dtype."""
    return tensor.cpu().contiguous().reshape(-1).view(torch.uint8)


def sizes_for(ranks):
    """Nothing, one, fewer than the ranks, odd, not divisible, more than a block."""
    return sorted({0, 1, ranks - 1, ranks + 1, 13, 1000 * ranks + 1, 70_001})


def group_size(group=None):
    return dist.get_world_size(group)
