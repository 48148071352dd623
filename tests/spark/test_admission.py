"""How a micro-batch's limit is divided among partitions."""

from hypothesis import given
from hypothesis import strategies as st

from falaj.spark.streaming.admission import admit


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=12),
    st.integers(1, 2 * 10**6),
    st.integers(0, 10**6),
)
def test_a_limit_is_kept_and_used_up(waiting: list[int], limit: int, turn: int) -> None:
    shares = admit(dict(enumerate(waiting)), limit, turn)
    assert sum(shares.values()) == min(limit, sum(waiting))
    assert all(0 < share <= waiting[lane] for lane, share in shares.items())
    if limit >= len(waiting):
        assert shares.keys() == {lane for lane, count in enumerate(waiting) if count}


def test_where_the_limit_is_small_partitions_take_turns() -> None:
    left, turn, seen = dict.fromkeys(range(5), 5), 0, []
    while any(left.values()):
        shares = admit(left, 2, turn)
        seen += list(shares)
        turn += sum(shares.values())
        left = {lane: count - shares.get(lane, 0) for lane, count in left.items()}
    assert [seen[i : i + 5].count(lane) for i in range(0, 20, 5) for lane in range(5)] == [1] * 20
