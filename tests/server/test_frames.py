"""Reads as frames of bytes."""

import datetime
from pathlib import Path

import falaj
from server.doors import Server
from server.frames import read

RECORDS = "/v1/topics/a/records"


def test_frames_hold_what_a_native_reader_gets(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events") as server:
        topic = store.topic("a", codec="bytes")
        when = datetime.datetime(1969, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
        topic.append(
            b"\x00\xff" * 1000, b"k\xfe", headers={"a": b"\x01", "b": None}, timestamp=when
        )
        topic.append(b"", "")
        topic.append(b"plain")
        topic.tombstone("ann")
        reply = server.get(RECORDS, Accept="application/octet-stream")
        assert reply.status == 200
        assert reply.headers["content-type"] == "application/octet-stream"
        assert reply.headers["falaj-next-offset"] == "4"
        native = [
            (one.offset, one.timestamp_ns, one.key, None if one.raw is None else bytes(one.raw))
            for one in topic
        ]
        framed = read(reply.body)
        assert [(one.offset, one.time_ns, one.key, one.value) for one in framed] == native
        assert framed[0].headers == [("a", b"\x01"), ("b", None)]
        assert (framed[1].key, framed[1].value, framed[2].key) == (b"", b"", None)
        assert framed[3].value is None


def test_frames_obey_the_limits_of_a_read(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        server.post(RECORDS, b"\n".join([b"x" * 100] * 1000), Content_Type="text/plain")
        first = server.get(f"{RECORDS}?limit=3", Accept="application/octet-stream")
        assert [one.offset for one in read(first.body)] == [0, 1, 2]
        some = server.get(f"{RECORDS}?from=3&bytes=1400", Accept="application/octet-stream")
        assert [one.offset for one in read(some.body)] == list(range(3, 13))
        assert some.headers["falaj-next-offset"] == "13"
        # A record comes also if it is larger than what was asked for.
        assert (
            len(
                read(
                    server.get(f"{RECORDS}?from=13&bytes=1", Accept="application/octet-stream").body
                )
            )
            == 1
        )
        nothing = server.get(f"{RECORDS}?from=1000", Accept="application/octet-stream")
        assert (nothing.body, nothing.headers["falaj-next-offset"]) == (b"", "1000")
