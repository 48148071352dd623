"""Topics that are deleted while readers of a place use them."""

import contextlib
from pathlib import Path

import pytest

import falaj
from falaj.errors import TopicDeleted, UnknownTopic


@pytest.mark.parametrize("is_made_again", [False, True])
def test_settings_of_a_topic_go_before_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_made_again: bool
) -> None:
    with falaj.open(tmp_path / "store") as store:
        for name in ("orders", "others"):
            store.topic(name).append(b"old")
        store.ship(tmp_path / "place", once=True)
        with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache", follow=False) as reader:
            replica, looked = reader._reader.replica, list[int]()
            apply = replica.apply

            def look_and_apply() -> None:
                """Read as another thread may, once the view is new and before it is applied."""
                if not looked:
                    looked.append(1)
                    for _ in range(2):  # the first one brings the log, which is gone
                        with contextlib.suppress(TopicDeleted, UnknownTopic):
                            list(reader.topic("orders"))
                apply()

            monkeypatch.setattr(replica, "apply", look_and_apply)
            store.delete_topic("orders")
            if is_made_again:
                store.topic("orders").append(b"new")
            store.ship(tmp_path / "place", once=True)
            reader.refresh()
            assert looked
            assert ("orders" in reader.topics) == is_made_again
            if is_made_again:
                assert [r.to_bytes() for r in reader.topic("orders")] == [b"new"]
