"""The client: one suite over native stores and over stores behind a server, and its own rules."""

import asyncio
import operator
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import falaj
import falaj_client
from falaj_client.protocols import AnyTopicLike, StoreLike
from server.doors import Server

FOUR = "2026-11-20T04:00:00.000001Z"


def connect(server: Server, **options: Any) -> falaj_client.Store:
    """Connect to a server with its own token."""
    return falaj.connect(f"http://127.0.0.1:{server.port}", token=server.token, **options)


@pytest.fixture(params=["native", "client"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreLike]:
    """A store of each kind, for tests of what they have in common."""
    if request.param == "native":
        with falaj.open(tmp_path / "events") as native:
            yield native
        return
    with Server(tmp_path / "events") as server, connect(server) as client:
        yield client


def shown(topic: AnyTopicLike[Any]) -> list[tuple[Any, ...]]:
    """All that records have, but for times of appends."""
    return [
        (each.topic, each.partition, each.offset, each.key, each.headers, each.is_tombstone)
        for each in topic
    ]


# --- What both have -------------------------------------------------------------------------------

VALUES: dict[str, list[Any]] = {
    "bytes": [b"", b"\0\xff\n", "ü".encode(), bytearray(b"tea")],
    "str": ["", "two\nlines", "ü \U0001f375", "\0"],
    "json": [None, True, 1, -(2**80), 1.5e300, "ü\n", [], {"a": [1, {"b": None}]}, (1, 2)],
    "msgpack": [None, b"\xff", 2**64 - 1, -(2**63), 1.5, "ü", [1], {"a": {b"b": 2}}],
}
BAD: dict[str, list[Any]] = {
    "bytes": ["text", 5, None],
    "str": [b"x", 5, None, "\ud800"],
    "json": [float("nan"), {1: 2}, {"a": [float("inf")]}, "\ud800", 10**5000, {1, 2}],
    "msgpack": [2**64, {"a": {1: 2}}, "\ud800"],
}


@pytest.mark.parametrize("codec", VALUES)
def test_values_come_back_equal_and_others_are_refused_alike(both: StoreLike, codec: str) -> None:
    topic = both.topic("orders", codec=codec)
    for offset, value in enumerate(VALUES[codec]):
        assert topic.append(value) == offset
    wrapped = map(falaj.NewRecord, VALUES[codec])
    assert topic.extend(wrapped) == range(len(VALUES[codec]), 2 * len(VALUES[codec]))
    expected = [list(value) if isinstance(value, tuple) else value for value in VALUES[codec]]
    assert [record.value for record in topic] == 2 * expected
    for value in BAD[codec]:
        with pytest.raises((TypeError, falaj.errors.InvalidArgument)):
            topic.append(value)
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    if codec in ("json", "msgpack"):
        with pytest.raises(falaj.errors.InvalidArgument):
            topic.append(deep)
    assert topic.end_offset == 2 * len(VALUES[codec])


def odd(value: Any) -> bytes:
    raise ArithmeticError(f"{value} is odd")


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "bytes": ("bytes", "text", r"this str value: .*bytes.*"),
    "str": ("str", b"x", r"this bytes value: a topic of str takes str, not bytes: make it text"),
    "json": (
        "json",
        {"a": {1}},
        r"this dict value: JSON has no set: make it text, a number, a list",
    ),
    "number": ("json", float("nan"), r"this float value: JSON has no (NaN|nan): give"),
    "msgpack": ("msgpack", {1}, r"this set value: msgpack has text, .*make it one of them"),
    "mine": ("mine", 7, r"this int value \(ArithmeticError: 7 is odd\): give what `encode`"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_refused_value_names_the_topic_and_the_remedy_wherever_it_is_appended(
    both: StoreLike, kind: str
) -> None:
    codec, value, said = REFUSED[kind]
    is_native = isinstance(both, falaj.Store)
    if codec == "mine":
        codec = (falaj.Codec if is_native else falaj_client.Codec)("mine", odd, int)
    topic: Any = both.topic("values", codec=codec)
    store: Any = both
    given = {"topic": topic} if is_native else {"topic": "values", "codec": codec}
    queue: Any = store.queue("jobs", **given)

    def together(**options: Any) -> None:
        with both.transaction(**options) as tx:
            tx.append(topic, value)

    calls: list[Callable[[], object]] = [
        lambda: topic.append(value, key="k"),
        lambda: topic.extend([("k", value)]),
        lambda: topic.partition(0).append(value),
        lambda: queue.put(value),
        lambda: queue.put_many([value]),
        together,
    ]
    for call in calls:
        with pytest.raises(falaj.errors.EncodeFailed, match=rf'^topic "values".*{said}') as refused:
            call()
        assert (refused.value.topic, refused.value.partition or 0) == ("values", 0)
        assert isinstance(refused.value, TypeError)
        assert isinstance(refused.value.__cause__, Exception)
    wide: Any = both.partitioned_topic("wide", partitions=3, codec="json")
    with pytest.raises(falaj.errors.EncodeFailed, match=r'topic "wide", partition 2 \(') as known:
        wide.extend([{1}], partition=2)
    assert known.value.partition == 2
    assert len(topic) == len(wide) == 0


def test_the_client_of_asyncio_refuses_a_value_alike(tmp_path: Path) -> None:
    async def go(server: Server) -> None:
        url = f"http://127.0.0.1:{server.port}"
        async with falaj_client.aconnect(url, token=server.token) as store:
            topic = await store.topic("values", codec="json")
            queue = await store.queue("jobs", topic="values")
            for call in (topic.append, lambda value: topic.extend([value]), queue.put):
                with pytest.raises(falaj.errors.EncodeFailed, match=r'^topic "values".*no set'):
                    await call({1})

    with Server(tmp_path / "events") as server:
        asyncio.run(go(server))


def test_records_have_the_same_parts(both: StoreLike) -> None:
    topic = both.topic("orders", codec="str")
    topic.append("a", "ü", headers={"x": "1", "y": None}, timestamp=FOUR)
    topic.append("b", b"\xff\0", headers=[("x", b"\xff"), ("x", "2")], timestamp_ns=-5)
    topic.tombstone("ü")
    topic.extend([("k", "c"), "d", falaj.NewRecord("e", "k", headers={"z": b""})])
    assert shown(topic) == [
        ("orders", 0, 0, "ü".encode(), (("x", b"1"), ("y", None)), False),
        ("orders", 0, 1, b"\xff\0", (("x", b"\xff"), ("x", b"2")), False),
        ("orders", 0, 2, "ü".encode(), (), True),
        ("orders", 0, 3, b"k", (), False),
        ("orders", 0, 4, None, (), False),
        ("orders", 0, 5, b"k", (("z", b""),), False),
    ]
    first, second, third, *_ = topic
    assert first.timestamp_ns == 1_795_147_200_000_001_000
    assert first.timestamp.isoformat() == "2026-11-20T04:00:00.000001+00:00"
    assert second.timestamp_ns == -5
    assert (third.value, third.to_bytes(), first.to_bytes()) == (None, b"", b"a")


def test_places_in_a_topic_are_found_alike(both: StoreLike) -> None:
    topic: Any = both.topic("orders", codec="json")
    for i in range(10):
        topic.append(i, timestamp=f"2026-11-20T{i:02}:00:00Z")
    topic.trim(before_offset=2)
    assert (topic.start_offset, topic.end_offset, len(topic)) == (2, 10, 8)
    assert topic.offsets == {0: range(2, 10)}
    assert (topic[2].value, topic[-1].value, topic[-8].value) == (2, 9, 2)
    for wanted in (
        slice(3, 5),
        slice(-3, None),
        slice(None, -6),
        slice(None, None, 3),
        slice(None, None, -1),
        slice(8, 2, -2),
        slice(5, 3),
        slice(20, 30),
    ):
        some = topic[wanted]
        assert [record.offset for record in some] == list(some.offsets)
        assert [record.offset for record in reversed(some)] == list(some.offsets)[::-1]
    assert list(topic[-3:].offsets) == [7, 8, 9]
    assert list(topic[::-1].offsets) == [9, 8, 7, 6, 5, 4, 3, 2]
    assert [record.value for record in reversed(topic)] == [9, 8, 7, 6, 5, 4, 3, 2]
    assert [record.value for record in topic.last(2)] == [8, 9]
    assert [record.value for record in topic.last(50)] == [2, 3, 4, 5, 6, 7, 8, 9]
    assert [record.value for record in topic.read(-4, 3)] == [6, 7, 8]
    assert [record.value for record in topic.read(10, 3)] == []
    assert topic.offset_at("2026-11-20T04:30:00Z") == 5
    assert topic.at("2026-11-21T00:00:00Z") is None
    morning = topic.range("2026-11-20T03:00:00Z", "2026-11-20T05:00:00Z")
    assert [record.value for record in morning] == [3, 4]
    for wrong in (0, 1, 10, -9):
        with pytest.raises(falaj.errors.OffsetOutOfRange) as refused:
            topic[wrong]
        assert (refused.value.first, refused.value.end) == (2, 10)
    with pytest.raises(falaj.errors.OffsetOutOfRange):
        topic[0:5]
    with pytest.raises(TypeError):
        operator.contains(topic, 3)
    topic.trim(before_time="2026-11-20T08:00:00Z")
    assert topic.start_offset == 8


def test_keys_choose_partitions_alike_and_loops_merge_them_by_time(both: StoreLike) -> None:
    clicks = both.partitioned_topic("clicks", partitions=3, codec="str")
    placed = dict[str, int]()
    for i in range(16):
        key = "abcdefgh"[i % 8]
        partition, offset = clicks.append(f"{i}", key, timestamp=f"2026-11-20T{i:02}:00:00Z")
        assert placed.setdefault(key, partition) == partition
        assert clicks[partition, offset].value == f"{i}"
    assert set(placed.values()) == {0, 1, 2}
    assert [record.value for record in clicks] == [f"{i}" for i in range(16)]
    end = clicks.offsets[2].stop
    assert clicks.extend(["x", "y"], partition=2) == {2: range(end, end + 2)}
    assert clicks.partition(2).append("z") == end + 2
    assert sum(len(there) for there in clicks.offsets.values()) == len(clicks) == 19
    assert [record.value for record in clicks.partition(2).last(3)] == ["x", "y", "z"]
    with pytest.raises(falaj.errors.InvalidArgument):
        clicks.append("x", partition=3)
    with pytest.raises(falaj.errors.SettingsMismatch):
        both.topic("clicks")
    assert both.any_topic("clicks").partitions == range(3)


def test_conditions_and_producers_count_alike(both: StoreLike) -> None:
    topic = both.topic("orders", codec="str")
    assert topic.append("a", expect=0) == 0
    with pytest.raises(falaj.errors.OffsetConflict) as refused:
        topic.extend(["b", "c"], expect=0)
    assert (refused.value.topic, refused.value.partition, refused.value.next) == ("orders", 0, 1)
    assert topic.append("b", producer="till", sequence=7) == 1
    assert topic.append("b", producer="till", sequence=7) == 1
    with pytest.raises(falaj.errors.OutOfOrderSequence) as gap:
        topic.append("c", producer="till", sequence=9)
    assert gap.value.next == 8
    with pytest.raises(falaj.errors.DuplicateSequence):
        topic.append("c", producer="till", sequence=1)
    assert topic.append("c", sync="durable") == 2
    assert topic.extend([]) == range(0)
    assert len(topic) == 3


def test_a_transaction_appends_to_several_topics_or_to_none(both: StoreLike) -> None:
    store: Any = both
    paid, audit = (store.topic(name, log="shop", codec="str") for name in ("paid", "audit"))
    with store.transaction() as tx:
        tx.append(paid, "order 17", "eu", expect=0)
        tx.extend("audit", ["one", ("k", "two")])
        tx.tombstone(audit, "k")
        assert not tx.offsets
    assert tx.offsets == {"paid": {0: range(1)}, "audit": {0: range(3)}}
    left = store.transaction()
    left.__enter__().append(paid, "never")
    left.__exit__(RuntimeError, RuntimeError("planted"), None)
    late = store.transaction()
    late.__enter__().append(audit, "never")
    late.append(paid, "never", expect=0)
    with pytest.raises(falaj.errors.OffsetConflict) as refused:
        late.__exit__(None, None, None)
    assert (refused.value.topic, refused.value.next) == ("paid", 1)
    with pytest.raises(falaj.errors.UnknownTopic), store.transaction() as tx:
        tx.append("nowhere", "never")
    assert [record.value for record in paid] == ["order 17"]
    assert [record.value for record in audit] == ["one", "two", None]


def test_followers_begin_and_end_alike(both: StoreLike) -> None:
    topic = both.topic("orders", codec="str")
    topic.extend(["a", "b", "c"])
    assert [record.value for record in topic.follow(timeout=0)] == ["a", "b", "c"]
    assert [record.value for record in topic.follow(1, timeout=0)] == ["b", "c"]
    assert [record.value for record in topic.follow(-1, timeout=0.05)] == ["c"]
    assert [record.value for record in topic.follow("latest", timeout=0.05)] == []
    later = topic.follow("latest")
    topic.append("d")
    assert next(later).value == "d"
    later.close()
    topic.finish()
    assert topic.finished
    assert [record.value for record in topic.follow()] == ["a", "b", "c", "d"]
    with pytest.raises(falaj.errors.TopicFinished):
        topic.append("e")


def test_topics_are_made_listed_and_deleted_alike(both: StoreLike) -> None:
    store: Any = both
    with pytest.raises(falaj.errors.UnknownTopic):
        store.topic("orders", create=False)
    topic = store.topic("orders", codec="json", compacted=True, retention_age="7d")
    assert (topic.name, topic.codec, topic.partitions) == ("orders", "json", range(1))
    assert list(store.topics) == ["orders"]
    for wrong in ({"codec": "str"}, {"log": "other"}):
        with pytest.raises(falaj.errors.SettingsMismatch):
            store.topic("orders", **wrong)
    with pytest.raises((falaj.errors.InvalidName, falaj.errors.InvalidArgument)):
        store.topic("a/../b")
    with pytest.raises(TypeError):
        store.topic("orders", colour="red")
    topic.append(1)
    topic.delete()
    with pytest.raises((falaj.errors.TopicDeleted, falaj.errors.UnknownTopic)):
        topic.append(2)
    with pytest.raises(falaj.errors.UnknownTopic):
        store.delete_topic("orders")
    assert list(store.topics) == []


# --- The client's own rules -----------------------------------------------------------------------


def test_pages_join_without_a_gap_in_loops_slices_and_merges(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, connect(server) as store:
        topic = store.topic("orders", codec="json")
        topic.extend(range(2500))
        assert [record.value for record in topic] == list(range(2500))
        assert [record.value for record in topic[100:2300]] == list(range(100, 2300))
        assert [record.value for record in topic[::-7]] == list(range(2500))[::-7]
        assert [record.value for record in topic.last(2100)] == list(range(400, 2500))
        parts = store.partitioned_topic("parts", partitions=2, codec="json")
        at = 1_795_147_200_000_000_000
        for part in range(2):
            # The second begins later and ends earlier, and is larger than a page.
            step = 2 - part
            parts.extend(
                [
                    falaj_client.NewRecord(i, timestamp_ns=at + 10 * step * i + part)
                    for i in range(1500)
                ],
                partition=part,
            )
        times = [record.timestamp_ns for record in parts]
        assert len(times) == 3000
        assert times == sorted(times)


def test_what_a_client_appends_native_programs_read_and_the_other_way_round(
    tmp_path: Path,
) -> None:
    path = tmp_path / "events"
    with Server(path) as server, falaj.open(path) as native, connect(server) as store:
        for codec, values in VALUES.items():
            here: Any = native.topic(codec, codec=codec)
            there = store.topic(codec, codec=codec)
            for value in values:
                there.append(value, "k", headers={"h": b"\xff"})
            copies = [falaj.NewRecord(each.value, each.key, headers=each.headers) for each in there]
            here.extend(copies)
            assert store.topic(f"{codec}2", codec=codec).extend(iter(here)) == range(
                2 * len(values)
            )
            assert [record.raw for record in there] == [record.to_bytes() for record in here]
            assert shown(there) == shown(here)
            # The bytes are those that the native codec makes.
            assert [record.raw for record in here][: len(values)] == [
                record.raw for record in here
            ][len(values) :]


def test_a_json_document_keeps_the_text_that_another_writer_gave_it(tmp_path: Path) -> None:
    text = b'{"value": {"n": 1.10}, "big": 9007199254740993 }'
    with Server(tmp_path / "events") as server, connect(server) as store:
        topic = store.topic("orders", codec="json")
        posted = server.post("/v1/topics/orders/records", text, Content_Type="application/json")
        assert posted.status == 201
        assert topic[0].raw == text
        assert topic[0].value == {"value": {"n": 1.1}, "big": 9007199254740993}


def test_a_value_that_a_codec_cannot_read_raises_with_its_place(tmp_path: Path) -> None:
    wrong = falaj_client.Codec[str]("mine", str.encode, lambda raw: str(int(raw)))
    with Server(tmp_path / "events") as server, connect(server) as store:
        topic = store.topic("orders", codec=wrong)
        topic.extend(["5", "x"])
        assert topic[0].value == "5"
        with pytest.raises(falaj.errors.DecodeFailed) as refused:
            _ = topic[1].value
        assert (refused.value.topic, refused.value.offset) == ("orders", 1)
        assert topic[1].raw == b"x"
        with pytest.raises(falaj.errors.InvalidArgument, match="'mine'"):
            store.topic("orders")


def test_a_record_that_compaction_removed_is_named_so(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as native:
        prices = native.topic("prices", codec="str", compacted=True)
        prices.extend([("tea", "3"), ("coffee", "4"), ("tea", "5")])
        prices.compact(seal=True)
        with Server(tmp_path / "events") as server, connect(server) as store:
            topic = store.topic("prices")
            assert [record.value for record in topic] == ["4", "5"]
            assert [record.offset for record in topic[::-1]] == [2, 1]
            with pytest.raises(falaj.errors.RecordCompacted):
                topic[0]
            assert topic[-2].value == "4"
            with pytest.raises(falaj.errors.OffsetOutOfRange):
                topic[-3]


@pytest.mark.parametrize(
    "call",
    [
        lambda store, _: store.backup("elsewhere"),
        lambda store, _: store.verify(),
        lambda _, topic: topic.bulk_load("nightly"),
        lambda _, topic: topic.stage("nightly", "0"),
        lambda _, topic: topic.scan(),
        lambda _, topic: topic.to_arrow(),
        lambda _, topic: topic.batches(),
    ],
)
def test_what_only_a_directory_can_do_raises_a_sentence_that_says_so(
    tmp_path: Path, call: Callable[[Any, Any], Any]
) -> None:
    with Server(tmp_path / "events") as server, connect(server) as store:
        topic = store.topic("orders")
        with pytest.raises(falaj_client.errors.NotOverHttp, match="server's machine") as refused:
            call(store, topic)
        assert isinstance(refused.value, falaj.Error)
        with pytest.raises(AttributeError, match="no attribute"):
            topic.colour  # type: ignore[attr-defined]  # noqa: B018  # that it raises is the test


def test_the_token_is_the_argument_a_file_or_the_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(tmp_path / "events") as server:
        url = f"http://127.0.0.1:{server.port}"
        monkeypatch.delenv("FALAJ_TOKEN", raising=False)
        with falaj.connect(url) as store, pytest.raises(PermissionError, match="asks for a token"):
            list(store.topics)
        for token in (server.token, tmp_path / "events" / "server" / "token"):
            with falaj.connect(url, token=token) as store:
                assert list(store.topics) == []
        monkeypatch.setenv("FALAJ_TOKEN", server.token)
        with falaj.connect(url) as store:
            assert list(store.topics) == []
        with pytest.raises(falaj.errors.InvalidArgument, match="nowhere"):
            falaj.connect(url, token=tmp_path / "nowhere")
        with pytest.raises(falaj.errors.InvalidArgument, match="one word"):
            falaj.connect(url, token="two words\r\nHost: evil")


@pytest.mark.parametrize(
    "url", ["events", "file:///events", "http://", "http://user:secret@host", "http://host/path"]
)
def test_a_url_that_is_none_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(falaj.errors.InvalidArgument, match="URL of a server"):
        falaj.connect(url)


def test_a_token_may_do_what_its_grants_say_and_reads_without_the_right_to_create(
    tmp_path: Path,
) -> None:
    minted = subprocess.run(
        [str(Server.__init__.__globals__["PROGRAM"]), "--mint-token"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    token, digest = (line.split()[-1] for line in minted.strip().splitlines()[:2])
    principals = tmp_path / "principals.toml"
    principals.write_text(
        f'[[principal]]\nname = "reader"\ntokens = ["{digest}"]\n\n'
        '[[principal.grants]]\ntopic = "orders*"\nallow = ["read"]\n'
    )
    principals.chmod(0o600)
    with falaj.open(tmp_path / "events") as native:
        native.topic("orders", codec="str").append("a")
        native.topic("orders.new")
    with Server(tmp_path / "events", "--access-principals", str(principals)) as server:
        url = f"http://127.0.0.1:{server.port}"
        with falaj.connect(url, token=token) as store:
            topic = store.topic("orders", codec="str")
            assert [record.value for record in topic] == ["a"]
            assert len(store.topic("orders.new", codec="json")) == 0
            for call in (lambda: topic.append("b"), lambda: store.topic("orders.none")):
                with pytest.raises(falaj.errors.PermissionDenied):
                    call()


def test_errors_are_those_of_falaj_where_it_is_installed_and_alike_where_not() -> None:
    for name in falaj.errors.__all__:
        assert getattr(falaj_client.errors, name) is getattr(falaj.errors, name)
    alone = (
        "import sys; sys.modules['falaj'] = None\n"
        "import falaj_client.errors as e, falaj_client._own_errors as own\n"
        "assert all(getattr(e, n) is getattr(own, n) for n in own.__all__)\n"
        "assert issubclass(e.ServerUnavailable, e.Error)\n"
        "assert issubclass(e.OffsetOutOfRange, IndexError)\n"
    )
    client = Path(falaj_client.__file__).parent.parent
    subprocess.run(
        [sys.executable, "-c", alone], check=True, env=os.environ | {"PYTHONPATH": str(client)}
    )


def test_connect_says_what_to_install_where_the_client_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "falaj_client", None)
    for call in (falaj.connect, falaj.aconnect):
        with pytest.raises(falaj.errors.MissingExtra, match=r"pip install 'falaj\[client\]'"):
            call("http://127.0.0.1:4437")


def test_a_server_that_is_not_there_is_named_once_the_time_is_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    store = falaj.connect(f"http://127.0.0.1:{port}", timeout=0.3)
    with store, pytest.raises(falaj_client.errors.ServerUnavailable) as refused:
        store.topic("orders")
    assert isinstance(refused.value, ConnectionError)
    assert isinstance(refused.value, falaj.errors.RetryableError)
    assert not refused.value.may_have_happened


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        store = connect(server)
        topic = store.topic("orders")
        store.close()
        with pytest.raises(falaj.errors.HandleClosed):
            topic.append(b"x")


def test_from_asyncio_everything_works_as_it_does_without(tmp_path: Path) -> None:
    async def use(url: str, token: str) -> None:
        async with falaj.aconnect(url, token=token) as store:
            topic = await store.topic("orders", codec="json")
            assert await topic.append({"a": 1}, "k") == 0
            assert await topic.extend([1, 2, 3]) == range(1, 4)
            assert [record.value async for record in topic] == [{"a": 1}, 1, 2, 3]
            assert (await topic[0]).key == b"k"
            assert [record.value async for record in await topic[-2:]] == [2, 3]
            assert (await topic.start_offset(), await topic.end_offset()) == (0, 4)
            appended = await asyncio.gather(*(topic.append(i) for i in range(20)))
            assert sorted(appended) == list(range(4, 24))
            parts = await store.partitioned_topic("parts", partitions=2, codec="str")
            place = await parts.append("x", "k")
            assert (await parts[place]).value == "x"
            async with store.transaction() as tx:
                tx.append(topic, "last")
            assert tx.offsets == {"orders": {0: range(24, 25)}}
            with pytest.raises(falaj.errors.OffsetOutOfRange):
                await topic[25]
            async with topic.follow("latest") as follower:
                waiting = asyncio.ensure_future(anext(follower))
                while not waiting.done():  # it may begin behind the first of them
                    await topic.append("news")
                assert (await waiting).value == "news"
            await topic.finish()
            assert len([record async for record in topic.follow()]) == await topic.end_offset()
            assert sorted(await store.topics()) == ["orders", "parts"]
            await topic.delete()
            with pytest.raises(falaj_client.errors.NotOverHttp):
                topic.bulk_load("x")  # type: ignore[attr-defined]

    with Server(tmp_path / "events") as server:
        asyncio.run(use(f"http://127.0.0.1:{server.port}", server.token))
