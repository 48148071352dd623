"""The page in a real browser: it shows what the API says, and what comes, without a reload."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import falaj
from server.browser import Browser, needs_chromium
from server.doors import Server
from server.watching import (
    click,
    facts,
    native,
    page,
    rows,
    says,
    set_size,
    shop,
    table,
    text_of,
    there,
    until_row,
)

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


def test_the_page_shows_what_the_api_says(tmp_path: Path, browser: Browser) -> None:
    shop(tmp_path / "events")
    with Server(tmp_path / "events") as server, page(browser, server):
        there(browser, "tbody td.number:not(:empty)")
        store = server.get("/v1/store").json
        logs = {log["log"]: log for log in store["logs"]}
        shown = {
            re.sub("compacted|finished", "", row["Topic"]): row for row in table(browser, "Topics")
        }
        assert (
            set(shown)
            == {topic["topic"] for topic in store["topics"]}
            == {"orders", "customers", "notes"}
        )
        for topic in store["topics"]:
            row, all_ = shown[topic["topic"]], topic["partitions"]
            records = sum(one["end_offset"] - one["start_offset"] for one in all_)
            assert row["Records"].removeprefix("≤ ") == str(records)
            assert row["Partitions"] == str(len(all_))
            assert row["Codec"] == topic["codec"]
            assert row["Segments"] == str(logs[topic["log"]]["segments"])
            kib = logs[topic["log"]]["bytes"] / 1024
            assert row["Size"] == (f"{kib:.1f} KiB" if kib < 10 else f"{round(kib)} KiB")
            assert topic == server.get(f"/v1/topics/{topic['topic']}").json
        assert "finished" in next(
            row["Topic"] for row in table(browser, "Topics") if "notes" in row["Topic"]
        )
        assert shown["customers"]["Keeps"] == "7d, 1,000 records"
        (writer,) = table(browser, "Processes that write")
        assert writer["Process"] == f"{server.process.pid}, this server"
        # A topic, and a record of it in full.
        browser.go(f"http://127.0.0.1:{server.port}/#/topics/orders")
        there(browser, ".row", 24)
        read = [
            record
            for partition in range(3)
            for record in server.get(f"/v1/topics/orders/records?partition={partition}").json[
                "records"
            ]
        ]
        assert {
            (row["offset"], row["key"], json.loads(row["data"])["order"]) for row in rows(browser)
        } == {
            (f"{one['partition']}·{one['offset']}", one["key"], one["value"]["order"])
            for one in read
        }
        times = [row["time"] for row in rows(browser)]
        assert times == sorted(times), "partitions are merged by time"
        browser.run("document.querySelector('details.more').open = true")
        there(browser, ".segments li")
        assert [int(row["End"]) for row in table(browser, "Partitions")] == [
            one["end_offset"] for one in server.get("/v1/topics/orders").json["partitions"]
        ]


def test_a_record_is_shown_in_full_and_exactly(tmp_path: Path, browser: Browser) -> None:
    path = tmp_path / "events"
    document = (
        '{"id": 12345678901234567890, "10": 1, "2": 2.50, "2": 3, "__proto__": null,'
        ' "deep": [["x"]], "e": 1e400}'
    )
    with falaj.open(path) as store:
        store.topic("a", codec="json").append({})
    with Server(path) as server:
        server.post(
            "/v1/topics/a/records",
            # A dump: as a value the number beyond 64 bits would be refused.
            b'{"value": %s}' % document.encode(),
            Content_Type="application/vnd.falaj.records+ndjson",
            Falaj_Key="eu",
            Falaj_Header_By="me",
        )
        with page(browser, server, "#/topics/a?partition=0&offset=1"):
            there(browser, ".pane .fold")
            (_, read) = server.get("/v1/topics/a/records").json["records"]
            shown = facts(browser, ".pane .facts")
            assert shown["Time"].startswith(read["time"])
            assert {name: shown[name] for name in ("Topic", "Partition", "Offset", "Key")} == {
                "Topic": "a",
                "Partition": "0",
                "Offset": "1",
                "Key": "eu",
            }
            header = text_of(browser, ".pane .headers tr")
            assert header == "byme"
            leaves = browser.run(
                "return [...document.querySelectorAll('.value .leaf')].map(one => one.textContent)"
            )
            assert leaves == [
                '"id": 12345678901234567890',
                '"10": 1',
                '"2": 2.50',
                '"2": 3',
                '"__proto__": null',
                '0: "x"',
                '"e": 1e400',
            ]
            click(browser, "[role=tab]", "Text")
            assert text_of(browser, ".value pre") == document
            click(browser, "[role=tab]", "Bytes")
            dump = text_of(browser, ".value pre")
            digits = "".join(line[10:57] for line in dump.splitlines())
            assert bytes.fromhex(digits) == document.encode()
            click(browser, "[role=tab]", "JSON")
            browser.press("Escape")


def test_a_native_append_appears_without_a_reload(tmp_path: Path, browser: Browser) -> None:
    path = tmp_path / "events"
    native(path, "notes", "the first")
    with Server(path) as server:
        with page(browser, server):
            browser.run("window.mark = 1")
            native(path, "news", "a new topic")
            browser.until(
                "[...document.querySelectorAll('tbody a')].some(one => one.textContent === 'news')"
            )
            assert browser.run("return window.mark") == 1
        with page(browser, server, "#/topics/notes"):
            until_row(browser, "the first")
            browser.run("window.mark = 1")
            for text in ("the second", "the third"):
                native(path, "notes", text)
                until_row(browser, text)
            says(browser, ".summary", "Records3")
            assert [row["data"] for row in rows(browser)] == [
                "the first",
                "the second",
                "the third",
            ]
            assert browser.run("return window.mark") == 1


def test_a_large_topic_that_grows_fast_keeps_the_page_small(
    tmp_path: Path, browser: Browser
) -> None:
    path = tmp_path / "events"
    with falaj.open(path) as store:
        topic = store.topic("a", codec="str")
        topic.extend([f"old-{number}" for number in range(30_000)])
        with Server(path) as server, page(browser, server, "#/topics/a"):
            until_row(browser, "old-29999")
            for batch in range(12):
                topic.extend([f"new-{batch}-{number}" for number in range(2000)])
            topic.append("the last one")
            until_row(browser, "the last one")
            browser.press("Home")
            browser.until("document.querySelector('.row').ariaPosInSet === '1'")
            assert browser.run("return document.querySelectorAll('.row').length") < 80
            assert browser.run("return document.querySelector('.list').ariaLabel") == "Records of a"
            assert set_size(browser) <= 5000
            browser.until(
                "/at most 5,000|were skipped/.test(document.querySelector('.notice').textContent)"
            )
            # Back to what left, and search what the page does not hold.
            browser.press("/")
            browser.type("old-123")
            there(browser, ".row", 0)
            browser.run("document.activeElement.blur()")
            browser.press("o")
            there(browser, ".row")
            assert all("old-123" in row["data"] for row in rows(browser))


def test_a_chosen_record_stays_in_sight_while_more_come_and_the_end_is_followed_again(
    tmp_path: Path, browser: Browser
) -> None:
    path = tmp_path / "events"
    with falaj.open(path) as store:
        topic = store.topic("a", codec="str")
        topic.extend([f"old-{number}" for number in range(100)])
        with Server(path) as server, page(browser, server, "#/topics/a"):
            until_row(browser, "old-99")
            browser.press("End", "ArrowUp")
            topic.extend([f"new-{number}" for number in range(100)])
            browser.until("Number(document.querySelector('.row').ariaSetSize) === 200")
            assert text_of(browser, ".row[aria-selected=true] .data") == "old-98"
            in_sight = browser.run(
                "const [row, list] = ['.row[aria-selected=true]', '.list']"
                ".map(one => document.querySelector(one).getBoundingClientRect());"
                "return row.top >= list.top && row.bottom <= list.bottom"
            )
            assert in_sight
            browser.press("End")
            topic.append("the last one")
            until_row(browser, "the last one")


def test_a_hidden_page_holds_no_connection_and_misses_nothing(
    tmp_path: Path, browser: Browser
) -> None:
    path = tmp_path / "events"
    native(path, "notes", "before")
    hide = (
        "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    with Server(path) as server, page(browser, server, "#/topics/notes"):
        until_row(browser, "before")
        assert followers(server) == 1
        browser.run(hide % "true")
        while followers(server):
            pass
        native(path, "notes", "meanwhile")
        browser.run(hide % "false")
        until_row(browser, "meanwhile")
        assert [row["data"] for row in rows(browser)] == ["before", "meanwhile"]


def followers(server: Server) -> int:
    """Count the requests that wait for records."""
    lines = server.get("/metrics").body.decode().splitlines()
    (count,) = (line.split()[1] for line in lines if line.startswith("falaj_server_followers "))
    return int(count)


def test_a_topic_that_gets_its_codec_by_its_first_record_shows_it(
    tmp_path: Path, browser: Browser
) -> None:
    path = tmp_path / "events"
    with Server(path) as server:
        server.request("PUT", "/v1/topics/a")
        with page(browser, server, "#/topics/a"):
            says(browser, ".notice", "no record yet")
            with falaj.open(path) as store:
                store.topic("a", codec="json").append({"id": 12345678901234567890})
            until_row(browser, '{"id":12345678901234567890}')
            says(browser, ".summary", "Codecjson")


def test_other_beginnings_are_read_from_where_they_say(tmp_path: Path, browser: Browser) -> None:
    path = tmp_path / "events"
    with falaj.open(path) as store:
        topic = store.topic("a", codec="str")
        topic.extend([str(number) for number in range(3000)])
    pick = (
        "const one = document.querySelector('select[aria-label^=Where]'); one.value = '%s';"
        "one.dispatchEvent(new Event('change'));"
    )
    with Server(path) as server, page(browser, server, "#/topics/a"):
        until_row(browser, "2999")
        browser.run(pick % "oldest")
        browser.until("document.querySelector('.row')?.textContent.startsWith('0')")
        says(browser, ".bar .state", "More records follow")
        assert set_size(browser) == 500
        browser.press("p")
        browser.until(
            "Number(document.querySelector('.row').getAttribute('aria-setsize')) === 1000"
        )
        browser.run(pick % "offset")
        browser.type("2900")
        browser.press("Enter")
        browser.until("document.querySelector('.row')?.textContent.startsWith('2900')")
        says(browser, ".bar .state", "Live")
        browser.run("document.activeElement.blur()")
        browser.press("o")
        browser.until("Number(document.querySelector('.row').getAttribute('aria-setsize')) === 600")


def test_after_the_server_was_away_the_page_goes_on_where_it_was(
    tmp_path: Path, browser: Browser
) -> None:
    path = tmp_path / "events"
    native(path, "notes", "before")
    with Server(path) as server, page(browser, server, "#/topics/notes"):
        until_row(browser, "before")
        browser.run("window.mark = 1")
        server.stop()
        says(browser, ".trouble:not([hidden])", "does not answer")
        assert [row["data"] for row in rows(browser)] == ["before"], "what was shown stays"
        native(path, "notes", "meanwhile")
        with Server(path, "--http", f"127.0.0.1:{server.port}"):
            until_row(browser, "meanwhile")
            native(path, "notes", "after")
            until_row(browser, "after")
            assert [row["data"] for row in rows(browser)] == ["before", "meanwhile", "after"]
            browser.until("document.querySelector('.trouble').hidden")
            assert browser.run("return window.mark") == 1
            browser.errors.clear()  # the browser says that it was refused


def test_the_end_of_a_topic_is_said(tmp_path: Path, browser: Browser) -> None:
    path = tmp_path / "events"
    for name in ("a", "b"):
        native(path, name, "x")
    with Server(path, "--limits-ping", "200ms") as server, page(browser, server, "#/topics/a"):
        until_row(browser, "x")
        server.post("/v1/topics/a:finish", b"")
        says(browser, ".notice", "no record comes after these")
        browser.go(f"http://127.0.0.1:{server.port}/#/topics/b")
        browser.until(
            "document.querySelector('h1')?.textContent === 'b' && document.querySelector('.row')"
        )
        server.request("DELETE", "/v1/topics/b")
        says(browser, ".notice", "was deleted")
        browser.go(f"http://127.0.0.1:{server.port}/#/topics/none")
        says(browser, ".problem", "no topic")
        browser.errors.clear()  # the browser says that an answer was 404


def test_groups_are_shown_with_their_members_and_lag(tmp_path: Path, browser: Browser) -> None:
    path = tmp_path / "events"
    with falaj.open(path) as store:
        topic = store.topic("notes", codec="str")
        topic.extend([str(number) for number in range(2000)])
        with (
            store.consumer("billing", ["notes"]) as group,
            Server(path) as server,
            page(browser, server),
        ):
            group.poll(7)
            group.commit()
            told = server.get("/v1/groups").json["groups"][0]
            shown = {"Group": "billing", "Members": "1", "Lag": "1,993"}
            assert (told["lag"], told["members"]) == (1993, 1)
            says(browser, "table[aria-label=Groups] tbody", "1,993")
            assert table(browser, "Groups") == [shown]
            group.poll(1000)
            group.commit()
            says(browser, "table[aria-label=Groups] tbody", "993")
            click(browser, "button.link", "billing")
            there(browser, "dialog td")
            (part,) = table(browser, "Partitions of the group")
            asked = server.get("/v1/groups/billing").json["partitions"][0]
            assert int(part["Committed"].replace(",", "")) == asked["committed"] >= 1000
            assert part["Member"].startswith(f"process {asked['owner']['process']}")
            browser.press("Escape")


def test_queues_are_shown_with_their_numbers(tmp_path: Path, browser: Browser) -> None:
    take = {"worker": "w1", "number": 1, "limit": 2, "wait": "10s", "lease": "60s"}
    with Server(tmp_path / "events") as server:
        for number in range(5):
            server.post("/v1/queues/invoices/put", b"%d" % number)
        server.post("/v1/queues/invoices/take", json.dumps(take).encode())
        with page(browser, server):
            says(browser, "table[aria-label=Queues] tbody", "invoices")
            (told,) = server.get("/v1/queues").json["queues"]
            assert (told["ready"], told["in_flight"]) == (3, 2)
            names = {"Ready": "ready", "Delayed": "delayed", "In flight": "in_flight"}
            names |= {"Done": "done", "Dead": "dead", "Topic": "topic", "Queue": "queue"}
            (shown,) = table(browser, "Queues")
            assert shown == {name: str(told[member]) for name, member in names.items()}
            jobs = {"worker": "w2", "number": 1, "limit": 3, "wait": "10s", "lease": "60s"}
            server.post("/v1/queues/invoices/take", json.dumps(jobs).encode())
            browser.until(
                "document.querySelector('table[aria-label=Queues] td:nth-child(5)')"
                ".textContent === '5'"
            )
            click(browser, "button.link", "invoices")
            there(browser, "dialog dd")
            assert facts(browser, "dialog .facts")["in flight"] == "5"
            browser.press("Escape")
