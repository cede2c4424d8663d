"""Every operator of torch's op_db gives on openreg what it gives on the CPU.

A case is one operator; it goes through the dtypes of pair.DTYPES and through every sample input,
forward, backward, with out= and in place.
"""

import expected_failures
import pair
import pytest
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
    """Counts the outcomes of the pairs of this shard, and prints them at the end."""
    counts = {}
    yield counts
    passed, failed = counts.get("passed", 0), counts.get("failed", 0)
    share = 100 * passed / max(1, passed + failed)
    print(
        f"\npairs: {passed + failed} that the CPU passes; openreg passes {passed} ({share:.2f} %), "
        f"fails {failed}; {counts.get('no reference', 0)} have no reference"
    )


def problems(operator, dtypes, worker, tally):
    """Returns what is not as expected, one line a pair."""
    found = []
    for dtype in dtypes:
        outcome = worker.check(operator, dtype)
        tally[outcome["status"]] = tally.get(outcome["status"], 0) + 1
        reason = expected_failures.reason(operator, dtype)
        if outcome["status"] == "failed" and reason is None:
            found.append(f"{operator} {dtype}: {outcome['message']}")
        if outcome["status"] == "passed" and reason is not None:
            found.append(f"{operator} {dtype} passes: take it off the list (it said: {reason})")
    return found


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_operator_is_as_on_the_cpu(operator, worker, tally):
    """All dtypes of one operator."""
    found = problems(operator, pair.pairs(OPERATORS[operator]), worker, tally)
    assert not found, "\n" + "\n".join(found)
