"""One pair of the sweep: an operator and a dtype, on every sample input and in every form."""

import dataclasses

import comparing
import forms
import torch
from moving import UnsupportedSampleError
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import set_rng_seed

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "int64": torch.int64,
    "bool": torch.bool,
    "bfloat16": torch.bfloat16,
    "complex64": torch.complex64,
}


@dataclasses.dataclass
class Outcome:
    """What became of a pair.

    status: "passed", "failed" (message says how) or "no reference" (the CPU itself raises).
    """

    status: str
    message: str = ""
    samples: int = 0


def name_of(op):
    """Returns the operator's name with its variant: "std.unbiased"."""
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def operators():
    """Returns {name: OpInfo} of torch's whole op_db."""
    return {name_of(op): op for op in op_db}


def dtypes(op):
    """Returns the dtypes' names in which the CPU has the operator."""
    supported = op.supported_dtypes("cpu")
    return [name for name, dtype in DTYPES.items() if dtype in supported]


def _forms(op):
    """Yields the forms of an operator that need no gradients."""
    yield forms.forward
    if op.supports_out:
        yield forms.out
    if op.inplace_variant is not None:
        yield forms.in_place


def _check_form(form, call):
    """Runs one form; numbers that differ are right where they depend on the seed."""
    try:
        form(call)
    except comparing.DifferentNumbers:
        if not forms.is_random(call):
            raise
        call.numbers = False
        form(call)
        forms.repeatable(call)


def _samples(op, dtype, *, requires_grad):
    """Yields the sample inputs, the same each time.

    Seeded once: torch's own seeding of each sample formats a traceback for CUDA every time.
    """
    set_rng_seed(forms.SEED)
    return op.sample_inputs("cpu", dtype, requires_grad=requires_grad, set_seed=False)


def check(op, dtype_name, device=forms.DEVICE):
    """Returns the Outcome of the pair (operator, dtype)."""
    dtype = DTYPES[dtype_name]
    count = 0
    try:
        samples = list(_samples(op, dtype, requires_grad=False))
    except Exception as error:  # then the CPU gives no reference
        return Outcome("no reference", repr(error))
    try:
        for sample in samples:
            count += 1
            call = forms.Call(op, sample, device)
            for form in _forms(op):
                try:
                    _check_form(form, call)
                except forms.CpuError:
                    if form is forms.forward:
                        raise
        if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu"):
            count += _check_backward(op, dtype, device)
    except forms.CpuError as error:
        return Outcome("no reference", str(error), count)
    except (comparing.Difference, UnsupportedSampleError) as error:
        return Outcome("failed", f"sample {count}: {error}", count)
    return Outcome("passed", samples=count)


def _check_backward(op, dtype, device):
    count = 0
    for sample in _samples(op, dtype, requires_grad=True):
        call = forms.Call(op, sample, device)
        try:
            _check_form(forms.backward, call)
        except forms.CpuError:
            continue
        count += 1
    return count
