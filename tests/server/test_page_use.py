"""The page is used by keyboard alone, in light and dark, on narrow screens; its form appends."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import falaj
from server.browser import Browser, needs_chromium
from server.doors import Server
from server.watching import (
    USABLE,
    click,
    focus,
    focused,
    page,
    rows,
    says,
    script,
    shop,
    text_of,
    there,
    until_row,
)

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


def test_the_keyboard_alone_reaches_everything(tmp_path: Path, browser: Browser) -> None:
    shop(tmp_path / "events")
    with Server(tmp_path / "events") as server, page(browser, server) as at:
        at.press("d", "t")
        at.run("sessionStorage.clear()")
        at.reload()
        at.until("document.activeElement?.name === 'token'")
        at.errors.clear()  # the browser says that an answer was 401
        at.type(server.token)
        at.press("Enter")
        there(at, "tbody a", 3)
        everything_is_reached(at)
        at.run("document.activeElement.blur()")
        at.press("ArrowDown", "ArrowDown", "ArrowDown")
        assert focused(at) == "A orders"
        at.press("ArrowUp", "ArrowDown", "Enter")
        there(at, ".row", 24)
        assert focused(at) == "DIV Records of orders"
        everything_is_reached(at)
        # Search, and clear it.
        at.press("/")
        at.type('"order":17}')
        there(at, ".row", 1)
        at.press("Escape")
        there(at, ".row", 24)
        at.press("Escape", "End", "ArrowUp", "Enter")
        there(at, ".pane .fold")
        chosen = text_of(at, "[aria-selected=true].row")
        assert chosen.endswith(rows(at)[-2]["data"])
        described = at.run(
            "return document.querySelector('.list').getAttribute('aria-activedescendant')"
        )
        assert (
            at.run(f"return document.getElementById({json.dumps(described)}).textContent") == chosen
        )
        # The record follows the arrows.
        at.press("Home")
        says(at, ".pane .facts", f"Partition{rows(at)[0]['offset'][0]}")
        at.press("f")
        assert not at.run("return document.querySelector('.pane .fold').open")
        everything_is_reached(at)
        focus(at, "[role=tab][aria-selected=true]")
        at.press("ArrowRight")
        assert text_of(at, "[role=tab][aria-selected=true]") == "Text"
        focus(at, ".list")
        at.press("Escape")
        at.until("document.querySelector('.pane').hidden")
        # Append.
        at.press("n")
        at.until("document.activeElement.name === 'value'")
        at.type('{"order": "typed"}')
        everything_is_reached(at, "dialog")
        focus(at, "dialog textarea")
        while focused(at) != "BUTTON Append":
            at.press("Tab")
        at.press("Enter")
        there(at, ".done")
        at.press("Escape")
        until_row(at, '"typed"')
        assert focused(at) == "DIV Records of orders"
        at.press("p")
        says(at, ".bar .state", "Paused")
        at.press("p")
        says(at, ".bar .state", "Live")
        at.press("?")
        there(at, "dialog kbd")
        at.press("Escape")
        at.press("Escape")
        at.until("location.hash === '#/'")
        at.until("document.activeElement.textContent === 'orders'")


def everything_is_reached(at: Browser, where: str = "body") -> None:
    """Check that Tab reaches all that can be used, and that each has a name and shows the focus."""
    at.run(f"window.wanted = {USABLE}.filter(one => one.closest({json.dumps(where)}));")
    count = at.run("return wanted.length")
    at.run("window.reached = new Set(); wanted[0].focus();")
    for _ in range(2 * count + 10):
        at.run("reached.add(document.activeElement)")
        at.press("Tab")
    missed = at.run(
        "return wanted.filter(one => one.isConnected && !reached.has(one))"
        ".map(one => one.outerHTML)"
    )
    assert missed == []
    nameless = at.run(
        "return wanted.filter(one => one.isConnected && !(one.getAttribute('aria-label')"
        " || one.textContent.trim() || one.labels?.length)).map(one => one.outerHTML)"
    )
    assert nameless == []
    at.run("wanted.find(one => one.tagName === 'BUTTON').focus()")
    at.press("Tab", "Shift+Tab")
    assert at.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_contrast_in_light_and_dark(
    tmp_path: Path, browser: Browser, scheme: str
) -> None:
    shop(tmp_path / "events")
    with Server(tmp_path / "events") as server, page(browser, server):
        browser.prefer(scheme)
        there(browser, "tbody a", 3)
        ground = browser.run("return getComputedStyle(document.body).backgroundColor")
        assert (int(re.findall(r"\d+", ground)[0]) < 60) is (scheme == "dark")
        assert browser.run(script("contrast")) == []
        browser.go(f"http://127.0.0.1:{server.port}/#/topics/customers")
        until_row(browser, "12345678901234567890")
        browser.press("End", "Enter")
        there(browser, ".pane .fold")
        assert browser.run(script("contrast")) == []
        browser.press("n")
        there(browser, "dialog")
        assert browser.run(script("contrast")) == []
        browser.press("Escape")
        # The switch wins over the system, and stays.
        other = "light" if scheme == "dark" else "dark"
        while browser.run("return document.documentElement.dataset.theme") != other:
            browser.press("d")
        browser.reload()
        browser.until(f"document.documentElement.dataset.theme === '{other}'")
        again = browser.run("return getComputedStyle(document.body).backgroundColor")
        assert again != ground


def test_a_page_of_400_pixels_needs_no_scrolling_to_the_side(
    tmp_path: Path, browser: Browser
) -> None:
    path, long = tmp_path / "events", "a-topic-with-a-very-long-name." * 6
    shop(path)
    with falaj.open(path) as store:
        store.topic(long, codec="json").append(
            {"text": "x" * 500},
            key="k" * 300,
            headers={"h" * 90: "v" * 90},
        )
    with Server(path) as server, page(browser, server, width=400):
        fits = [400, [], []]
        there(browser, "tbody a", 4)
        assert browser.run(script("wide")) == fits
        for topic in ("orders", long):
            browser.go(f"http://127.0.0.1:{server.port}/#/topics/{topic}")
            browser.until(
                f"document.querySelector('h1')?.textContent === '{topic}'"
                " && document.querySelector('.row')"
            )
            browser.run("document.querySelector('details.more').open = true")
            there(browser, ".segments li")
            assert browser.run(script("wide")) == fits
            browser.press("End", "Enter")
            there(browser, ".pane .value")
            assert browser.run(script("wide")) == fits
            browser.press("Escape", "n")
            there(browser, "dialog textarea")
            click(browser, "dialog button", "Add a header")
            assert browser.run(script("wide")) == fits
            browser.press("Escape")
            browser.press("?")
            there(browser, "dialog kbd")
            assert browser.run(script("wide")) == fits
            browser.press("Escape")
        click(browser, ".top button", "Forget")
        there(browser, "form.token")
        assert browser.run(script("wide")) == fits


def test_the_form_appends_what_was_typed_and_shows_refusals(
    tmp_path: Path, browser: Browser
) -> None:
    path = tmp_path / "events"
    with falaj.open(path) as store:
        store.topic("a", codec="json").append({})
    send = "document.querySelector('dialog footer button').click()"
    with Server(path) as server, page(browser, server, "#/topics/a"):
        there(browser, ".row")
        browser.press("n")
        browser.until("document.activeElement.name === 'value'")
        browser.type("{no json")
        browser.run(send)
        says(browser, "dialog .problem", "no JSON document")
        browser.run(
            "const field = document.querySelector('dialog textarea');"
            "field.value = ''; field.focus();"
        )
        browser.type('{"id": 12345678901234567890,\n "x": "<b>"}')
        focus(browser, "dialog [name=key]")
        browser.type("schlüssel\u202e")
        click(browser, "dialog button", "Add a header")
        browser.type("by")
        browser.press("Tab")
        browser.type("me")
        browser.run("document.querySelector('dialog [name=durable]').click()")
        browser.run(send)
        says(browser, ".done", "offset 1, durable")
        browser.press("Escape", "n")
        browser.until("document.activeElement.name === 'value'")
        browser.run("document.querySelector('dialog [name=tombstone]').click()")
        focus(browser, "dialog [name=key]")
        browser.type("gone")
        browser.run(send)
        there(browser, ".done")
        browser.press("Escape")
        with falaj.open(path) as store:
            _, record, tombstone = list(store.topic("a"))
            assert record.value == {"id": 12345678901234567890, "x": "<b>"}
            assert (record.key, dict(record.headers)) == ("schlüssel\u202e".encode(), {"by": b"me"})
            assert (tombstone.is_tombstone, tombstone.key) == (True, b"gone")
        # A new name makes a new topic; a finished one refuses.
        browser.go(f"http://127.0.0.1:{server.port}/#/")
        there(browser, "tbody a")
        browser.press("n")
        browser.until("document.activeElement.name === 'topic'")
        browser.type("fresh")
        focus(browser, "dialog textarea")
        browser.type("hello")
        browser.run(send)
        there(browser, ".done")
        server.post("/v1/topics/fresh:finish", b"")
        browser.run(send)
        says(browser, "dialog .problem", "finished")
        browser.press("Escape")
        browser.errors.clear()  # the browser says that an answer was a refusal
