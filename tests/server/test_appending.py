"""Bodies of appends: each form, each refusal, conditions, and what is safe to repeat."""

import json
from pathlib import Path

import pytest

import falaj
from server.doors import Reply, Server
from server.test_limits import PEAK, gauge, wait

PATH = "/v1/topics/orders/records"
NDJSON = "application/x-ndjson"
HEADERS = ",".join(['{"name":""}'] * 1001)
OBJECTS = "application/vnd.falaj.records+ndjson"


def post(server: Server, body: bytes | str, kind: str, query: str = "", **headers: str) -> Reply:
    """Append a body of this type."""
    raw = body.encode() if isinstance(body, str) else body
    return server.post(PATH + query, raw, Content_Type=kind, **headers)


@pytest.mark.parametrize(
    ("kind", "body", "values", "codec"),
    [
        (NDJSON, b'{"a": 1}\n\n  [2]\r\n"three"', [b'{"a": 1}', b"  [2]", b'"three"'], "json"),
        ("application/json", b'{\n"a": 1\n}', [b'{\n"a": 1\n}'], "json"),
        ("text/plain; charset=utf-8", b"one\r\n\ntwo\n", [b"one", b"", b"two"], "str"),
        ("application/octet-stream", b"\0\n\xff", [b"\0\n\xff"], "bytes"),
        ("", b"", [b""], "bytes"),
    ],
)
def test_the_type_of_a_body_says_which_records_it_holds(
    tmp_path: Path, kind: str, body: bytes, values: list[bytes], codec: str
) -> None:
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        reply = post(server, body, kind, Falaj_Key="k", Falaj_Header_Trace="7")
        assert (reply.status, reply.json["next"]) == (201, len(values)), reply
        assert server.get("/v1/topics/orders").json["codec"] == codec
        records = list(store.any_topic("orders"))
        assert [bytes(record.raw or b"") for record in records] == values
        for record in records:
            assert bytes(record.key or b"") == b"k"
            assert [(name, bytes(value or b"")) for name, value in record.headers] == [
                ("trace", b"7")
            ]


