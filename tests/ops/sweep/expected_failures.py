"""The pairs of torch's op_db that do not behave on openreg as they do on the CPU, and why.

The sweep holds these lists to their word: a pair that is listed and passes fails the test, and so
does one that is not listed and has no reference. list_test counts them.
"""

_JITERATOR = "compiles a CUDA kernel: the CPU has nothing of the kind"

# {"operator" (with its variant, as op_db names it): {dtype, or "*" for all of them: reason}}
EXPECTED_FAILURES: dict[str, dict[str, str]] = {}

# Operators that do not work on the CPU, in the same form.
NO_REFERENCE: dict[str, dict[str, str]] = {
    "jiterator_2inputs_2outputs": {"*": _JITERATOR},
    "jiterator_4inputs_with_extra_args": {"*": _JITERATOR},
    "jiterator_binary": {"*": _JITERATOR},
    "jiterator_binary_return_by_ref": {"*": _JITERATOR},
    "jiterator_unary": {"*": _JITERATOR},
}


def expected(operator, dtype):
    """Returns what the pair's status has to be: (status, why)."""
    for status, lists in (("failed", EXPECTED_FAILURES), ("no reference", NO_REFERENCE)):
        reasons = lists.get(operator, {})
        reason = reasons.get(dtype, reasons.get("*"))
        if reason is not None:
            return status, reason
    return "passed", "it is not on a list of expected_failures.py"
