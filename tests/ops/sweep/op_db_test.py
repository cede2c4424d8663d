"""Every operator of torch's op_db gives on openreg what it gives on the CPU.

A case is one operator; it goes through the dtypes of pair.DTYPES and through every sample input,
forward, backward, with out= and in place.
"""

import pair
import pytest
from expected_failures import expected
from worker import Worker

OPERATORS = pair.operators()


@pytest.fixture(scope="session")
def worker():
    """One process for all cases of this shard."""
    worker = Worker()
    yield worker
    worker.close()


@pytest.fixture(scope="session")
def tally():
    """Counts the outcomes of the pairs of this shard by dtype, and prints them at the end."""
    counts = {dtype: {} for dtype in pair.DTYPES}
    yield counts
    for dtype, outcomes in counts.items():
        print(f"\npairs of {dtype}: {outcomes}", end="")


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_operator_is_as_on_the_cpu(operator, worker, tally):
    """All dtypes of one operator."""
    problems = []
    for dtype in pair.dtypes(OPERATORS[operator]):
        outcome = worker.check(operator, dtype)
        status = outcome.status
        tally[dtype][status] = tally[dtype].get(status, 0) + 1
        wanted, reason = expected(operator, dtype)
        if status != wanted:
            problems.append(
                f"{operator} {dtype}: expected '{wanted}' ({reason}), got '{status}' "
                f"{outcome.message}"
            )
    assert not problems, "\n" + "\n".join(problems)
