"""All features of a store at once, in any order, compared with plain lists; docs/RELIABILITY.md.

The seed is fixed, so every run tries the same; `python -m together` tries others.
"""

from collections.abc import Callable

import pytest

from together.machine import run

FEW, MANY = 6, 700
"""Number of lists of moves."""
SEED = 20


@pytest.mark.timeout(1800)
def test_features_combine_in_any_order_and_the_store_is_still_the_lists(
    budget: Callable[[int, int], int], first_seed: int
) -> None:
    run(SEED + first_seed, budget(FEW, MANY))
