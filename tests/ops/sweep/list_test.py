"""What op_db_test goes through, and how much of it the lists leave out."""

import pair
import pytest
from expected_failures import EXPECTED_FAILURES, NO_REFERENCE, expected

# (operator, dtype) pairs of op_db that torch 2.13 has on x86_64, the operators of one name apart.
PAIRS = 3115


def statuses():
    return [
        expected(name, dtype)[0]
        for name, op in pair.operators().items()
        for dtype in pair.dtypes(op)
    ]


def test_the_sweep_goes_through_all_of_op_db():
    assert len(statuses()) >= PAIRS


def test_of_the_pairs_that_pass_on_the_cpu_nearly_all_pass_here():
    found = statuses()
    failed = found.count("failed")
    on_the_cpu = len(found) - found.count("no reference")
    assert (on_the_cpu - failed) / on_the_cpu >= 0.995


@pytest.mark.parametrize("entries", [EXPECTED_FAILURES, NO_REFERENCE])
def test_what_is_listed_exists(entries):
    operators = pair.operators()
    for name, reasons in entries.items():
        dtypes = pair.dtypes(operators[name])
        assert dtypes and all(dtype == "*" or dtype in dtypes for dtype in reasons), name
