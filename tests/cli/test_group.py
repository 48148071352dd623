"""`falaj group`: forgetting a topic of a consumer group."""

import os

import falaj as library
from cli.shell import Shell


def read_both(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        topics = [store.topic(name) for name in ("orders", "refunds")]
        for topic in topics:
            topic.extend([b"one", b"two"])
        with store.consumer("billing", topics) as billing:
            assert len(billing.poll(timeout=0)) == 4
            billing.commit()


def test_a_forgotten_topic_is_in_no_listing_and_no_metric(falaj: Shell) -> None:
    read_both(falaj)
    assert falaj.ok("group", "forget", "-s", "s", "billing", "refunds") == ""
    assert falaj.ok("group", "describe", "-s", "s", "billing") == "billing\torders\t0\t2\t0\t\t\n"
    assert falaj.ok("group", "list", "-s", "s") == "billing\torders\t1\t0\t0\n"
    assert "group\tbilling\trefunds" not in falaj.ok("info", "-s", "s")
    lags = [line for line in falaj.ok("metrics", "-s", "s").splitlines() if "lag_records{" in line]
    assert len(lags) == 1
    assert 'topic="orders"' in lags[0]


def test_what_cannot_be_forgotten_is_said_and_ends_with_2(falaj: Shell) -> None:
    read_both(falaj)
    for arguments, why in (
        (["nobody", "orders"], "there is no group 'nobody'"),
        (["billing", "nothing"], "has no committed offset in topic"),
    ):
        ended = falaj("group", "forget", "-s", "s", *arguments)
        assert (ended.code, ended.out) == (2, "")
        assert why in ended.sentence()
    ended = falaj("group", "forget", "-s", "sotre", "billing", "orders")
    assert "there is no store at sotre" in ended.sentence()
    assert not (falaj.folder / "sotre").exists()


def test_a_living_reader_is_named(falaj: Shell) -> None:
    read_both(falaj)
    with (
        library.open(falaj.folder / "s") as store,
        store.consumer("billing", ["orders", "refunds"]),
    ):
        ended = falaj("group", "forget", "-s", "s", "billing", "refunds")
        assert ended.code == 2
        assert f"process {os.getpid()}" in ended.sentence()
    assert falaj.ok("group", "list", "-s", "s").count("refunds") == 1


def test_without_a_command_it_shows_its_help(falaj: Shell) -> None:
    assert "forget" in falaj.ok("group")
