"""In a real browser, pages of other origins and rebound DNS names get nothing from an open door."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import falaj
from server.browser import Browser, needs_chromium, page
from server.doors import Server

pytestmark = needs_chromium

# Each way in which a page sends or reads without asking the server first, and some that ask.
ATTACKS = """
const server = "%s", records = server + "/v1/topics/a/records", said = {};
const attempt = async (name, how) => {
    try { said[name] = await how(); } catch (error) { said[name] = "refused: " + error.name; }
};
const once = (node, address) => new Promise(done => {
    node.onload = () => done("loaded"); node.onerror = () => done("refused: " + node.tagName);
    node.src = address; document.body.append(node);
});
const text = async (address, options) => (await fetch(address, options)).text();
await attempt("read", () => text(records));
await attempt("read with a cookie", () => text(records, {credentials: "include"}));
await attempt("read blindly", () => text(records, {mode: "no-cors"}));
await attempt("write", () => text(records, {method: "POST", body: "fetch"}));
await attempt("write blindly", () => text(records, {method: "POST", body: "x", mode: "no-cors"}));
await attempt("write after asking", () => text(records,
    {method: "POST", body: "{}", headers: {"Content-Type": "application/json"}}));
await attempt("run", () => once(document.createElement("script"), records));
await attempt("show", () => once(document.createElement("img"), records));
await attempt("frame", async () => {
    const frame = document.createElement("iframe");
    await once(frame, records);
    return frame.contentDocument ? frame.contentDocument.body.textContent : "refused: no document";
});
await attempt("form", () => new Promise(done => {
    const form = document.createElement("form");
    Object.assign(form, {action: records, method: "POST", enctype: "text/plain", target: "frame"});
    form.append(Object.assign(document.createElement("input"), {name: "form", value: "x"}));
    document.body.append(form);
    document.querySelector("iframe[name=frame]").onload = () => done("");
    form.submit();
}));
return said;
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


def refused_writes(server: Server) -> int:
    """Count the writes that reached the server and were refused for their origin."""
    lines = server.get("/metrics").body.decode().splitlines()
    counts = [line for line in lines if 'method="POST"' in line and 'status="403"' in line]
    return sum(int(line.split()[-1]) for line in counts)


@pytest.mark.parametrize("name", ["evil.example", "localhost"])
def test_a_page_of_another_origin_neither_reads_nor_writes(
    tmp_path: Path, browser: Browser, name: str
) -> None:
    with falaj.open(tmp_path / "events") as store, page() as port:
        store.topic("a").append(b"secret")
        with Server(tmp_path / "events", "--open") as server:
            browser.go(f"http://{name}:{port}/")
            said = browser.run(ATTACKS % f"http://127.0.0.1:{server.port}")
            got = {attempt: answer for attempt, answer in said.items() if answer}
            assert all(answer.startswith("refused: ") for answer in got.values()), said
            assert len(got) == 7, said  # the others are answered, and the page cannot see how
            assert refused_writes(server) >= 3, "no attack reached the server"
            assert len(store.topic("a")) == 1


def test_a_page_of_a_configured_origin_reads_and_writes(tmp_path: Path, browser: Browser) -> None:
    with falaj.open(tmp_path / "events") as store, page() as port:
        store.topic("a").append(b"secret")
        origin = f"http://app.example:{port}"
        with Server(tmp_path / "events", "--open", "--access-origins", origin) as server:
            browser.go(f"{origin}/")
            said = browser.run(ATTACKS % f"http://127.0.0.1:{server.port}")
            assert "secret" in said["read"]
            assert '"first":1' in said["write"]
            assert said["frame"] == "refused: no document"


def test_a_dns_name_that_is_pointed_at_the_server_gets_nothing(
    tmp_path: Path, browser: Browser
) -> None:
    with falaj.open(tmp_path / "events") as store:
        store.topic("a").append(b"secret")
        with Server(tmp_path / "events", "--open") as server:
            # The same browser reads it by the server's own name.
            browser.go(f"http://localhost:{server.port}/v1/topics/a/records")
            assert "secret" in browser.text()
            # To the browser this page is of the same origin as what it asks for.
            browser.go(f"http://rebound.example:{server.port}/v1/topics/a/records")
            assert "unknown-host" in browser.text()
            said = browser.run(
                'const got = await fetch("/v1/topics/a/records");'
                'const sent = await fetch("/v1/topics/a/records", {method: "POST", body: "x"});'
                "return [got.status, await got.text(), sent.status];"
            )
            assert (said[0], said[2]) == (421, 421)
            assert "secret" not in said[1]
            assert len(store.topic("a")) == 1
