"""The store at a glance: topics with offsets, logs with sizes, processes that write."""

import hashlib
import os
import threading
from pathlib import Path

import falaj
from server.doors import Server
from server.test_door import TOKENS, principals


def test_the_overview_has_topics_logs_segments_and_the_processes_that_write(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with falaj.open(path) as store:
        small = store.topic("small", segment_bytes=1 << 16)
        for _ in range(15):
            small.append(b"x" * 12_000, sync="durable")
        store.partitioned_topic("many", partitions=3, log="shared").append(b"y", sync="durable")
        store.topic("one", log="shared").append(b"z", sync="durable")
        with Server(path) as server:
            told, native = server.get("/v1/store").json, store.info()
            assert [topic["topic"] for topic in told["topics"]] == ["many", "one", "small"]
            for topic in told["topics"]:
                assert topic == server.get(f"/v1/topics/{topic['topic']}").json
            logs = {log["log"]: log for log in told["logs"]}
            assert logs["shared"]["topics"] == ["many", "one"]
            for log in native["logs"]:
                found = logs[log["name"]]
                assert (found["bytes"], found["disk_bytes"]) == (log["live"], log["reserved"])
                whole = server.get(f"/v1/logs/{log['name']}").json
                assert [one["segment"] for one in whole["segments"]] == [
                    one["sequence"] for one in log["segments"]
                ]
                assert sum(one["bytes"] for one in whole["segments"]) == whole["bytes"]
                assert found["segments"] == len(log["segments"])
            assert logs["small"]["segments"] > 1
            writers = {one["process"]: one["is_this_server"] for one in told["writers"]}
            assert writers == {os.getpid(): False, server.process.pid: True}
            assert (told["path"], told["read_only"]) == (str(path), False)
            missing = server.get("/v1/logs/none")
            assert (missing.status, missing.problem) == (404, "unknown-log")


def test_an_append_is_in_the_overview_soon_and_many_clients_share_one_look(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with falaj.open(path) as store:
        topic = store.topic("a", codec="str")
        topic.append("x")
        with Server(path) as server:
            before = server.get("/v1/store").json
            topic.append("y")
            told = before
            while told["topics"][0]["partitions"][0]["end_offset"] < 2:
                # A look that is shared is the same one.
                assert (told["time"], told["topics"]) == (before["time"], before["topics"])
                told = server.get("/v1/store").json
            seen: set[str] = set()

            def ask() -> None:
                for _ in range(10):
                    seen.add(server.get("/v1/store").json["time"])

            threads = [threading.Thread(target=ask) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(seen) < 40, "80 requests looked once each"


def test_a_principal_sees_its_topics_alone_and_no_process(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with falaj.open(path) as store:
        store.topic("orders", log="shared").append(b"0")
        store.topic("secret", log="shared").append(b"0")
        store.topic("orders-eu").append(b"0")
    file = principals(tmp_path / "principals.toml")
    everything = hashlib.sha256(b"3" * 64).hexdigest()
    file.write_text(
        file.read_text() + f'[[principal]]\nname = "boss"\ntokens = ["{everything}"]\n'
        '[[principal.grants]]\ntopic = "*"\nallow = ["read", "admin"]\n'
    )
    with Server(path, "--access-principals", str(file)) as server:
        seen = server.get("/v1/store", token=TOKENS["viewer"])
        assert [topic["topic"] for topic in seen.json["topics"]] == ["orders", "orders-eu"]
        # The size of the other log would tell of the topic that it may not read.
        assert [log["log"] for log in seen.json["logs"]] == ["orders-eu"]
        assert b"secret" not in seen.body
        assert "writers" not in seen.json
        assert "path" not in seen.json
        for log, status in (("orders-eu", 200), ("shared", 404)):
            assert server.get(f"/v1/logs/{log}", token=TOKENS["viewer"]).status == status
        assert server.get("/v1/store", token=TOKENS["ingest"]).json["topics"] == []
        whole = server.get("/v1/store", token="3" * 64).json
        assert (len(whole["topics"]), len(whole["logs"]), len(whole["writers"])) == (3, 2, 1)


def test_a_topic_that_cannot_be_read_is_listed_with_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with falaj.open(path) as store:
        store.topic("a").append(b"x")
        store.topic("b").append(b"x")
    (settings,) = path.glob("topics/b/topic.json")
    settings.write_text("{}")
    with Server(path) as server:
        good, bad = server.get("/v1/store").json["topics"]
        assert (good["topic"], "problem" in good) == ("a", False)
        assert (bad["topic"], bad["partitions"]) == ("b", [])
        assert "b" in bad["problem"]
