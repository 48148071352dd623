"""Hostile records are text on the page, and a page of another origin gets nothing of it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import falaj
from server.browser import Browser, needs_chromium
from server.browser import page as foreign_page
from server.doors import Server
from server.watching import click, native, page, says, script, text_of, there, until_row

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


HOSTILE = (
    "<img src=x onerror=window.hacked=1>",
    "<script>window.hacked=1</script>",
    "</bdi></div><svg onload=window.hacked=1>",
    "javascript:window.hacked=1",
    "\u202egnp.exe\u202c \u2066x\u2069 \u200f",
    "\x00\x07\x1b[31m\x7f",
    '{"a": "<img src=x onerror=window.hacked=1>",'
    ' "<b>": ["</script><script>window.hacked=1</script>"]}',
    "[" * 100_000,
    "data: x\n\nevent: finished\ndata: {}\n\n",
    "\u0645\u0631\u062d\u0628\u0627 world",
)


def test_hostile_records_are_shown_as_text(tmp_path: Path, browser: Browser) -> None:
    path = tmp_path / "events"
    with falaj.open(path) as store:
        topic = store.topic("a", codec="str")
        for text in HOSTILE:
            topic.append(text, key=text[:200], headers={text[:100].replace("\x00", ""): text[:200]})
        store.topic("b").append(bytes(range(256)) * 4, key=b"\xff\xfe<b>")
    with Server(path) as server, page(browser, server, "#/topics/a"):
        browser.until(f"document.querySelectorAll('.row').length === {len(HOSTILE)}")
        browser.press("Home", "Enter")
        for text in HOSTILE:
            there(browser, ".pane .value")
            click(browser, "[role=tab]", "Text")
            shown = text_of(browser, ".value pre")
            expected = re.sub(
                "[\x00-\x08\x0b-\x1f\x7f\u200f\u202a-\u202e\u2066-\u2069]",
                lambda one: (
                    chr(0x2400 + ord(one[0])) if ord(one[0]) < 32 else f"⟨U+{ord(one[0]):04X}⟩"
                ),
                text,
            )
            assert shown == expected[: 64 << 10]
            browser.run("document.querySelector('[role=tab]').click()")
            browser.press("ArrowDown")
        assert (
            browser.run(
                "return document.querySelectorAll('.list img, .pane img, .place script').length"
            )
            == 0
        )
        browser.go(f"http://127.0.0.1:{server.port}/#/topics/b")
        says(browser, ".row", "0x000102")
        browser.press("End", "Enter")
        there(browser, ".value pre.hex")
        assert browser.run("return window.hacked") is None


def test_a_huge_record_opens_and_the_page_stays_small(tmp_path: Path, browser: Browser) -> None:
    path, length = tmp_path / "events", 8 << 20
    with falaj.open(path) as store:
        store.topic("a", codec="str").append("x" * length)
        store.topic("b", codec="json").append({"all": list(range(200_000)), "text": "y" * length})
    with Server(path) as server, page(browser, server, "#/topics/a"):
        until_row(browser, "xxxx")
        browser.press("End", "Enter")
        says(browser, ".value", "of 8,388,608")
        browser.go(f"http://127.0.0.1:{server.port}/#/topics/b")
        says(browser, ".row", "all")
        browser.press("End", "Enter")
        there(browser, ".pane .fold .fold")
        browser.run("document.querySelector('.pane .fold .fold').open = true")
        browser.until("document.querySelectorAll('.leaf').length >= 200")
        assert browser.run("return document.querySelectorAll('*').length") < 1500
        assert browser.run("return document.body.textContent.length") < 400_000


def test_a_wrong_token_is_refused_with_the_servers_sentence_and_the_right_one_stays_in_the_tab(
    tmp_path: Path, browser: Browser
) -> None:
    native(tmp_path / "events", "notes", "secret")
    with Server(tmp_path / "events") as server, page(browser, server):
        browser.run("sessionStorage.clear()")
        browser.reload()
        browser.until("document.activeElement?.name === 'token'")
        assert "notes" not in browser.text()
        browser.type("wrong")
        browser.press("Enter")
        there(browser, "form.token .problem")
        refused = server.get("/v1/store", token="wrong").json
        assert refused["detail"] in browser.text()
        assert browser.run("return sessionStorage.length") == 0
        browser.until("document.activeElement?.name === 'token'")
        browser.type(server.token)
        browser.press("Enter")
        says(browser, "tbody a", "notes")
        kept = browser.run(
            "return [JSON.stringify(localStorage), document.cookie, location.href, history.length]"
        )
        assert not any(server.token in str(each) for each in kept)
        assert browser.run("return sessionStorage.getItem('falaj-token')") == server.token
        requested = browser.run(
            "return performance.getEntriesByType('resource').map(one => one.name)"
        )
        assert requested
        assert not any(server.token in address for address in requested)
        browser.errors.clear()  # the browser says that answers were 401


def test_a_page_of_another_origin_gets_nothing_of_the_page(
    tmp_path: Path, browser: Browser
) -> None:
    native(tmp_path / "events", "notes", "secret")
    with Server(tmp_path / "events", "--open") as server, foreign_page() as port:
        address = f"http://127.0.0.1:{server.port}/"
        for name in ("evil.example", "localhost"):
            browser.go(f"http://{name}:{port}/")
            said = browser.run(f"const ADDRESS = {json.dumps(address)};" + script("steal"))
            assert set(said.values()) == {"refused"}, said
            assert len(said) == 9
        browser.go(f"http://rebound.example:{server.port}/")
        assert "unknown-host" in browser.text()
        browser.errors.clear()


def test_the_page_loads_nothing_from_elsewhere_and_its_policy_runs_no_other_script(
    tmp_path: Path, browser: Browser
) -> None:
    native(tmp_path / "events", "notes", "x")
    with Server(tmp_path / "events") as server, page(browser, server, "#/topics/notes"):
        until_row(browser, "x")
        own = f"http://127.0.0.1:{server.port}/"
        loaded = browser.run("return performance.getEntriesByType('resource').map(one => one.name)")
        assert len(loaded) > 10
        assert all(address.startswith(own) for address in loaded), loaded
        for script in (
            "document.body.innerHTML = '<b>x</b>'",
            "document.createElement('script').text = 'window.hacked = 1'",
            "document.body.setAttribute('onclick', 'window.hacked = 1')",
            "await fetch('http://evil.example/')",
        ):
            assert (
                browser.run(
                    f"try {{ {script}; return 'done' }} catch (error) {{ return 'refused' }}"
                )
                == "refused"
            ), script
        assert browser.run("return window.hacked") is None
        policy = server.get("/", token="").headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        browser.errors.clear()  # the browser says what it refused


def test_a_file_of_the_page_is_sent_once_and_needs_no_token(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        index = server.get("/", token="")
        names = re.findall(r'"/page/([^"]+)"', index.body.decode())
        assert {"main.js", "page.css", "icon.svg"} <= set(names)
        modules = {"main.js"}
        while (
            more := {
                name
                for module in modules
                for name in re.findall(
                    r'from "\./([^"]+)"', server.get(f"/page/{module}", token="").body.decode()
                )
            }
            - modules
        ):
            modules |= more
        for path in ("/", *(f"/page/{name}" for name in {*names, *modules})):
            first = server.get(path, token="")
            assert first.status == 200, path
            again = server.get(path, token="", If_None_Match=first.headers["etag"])
            assert (again.status, again.body) == (304, b""), path
            assert first.headers["cross-origin-resource-policy"] == "same-origin"
        described = server.get("/openapi.json").json["paths"]["/page/{file}"]["parameters"][0][
            "schema"
        ]["enum"]
        assert set(described) == {*names, *modules}
        missing = server.get("/page/none.js", token="")
        assert (missing.status, missing.problem) == (404, "unknown-path")
        assert server.get("/page/../v1/store", token="").status in {401, 404}
