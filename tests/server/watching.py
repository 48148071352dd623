"""The server's page in a browser, for its tests: opened with the token, read, and driven."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import falaj
from server.browser import Browser
from server.doors import Server

# Elements that a person can use, as far as they are shown.
USABLE = (
    "[...document.querySelectorAll('a[href], button, input, select, textarea, summary,"
    ' [tabindex="0"]\')]'
    ".filter(one => one.checkVisibility() && !one.disabled && one.tabIndex >= 0)"
)


NATIVE = """
import sys, falaj
with falaj.open(sys.argv[1]) as store:
    store.topic(sys.argv[2], codec="str").append(sys.argv[3])
"""
SCRIPTS = Path(__file__).with_name("scripts")


@contextmanager
def page(
    browser: Browser, server: Server, where: str = "", *, width: int = 1200
) -> Iterator[Browser]:
    """Show the page, with the token where the server asks for one. Nothing may go wrong in it."""
    browser.size(width, 800)
    browser.prefer("light")
    address = f"http://127.0.0.1:{server.port}/"
    # From another page, so that this one begins from nothing.
    browser.go("about:blank")
    browser.errors.clear()
    browser.go(f"{address}page/icon.svg")
    browser.run("localStorage.clear(); sessionStorage.clear();")
    if server.token and "--open" not in server.flags:
        browser.run(f"sessionStorage.setItem('falaj-token', {json.dumps(server.token)})")
    browser.go(address + where)
    browser.until("document.querySelector('h1')")
    yield browser
    assert not wrong(browser), wrong(browser)


def wrong(browser: Browser) -> list[str]:
    """List the errors in the page, except for what the browser asks for by itself."""
    return [error for error in browser.errors if not error.endswith("/favicon.ico")]


def table(browser: Browser, label: str) -> list[dict[str, str]]:
    """The rows of a table, by its columns."""
    rows: list[dict[str, str]] = browser.run(
        f"const table = document.querySelector('table[aria-label={json.dumps(label)}]');"
        "const names = [...table.tHead.rows[0].cells].map(cell => cell.textContent);"
        "return [...table.tBodies[0].rows].map(row => Object.fromEntries("
        "[...row.cells].map((cell, i) => [names[i], cell.textContent])));"
    )
    return rows


def facts(browser: Browser, where: str) -> dict[str, str]:
    """Names and values of a list of facts."""
    found: dict[str, str] = browser.run(
        f"return Object.fromEntries([...document.querySelectorAll({json.dumps(where)} + ' > div')]"
        ".map(one => [one.children[0].textContent, one.children[1].textContent]))"
    )
    return found


def rows(browser: Browser) -> list[dict[str, str]]:
    """The rows of the list of records that are in the document."""
    found: list[dict[str, str]] = browser.run(
        "return [...document.querySelectorAll('.row')].map(row => Object.fromEntries("
        "[...row.children].map(one => [one.classList[0], one.textContent])))"
    )
    return found


def there(browser: Browser, selector: str, count: int | None = None) -> None:
    """Wait until there is an element like this, or so many of them."""
    found = f"document.querySelectorAll({json.dumps(selector)}).length"
    browser.until(f"{found} > 0" if count is None else f"{found} === {count}")


def says(browser: Browser, selector: str, text: str) -> None:
    """Wait until the text of an element has this in it; without a text, until it is empty."""
    found = f"document.querySelector({json.dumps(selector)})?.textContent"
    browser.until(f"{found}?.includes({json.dumps(text)})" if text else f"{found} === ''")


def until_row(browser: Browser, text: str) -> None:
    """Wait until a record with this text is in the list."""
    wanted = json.dumps(text)
    browser.until(
        f"[...document.querySelectorAll('.row')].some(row => row.textContent.includes({wanted}))"
    )


def text_of(browser: Browser, selector: str) -> str:
    """The text of an element."""
    return str(browser.run(f"return document.querySelector({json.dumps(selector)}).textContent"))


def click(browser: Browser, selector: str, text: str = "") -> None:
    """Click on the first element like this whose text begins so."""
    browser.run(
        f"[...document.querySelectorAll({json.dumps(selector)})]"
        f".find(one => one.textContent.startsWith({json.dumps(text)})).click()"
    )


def focus(browser: Browser, selector: str) -> None:
    """Put the focus on an element."""
    browser.run(f"document.querySelector({json.dumps(selector)}).focus()")


def set_size(browser: Browser) -> int:
    """How many rows the list of records has, in the document or not."""
    return int(
        browser.run("return Number(document.querySelector('.row').getAttribute('aria-setsize'))")
    )


def focused(browser: Browser) -> str:
    """Return the tag and the name of the element with the focus."""
    return str(
        browser.run(
            "const one = document.activeElement;"
            "return one.tagName + ' ' + (one.getAttribute('aria-label') ?? one.textContent)"
        )
    )


def native(store: Path, topic: str, text: str) -> None:
    """Append in another process."""
    subprocess.run([sys.executable, "-c", NATIVE, str(store), topic, text], check=True)


def shop(path: Path) -> None:
    """Make a store with topics of several kinds."""
    with falaj.open(path) as store:
        orders = store.partitioned_topic("orders", partitions=3, codec="json")
        for number in range(24):
            orders.append({"order": number}, key=f"k{number % 7}")
        customers = store.topic("customers", codec="json", compacted=True)
        customers.append(
            {"id": 12345678901234567890, "tags": ["a"]}, key="eu", headers={"by": "me"}
        )
        customers.configure(retention_age="7d", retention_records=1000)
        notes = store.topic("notes", codec="str")
        notes.extend(["one", "two"])
        notes.finish()


def script(name: str) -> str:
    """Read a script that looks at a page."""
    return (SCRIPTS / f"{name}.js").read_text()
