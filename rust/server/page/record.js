// A record in full: where it is, its key and headers, and its value as JSON, text or bytes.

import { copier, h, say, show } from "./dom.js";
import { ago, count, number, size, visible, visibleLines } from "./format.js";
import { foldAll, parse, tree } from "./json.js";

const TEXT = 64 << 10;
const HEX = 2048;

/** The bytes of a key or value. */
function bytesOf(field) {
    if (field.base64 === undefined) return new TextEncoder().encode(field.text);
    return Uint8Array.from(atob(field.base64), (one) => one.charCodeAt(0));
}

/** A key or value in one line, for lists. */
export function brief(field) {
    if (field === null) return "";
    if (field.tombstone) return "tombstone";
    if (field.text !== undefined) return visible(field.text.slice(0, 300));
    const bytes = bytesOf({ base64: field.base64.slice(0, 32) });
    return `0x${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}${field.base64.length > 32 ? "…" : ""}`;
}

export class Pane {
    /** `closed()` is called when the reader closes it. */
    constructor(closed) {
        this.closed = closed;
        this.body = h("div", { class: "scroll" });
        this.title = h("h2", {});
        this.kind = null;
        const close = h("button", { type: "button", class: "quiet icon", "aria-label": "Close the record", onclick: closed }, "×");
        this.element = h("section", { class: "pane", hidden: true, "aria-label": "Record" }, h("header", {}, this.title, close), this.body);
    }

    hide() {
        this.row = null;
        show(this.element, false);
    }

    open(topic, row) {
        if (this.row === row) return;
        this.row = row;
        show(this.element, true);
        say(this.title, `Record ${number(row.offset)}`);
        const facts = [["Topic", topic], ["Partition", String(row.partition)], ["Offset", String(row.offset)], ["Time", this.time(row.time)], ["Key", row.key ? this.field(row.key) : h("span", { class: "hint" }, "none")]];
        this.body.replaceChildren(
            h("dl", { class: "facts" }, facts.map(([name, what]) => h("div", {}, h("dt", {}, name), h("dd", {}, what)))),
            ...this.headers(row.headers),
            ...this.value(topic, row),
        );
        this.body.scrollTop = 0;
    }

    time(iso) {
        return h("time", { datetime: iso }, iso, h("span", { class: "hint" }, ` ${ago(iso)}`));
    }

    field(field) {
        const shown = field.text === undefined ? brief(field) : visible(field.text.slice(0, TEXT));
        return h("bdi", { class: "code" }, shown);
    }

    headers(headers) {
        if (!headers.length) return [];
        const row = ({ name, value }) => h("tr", {}, h("th", { scope: "row" }, h("bdi", {}, visible(name))), h("td", {}, value ? this.field(value) : h("span", { class: "hint" }, "none")));
        return [h("h3", {}, "Headers"), h("table", { class: "headers", "aria-label": "Headers" }, h("tbody", {}, headers.map(row)))];
    }

    value(topic, row) {
        if (row.value.tombstone) return [h("h3", {}, "Value"), h("p", { class: "hint" }, "A tombstone: the key is deleted.")];
        const bytes = bytesOf(row.value), text = row.value.text;
        const node = text !== undefined && /^\s*[[{"\d-]|^\s*(?:true|false|null)\s*$/.test(text) && (row.value.json || /^\s*[[{]/.test(text)) ? parse(text) : null;
        const ways = [node && ["JSON", () => tree(node)], text !== undefined && ["Text", () => this.text(text)], ["Bytes", () => this.hex(bytes)]].filter(Boolean);
        const box = h("div", { class: "value", id: "value", role: "tabpanel", tabindex: "0" });
        const tabs = ways.map(([name, make], i) => h("button", { type: "button", role: "tab", "aria-controls": "value", onclick: () => choose(i) }, name));
        const choose = (at) => {
            tabs.forEach((tab, i) => {
                tab.setAttribute("aria-selected", i === at);
                tab.tabIndex = i === at ? 0 : -1;
            });
            this.kind = ways[at][0];
            box.setAttribute("aria-label", this.kind);
            box.replaceChildren(ways[at][1]());
        };
        choose(Math.max(0, ways.findIndex(([name]) => name === this.kind)));
        const turn = (event) => {
            const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
            if (!step) return;
            const at = (tabs.indexOf(event.target) + step + tabs.length) % tabs.length;
            choose(at);
            tabs[at].focus();
        };
        const list = h("div", { class: "tabs", role: "tablist", "aria-label": "Form of the value", onkeydown: turn }, tabs);
        const tools = h("div", { class: "tools" }, list, h("span", { class: "hint" }, size(bytes.length)), text !== undefined ? copier("Copy", () => text) : null, this.download(topic, row, bytes));
        return [h("h3", {}, "Value"), tools, box];
    }

    download(topic, row, bytes) {
        const save = () => {
            const address = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
            h("a", { href: address, download: `${topic}-${row.partition}-${row.offset}` }).click();
            setTimeout(() => URL.revokeObjectURL(address), 1000);
        };
        return h("button", { type: "button", class: "quiet", onclick: save }, "Download");
    }

    text(text) {
        const shown = h("pre", { class: "code" }, visibleLines(text.slice(0, TEXT)));
        if (text.length <= TEXT) return shown;
        const left = h("p", { class: "hint" }, `The first ${count(TEXT, "character")} of ${number(text.length)}; Download has all.`);
        return h("div", {}, shown, left);
    }

    hex(bytes) {
        const box = h("pre", { class: "code hex" });
        const more = h("button", { type: "button", class: "quiet" }, "");
        let shown = 0;
        const add = () => {
            const end = Math.min(bytes.length, shown + HEX), lines = [];
            for (; shown < end; shown += 16) {
                const part = [...bytes.subarray(shown, Math.min(shown + 16, bytes.length))];
                const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
                lines.push(`${shown.toString(16).padStart(8, "0")}  ${hex}  ${part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("")}`);
            }
            shown = end;
            box.append(`${lines.join("\n")}\n`);
            say(more, `Show more of ${size(bytes.length)}`);
            show(more, shown < bytes.length);
        };
        more.addEventListener("click", add);
        add();
        return h("div", {}, box, more);
    }

    /** Fold or unfold its JSON. */
    fold() {
        const first = this.element.querySelector("details.fold");
        if (first) foldAll(this.element, !first.open);
    }
}
