"""Compressed answers."""

import gzip
import json
import os
import threading
from pathlib import Path

from server.doors import Server

RECORDS = "/v1/topics/a/records"


def test_an_answer_is_compressed_where_the_client_takes_it_and_it_is_large(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        server.post(RECORDS, b"\n".join([b"x" * 100] * 1000), Content_Type="text/plain")
        plain = server.get(RECORDS)
        assert "content-encoding" not in plain.headers
        assert plain.headers["vary"] == "Accept-Encoding"
        packed = server.get(RECORDS, Accept_Encoding="br, gzip;q=0.5")
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.headers["falaj-next-offset"] == "1000"
        assert gzip.decompress(packed.body) == plain.body
        assert len(packed.body) < len(plain.body) / 5
        zstd = server.get(RECORDS, Accept_Encoding="gzip, zstd")
        assert zstd.headers["content-encoding"] == "zstd"
        assert zstd.body[:4] == b"\x28\xb5\x2f\xfd"
        # The server reads what it wrote: as a body it becomes one record.
        raw = server.get(RECORDS, Accept_Encoding="zstd", Accept="application/octet-stream")
        sent = {"Content_Encoding": "zstd", "Content_Type": "application/octet-stream"}
        assert server.post("/v1/topics/b/records", raw.body, **sent).status == 201
        uncompressed = server.get(RECORDS, Accept="application/octet-stream").body
        (back,) = server.get("/v1/topics/b/records").json["records"]
        assert back["value_base64"] if "value_base64" in back else back["value"]
        assert len(uncompressed) == 1000 * 132
        small = server.get(f"{RECORDS}?limit=1", Accept_Encoding="gzip")
        assert "content-encoding" not in small.headers
        stream = {"Accept": "text/event-stream", "Accept_Encoding": "gzip"}
        events = server.get(f"{RECORDS}?limit=1000", **stream)
        assert "content-encoding" not in events.headers
        assert events.body.count(b"\ndata: ") == 1000


def test_jobs_are_compressed_and_noise_is_sent_as_it_is(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        server.post("/v1/queues/q/put", b"\n".join([b"x" * 100] * 100), Content_Type="text/plain")
        body = json.dumps({"worker": "w", "number": 1, "limit": 100}).encode()
        taken = server.post("/v1/queues/q/take", body, Accept_Encoding="gzip")
        assert taken.headers["content-encoding"] == "gzip"
        assert len(json.loads(gzip.decompress(taken.body))["jobs"]) == 100
        noise = os.urandom(100_000)
        server.post(RECORDS, noise)
        form = {"Accept": "application/octet-stream", "Accept_Encoding": "gzip, zstd"}
        sent = server.get(RECORDS, **form)
        assert "content-encoding" not in sent.headers
        assert noise in sent.body


def test_many_compressed_answers_stay_within_memory(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        server.post(RECORDS, b"\n".join([b"x" * 1000] * 2000), Content_Type="text/plain")
        got: list[int] = []

        def read() -> None:
            path = f"{RECORDS}?limit=4000"
            got.extend(server.get(path, Accept_Encoding="gzip").status for _ in range(3))

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert got == [200] * 24
        assert server.peak_rss() < 256 << 20