def test_lines_that_a_read_gives_are_appended_again_as_the_same_records(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store:
        topic = store.topic("orders", compacted=True)
        topic.append(b"text \xe2\x98\x95", "k", headers={"a": b"1", "b": None})
        topic.append(b"\xff\0", b"\xfe")
        topic.tombstone("k", headers={"why": b"\xff"})
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        lines = server.get(PATH, Accept=NDJSON).body
        copied = server.post("/v1/topics/copy/records", lines, Content_Type=OBJECTS)
        assert copied.json["next"] == 3, copied
        again = server.get("/v1/topics/copy/records", Accept=NDJSON).body
        left, right = ([json.loads(line) for line in text.splitlines()] for text in (lines, again))
        for record in (*left, *right):
            del record["topic"]
        assert right == left
        assert [record.value for record in store.any_topic("copy")][2] is None


def test_a_document_of_a_json_topic_keeps_the_text_that_it_had(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store:
        topic = store.topic("orders", codec="json")
        with Server(tmp_path / "events") as server:
            line = '{"value": {"n": 1.10, "big": 9007199254740993}, "key": "k"}\n{"value": null}\n'
            assert post(server, line, OBJECTS).status == 201
            read = server.get(PATH, Accept=NDJSON).body.decode().splitlines()
        values = [bytes(record.raw or b"") for record in topic]
        assert values == [b'{"n": 1.10, "big": 9007199254740993}', b"null"]
        assert read[0].endswith('"value":{"n": 1.10, "big": 9007199254740993}}')


@pytest.mark.parametrize(
    ("kind", "body", "part"),
    [
        (NDJSON, "1\n{x\n", "line 2 is not JSON"),
        (NDJSON, "\n \n", "holds no record"),
        ("application/json", "{", "the body is not JSON"),
        (NDJSON, b'"\xff"', "line 1 is not UTF-8"),
        ("text/plain", b"a\n\xff\n", "line 2 is not UTF-8"),
        (OBJECTS, "[]", "line 1 is no record"),
        (OBJECTS, '{"value": "a", "colour": "red"}', "colour"),
        (OBJECTS, '{"value": "a", "value": "b"}', "duplicate field"),
        (OBJECTS, '{"key": "k"}', "neither value nor value_base64"),
        (OBJECTS, '{"value": 5}', "no text"),
        (OBJECTS, '{"value": "a", "value_base64": "AA=="}', "twice"),
        (OBJECTS, '{"value_base64": "%"}', "no Base64"),
        (OBJECTS, '{"value": "a", "key": "k", "key_base64": "AA=="}', "its key twice"),
        (OBJECTS, '{"value": "a", "time": "yesterday"}', "no time that can be read"),
        (OBJECTS, '{"tombstone": true}', "tombstone without a key"),
        (OBJECTS, '{"key": "k", "tombstone": true, "value": "a"}', "tombstone with a value"),
        (OBJECTS, '{"value": "a", "headers": [{"value": "x"}]}', "name"),
        (OBJECTS, '{"value": "a", "headers": [["name", "x"]]}', "expected a JSON object"),
        (OBJECTS, f'{{"value": "a", "headers": [{HEADERS}]}}', "at most"),
        (OBJECTS, '{"value": "\\ud800"}', "no text"),
        (OBJECTS, '{"value": "a"}\n{"value": "b", "partition": 1}', "partition"),
    ],
)
def test_a_body_with_a_mistake_is_refused_with_its_line_and_creates_no_topic(
    tmp_path: Path, kind: str, body: str | bytes, part: str
) -> None:
    with Server(tmp_path / "events") as server:
        refused = post(server, body, kind)
        assert (refused.status, refused.problem in ("bad-request", "invalid-argument")) == (
            400,
            True,
        )
        assert part in refused.json["detail"], refused.json
        assert server.get("/v1/topics").json == {"topics": []}


UNREADABLE = {
    "1e999": "larger than any number of 64 bits",
    '{"a": [2, -1E+400]}': "-1E+400",
    '"\\ud800"': "half a character",
    '{"a\\udc00": 1}': "half a character",
    "7" * 4301: "4301 digits",
    "[" * 129 + "]" * 129: "more than 128 deep",
}


@pytest.mark.parametrize("kind", [NDJSON, "application/json", "text/plain", "application/x-data"])
@pytest.mark.parametrize("document", UNREADABLE, ids=lambda text: text[:12])
def test_json_whose_value_the_codec_refuses_is_no_value_of_a_json_topic(
    tmp_path: Path, kind: str, document: str
) -> None:
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        topic = store.topic("orders", codec="json")
        refused = post(server, document, kind)
        assert refused.status == 400, refused
        assert UNREADABLE[document] in refused.json["detail"], refused.json
        assert len(topic) == 0


def test_json_that_the_codec_takes_is_taken_to_its_limits(tmp_path: Path) -> None:
    lines = ["1e308", "7" * 4300, "[" * 128 + "]" * 128, '"\\ud83d\\ude00 \\\\ud800"']
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        topic = store.topic("orders", codec="json")
        assert post(server, "\n".join(lines), NDJSON).status == 201
        values = [record.value for record in topic]
        assert values == [json.loads(line) for line in lines]
        # And the topic takes them as values, too.
        topic.extend(values)


def test_a_topic_of_another_codec_takes_any_json_as_the_text_that_it_is(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        topic = store.topic("orders", codec="str")
        assert post(server, "\n".join(UNREADABLE), NDJSON).status == 201
        assert [record.value for record in topic] == list(UNREADABLE)


def test_a_dump_of_json_that_is_no_value_of_the_codec_loads_if_it_can_be_read(
    tmp_path: Path,
) -> None:
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        topic = store.topic("orders", codec="json")
        lines = ['{"value": 1e999}', '{"value": "\\ud800"}']
        assert post(server, "\n".join(lines), OBJECTS).status == 201
        assert [record.value for record in topic] == [float("inf"), "\ud800"]
        unreadable = post(server, '{"value": %s}' % ("7" * 4301), OBJECTS)
        assert (unreadable.status, "4301 digits" in unreadable.json["detail"]) == (400, True)


@pytest.mark.parametrize(
    ("codec", "kind", "body", "status"),
    [
        ("json", "application/octet-stream", b"{x", 400),
        ("json", "text/plain", b"1\n{x", 400),
        ("json", "text/plain", b"1\n2", 201),
        ("json", OBJECTS, b'{"value_base64": "/w=="}', 400),
        ("str", "application/octet-stream", b"\xff", 400),
        ("str", NDJSON, b'{"a": 1}', 201),
        ("msgpack", NDJSON, b"1", 415),
        ("msgpack", "application/octet-stream", b"\x01", 201),
        ("msgpack", OBJECTS, b'{"value_base64": "AQ=="}', 201),
    ],
)
def test_a_value_that_the_topics_codec_cannot_read_is_never_appended(
    tmp_path: Path, codec: str, kind: str, body: bytes, status: int
) -> None:
    with Server(tmp_path / "events") as server:
        made = server.request("PUT", "/v1/topics/orders", json.dumps({"codec": codec}).encode())
        assert made.status == 201, made
        reply = post(server, body, kind)
        assert reply.status == status, reply
        if status != 201:
            assert reply.problem in ("bad-request", "unknown-values")
            assert server.get("/v1/topics/orders").json["partitions"][0]["end_offset"] == 0


def test_a_topic_that_was_deleted_and_made_again_gets_values_of_its_new_codec_alone(
    tmp_path: Path,
) -> None:
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        for _ in range(2):  # the second one finds the topic open
            assert post(server, "any text", "text/plain").status == 201
        store.delete_topic("orders")
        store.topic("orders", codec="json")
        refused = post(server, "any text", "text/plain")
        assert (refused.status, refused.problem) == (400, "bad-request"), refused
        assert post(server, '{"a": 1}', NDJSON).json["first"] == 0


def test_a_batch_is_appended_whole_or_not_at_all_at_its_expected_offset(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        assert post(server, "1\n2\n3", NDJSON, If_Next="0").json["next"] == 3
        refused = post(server, "4\n5", NDJSON, If_Next="0")
        assert (refused.status, refused.problem, refused.json["next"]) == (
            412,
            "offset-conflict",
            3,
        )
        assert post(server, "4\n5", NDJSON, If_Next="3").json["first"] == 3
        assert server.get("/v1/topics/orders").json["partitions"][0]["end_offset"] == 5


def test_a_batch_of_a_producer_is_appended_once_however_often_it_is_sent(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store:
        store.partitioned_topic("orders", partitions=4)
    named = {"Falaj_Producer": "p", "Falaj_Sequence": "1"}
    with Server(tmp_path / "events") as server:
        first = post(server, "one\ntwo\nthree", "text/plain", **named)
        assert [part["next"] - part["first"] for part in first.json["partitions"]] == [3]
        for _ in range(3):
            assert post(server, "one\ntwo\nthree", "text/plain", **named).json == first.json
        server.stop()
    with Server(tmp_path / "events") as server:
        assert post(server, "one\ntwo\nthree", "text/plain", **named).json == first.json
        alone = post(
            server, "four", "text/plain", "?partition=2", **named | {"Falaj_Sequence": "2"}
        )
        assert alone.json["partition"] == 2
        partitions = server.get("/v1/topics/orders").json["partitions"]
        assert sum(one["end_offset"] for one in partitions) == 4
        gap = post(server, "six", "text/plain", **named | {"Falaj_Sequence": "9"})
        assert (gap.status, gap.problem, gap.json["next_sequence"]) == (
            409,
            "out-of-order-sequence",
            3,
        )


def test_any_number_of_producers_append_once_each_and_none_is_a_native_one(tmp_path: Path) -> None:
    named = {"Falaj_Producer": "p", "Falaj_Sequence": "0"}
    with falaj.open(tmp_path / "events") as store:
        topic = store.topic("orders", segment_bytes=65536)
        # As the server calls its producers: this one is another.
        topic.append(b"native", producer="local/p", sequence=5)
        with Server(tmp_path / "events") as server:
            first = post(server, "mine", "text/plain", **named)
            assert (first.status, first.json["first"]) == (201, 1)
            # A log of these segments remembers fewer.
            for i in range(200):
                fresh = named | {"Falaj_Producer": f"start-{i}"}
                assert post(server, "mine", "text/plain", **fresh).status == 201, i
                parts = json.dumps({"parts": [{"topic": "orders", "records": [{"value": "x"}]}]})
                fresh = named | {"Falaj_Producer": f"parts-{i}"}
                assert server.post("/v1/append", parts.encode(), **fresh).status == 201, i
        known = topic.producers()
        assert [one.sequence for one in known if not one.expiring] == [5]
        assert 0 < sum(one.expiring for one in known) < 200


def test_records_go_to_the_partitions_of_their_keys_or_to_the_one_that_they_name(
    tmp_path: Path,
) -> None:
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        topic = store.partitioned_topic("orders", partitions=3)
        lines = [json.dumps({"key": f"{i}", "value": f"{i}"}) for i in range(20)]
        lines.append(json.dumps({"value": "named", "partition": 2}))
        reply = post(server, "\n".join(lines), OBJECTS)
        assert reply.status == 201, reply
        assert sum(part["next"] - part["first"] for part in reply.json["partitions"]) == 21
        places = [(record.key, record.partition) for record in topic]
        assert len({partition for _, partition in places}) == 3
        for key, partition in places:
            expected = 2 if key is None else topic.append(b"native", bytes(key)).partition
            assert partition == expected
        refused = post(server, lines[-1], OBJECTS, "?partition=1")
        assert (refused.status, refused.problem) == (400, "bad-request")


def test_many_small_records_in_one_body_stay_within_memory(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        refused = post(server, "1\n" * 4_000_000, NDJSON)
        assert (refused.status, refused.problem, refused.json["limit"]) == (
            413,
            "batch-too-large",
            100_000,
        )
        assert server.peak_rss() < PEAK
        assert gauge(server, "bytes_in_flight") == 0


def test_an_append_is_on_the_disk_within_the_interval_by_itself(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        assert post(server, "1\n2", NDJSON).json["durable"] is False

        def durable() -> bool:
            partition = server.get("/v1/topics/orders").json["partitions"][0]
            return bool(partition["durable_offset"] == 2)

        wait(durable)


@pytest.mark.parametrize(
    ("query", "headers", "body", "status", "kind"),
    [
        ("?partition=1", {}, b"x", 400, "bad-request"),
        ("", {"Content_Type": OBJECTS}, b'{"value": "x", "partition": 1}', 400, "bad-request"),
        ("", {"If_Next": "5"}, b"x", 412, "offset-conflict"),
        ("", {}, bytes(16 << 20), 413, "append-too-large"),
        (
            "",
            {"Content_Type": NDJSON, "Falaj_Header_Trace": "x" * 4000},
            b"1\n" * 5000,
            413,
            "append-too-large",
        ),
        ("", {"Falaj_Producer": "p" * 1025, "Falaj_Sequence": "1"}, b"x", 400, "bad-request"),
        ("?sync=remote", {}, b"x", 409, "no-shipper"),
    ],
)
def test_a_refused_append_creates_no_topic(
    tmp_path: Path, query: str, headers: dict[str, str], body: bytes, status: int, kind: str
) -> None:
    with Server(tmp_path / "events") as server:
        refused = server.post(PATH + query, body, **headers)
        assert (refused.status, refused.problem) == (status, kind), refused
        assert server.get("/v1/topics").json == {"topics": []}
        first = server.post(f"{PATH}?partition=0", b"1", If_Next="0", Content_Type="text/plain")
        assert (first.status, server.get("/v1/topics/orders").json["codec"]) == (201, "str")


@pytest.mark.parametrize(
    "name", ["If-Next", "Falaj-Key", "Falaj-Producer", "Falaj-Sequence", "Falaj-Generation"]
)
def test_a_header_that_is_sent_twice_is_refused(tmp_path: Path, name: str) -> None:
    with Server(tmp_path / "events") as server, server.socket() as client:
        twice = f"{name}: 1\r\n" * 2
        client.sendall(f"{server.head(PATH)}{twice}Content-Length: 1\r\n\r\nx".encode())
        answer = client.recv(1 << 16)
        assert answer.startswith(b"HTTP/1.1 400"), answer
        assert f"the header {name.lower()} was sent twice".encode() in answer, answer
        assert server.get("/v1/topics").json == {"topics": []}


@pytest.mark.parametrize("number", ["+0", "-0", "0x0", "1_0", " ", str(2**64)])
def test_a_number_is_written_in_digits_alone(tmp_path: Path, number: str) -> None:
    with Server(tmp_path / "events") as server:
        refused = server.post(PATH, b"x", If_Next=number)
        assert (refused.status, refused.problem) == (400, "bad-request"), refused


def test_a_header_of_a_record_that_lists_its_members_without_names_is_refused(
    tmp_path: Path,
) -> None:
    with Server(tmp_path / "events") as server:
        refused = post(server, '{"value": "a", "headers": [["x", "y"]]}', OBJECTS)
        assert (refused.status, refused.problem) == (400, "bad-request"), refused
