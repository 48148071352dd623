"""All features of a store at once, in any order, against plain lists; docs/RELIABILITY.md."""

from collections.abc import Callable

import hypothesis
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from together.machine import Together

FEW, MANY = 6, 150
"""Lists of moves that are tried."""
STEPS = 30
SEED = 20


@pytest.mark.timeout(1200)
def test_features_combine_in_any_order_and_the_store_is_still_the_lists(
    budget: Callable[[int, int], int], first_seed: int
) -> None:
    """A failure prints its moves, and what sees it again; so does the seed alone."""
    machine = hypothesis.seed(SEED + first_seed)(Together)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=budget(FEW, MANY),
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
