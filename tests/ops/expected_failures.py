"""The pairs of torch's op_db that do not behave on openreg as they do on the CPU, and why.

The sweep holds this list to its word: a pair that is listed and passes fails the test.
"""

_SPARSE = "openreg has dense tensors only: it has no kernels for sparse ones, and says so"
_TABLE = (
    "torch picks how 16-bit losses are accumulated from a table by device that knows cpu and cuda "
    "only (torch.nn.modules.linear_cross_entropy_options): the result is rounded more coarsely"
)

# {"operator" (with its variant, as op_db names it): {dtype, or "*" for all of them: reason}}
EXPECTED_FAILURES: dict[str, dict[str, str]] = {
    "nn.functional.linear_cross_entropy.chunked": {"bfloat16": _TABLE},
    "nn.functional.linear_cross_entropy.chunked_none": {"bfloat16": _TABLE},
    "sparse.mm.reduce": {"*": _SPARSE},
    "sparse.sampled_addmm": {"*": _SPARSE},
    "to_sparse": {"*": _SPARSE},
}


def reason(operator, dtype):
    """Returns why the pair is expected to fail, None if it is expected to pass."""
    reasons = EXPECTED_FAILURES.get(operator, {})
    return reasons.get(dtype, reasons.get("*"))
