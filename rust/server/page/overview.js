// The view of the store: topics with their rates and sizes, groups, queues, processes that write.

import { Table, h, say, show, svg, text } from "./dom.js";
import { ago, count, number, rate, retention, size } from "./format.js";
import { openProduce } from "./produce.js";
import { Groups, Queues } from "./sharing.js";

const WIDTH = 96;
const HEIGHT = 20;

export class Overview {
    constructor(store) {
        this.store = store;
        this.title = "Topics";
        this.search = h("input", { type: "search", placeholder: "Search  /", "aria-label": "Search the topics", autocomplete: "off", spellcheck: "false", oninput: () => this.update() });
        this.topics = new Table("Topics", this.columns(), (one) => one.topic);
        this.left = h("p", { class: "hint" });
        this.facts = h("p", { class: "hint" });
        this.empty = h("div", { class: "empty", hidden: true }, h("p", {}, "There is no topic yet."), h("p", { class: "hint" }, "An append makes one: press Append here, or run this where the store is."), h("pre", { class: "code" }, "echo hello | falaj append -s STORE greetings"));
        this.writers = new Table("Processes that write", [
            text("process", "Process", (one) => `${one.process ?? "unknown"}${one.is_this_server ? ", this server" : ""}`),
            text("slot", "Slot", (one) => String(one.slot), { class: "number" }),
            text("since", "Since", (one) => (one.since ? ago(one.since) : "–")),
            text("state", "State", (one) => (one.is_known_to_live ? "writing" : "unknown")),
        ], (one) => one.slot);
        this.writing = h("section", {}, h("h2", {}, "Processes that have the store open for writing"), this.writers.element);
        this.shared = [new Groups(store), new Queues(store)];
        this.element = h("main", { tabindex: "-1" },
            h("div", { class: "title" }, h("h1", {}, "Topics"), this.search, h("span", { class: "grow" }), h("button", { type: "button", onclick: () => openProduce(store) }, "Append")),
            this.topics.element, this.left, this.empty, ...this.shared.map((each) => each.element), this.writing, this.facts);
    }

    columns() {
        const log = (one) => this.store.log(one.log);
        const records = (one) => one.partitions.reduce((sum, part) => sum + BigInt(part.end_offset) - BigInt(part.start_offset), 0n);
        const bytes = (one) => (log(one)?.bytes === undefined ? "–" : `${size(log(one).bytes)}${log(one).topics.length > 1 ? " shared" : ""}`);
        return [
            { id: "topic", label: "Topic", put: (cell, one) => this.name(cell, one), by: (one) => one.topic },
            text("records", "Records", (one) => (one.problem ? "–" : `${one.compacted ? "≤ " : ""}${number(records(one))}`), { class: "number", number: true, by: records }),
            text("rate", "Per second", (one) => rate(this.store.rate(one.topic)), { class: "number", number: true, by: (one) => this.store.rate(one.topic) ?? -1 }),
            { id: "line", label: "Last minute", class: "wide", put: (cell, one) => line(cell, this.store.rates(one.topic)) },
            text("size", "Size", bytes, { class: "number", number: true, by: (one) => Number(log(one)?.bytes ?? 0) }),
            text("segments", "Segments", (one) => (log(one)?.segments === undefined ? "–" : number(log(one).segments)), { class: "number wide" }),
            text("partitions", "Partitions", (one) => number(one.partitions.length), { class: "number wide" }),
            text("codec", "Codec", (one) => one.codec ?? "–", { class: "wide" }),
            text("keeps", "Keeps", (one) => retention(one.retention), { class: "wide" }),
        ];
    }

    name(cell, one) {
        const badges = [one.compacted && "compacted", one.finished && "finished", one.problem && "unreadable"].filter(Boolean).join();
        if (cell.dataset.badges === badges) return;
        cell.dataset.badges = badges;
        cell.replaceChildren(h("a", { href: `#/topics/${encodeURIComponent(one.topic)}` }, one.topic), ...badges.split(",").filter(Boolean).map((badge) => h("span", { class: "badge", title: one.problem ?? null }, badge)));
    }

    begin() {
        this.update();
        this.element.focus();
    }

    end() {
        this.shared.forEach((each) => each.end());
    }

    update() {
        const { data } = this.store;
        if (!data) return;
        const wanted = this.search.value.toLowerCase();
        this.topics.update(data.topics.filter((one) => one.topic.toLowerCase().includes(wanted)));
        show(this.topics.element, data.topics.length > 0);
        show(this.empty, data.topics.length === 0);
        say(this.left, this.topics.left ? `${count(this.topics.left, "more topic")}: search for a name to see ${this.topics.left === 1 ? "it" : "them"}.` : "");
        show(this.writing, data.writers !== undefined);
        this.writers.update(data.writers ?? []);
        this.shared.forEach((each) => each.update());
        say(this.facts, [data.path && `Store ${data.path}`, `created ${ago(data.created)}`, `format ${data.format}`, `${data.write_mode} writes`, data.retention_bytes && `all logs keep ${size(data.retention_bytes)}`].filter(Boolean).join(", "));
    }

    /** Put the focus on a topic's row. */
    focusOn(name) {
        const link = [...this.topics.element.querySelectorAll("tbody a")].find((one) => one.textContent === name);
        (link ?? this.element).focus();
    }

    get keys() {
        const first = () => this.topics.element.querySelector("tbody a")?.focus();
        return { "/": () => this.search.select(), n: () => openProduce(this.store), ArrowDown: first, ArrowUp: first };
    }

    escape(field) {
        if (field === this.search && this.search.value) {
            this.search.value = "";
            this.update();
            return true;
        }
        field?.blur();
        return Boolean(field);
    }
}

/** Draw rates as a line. */
function line(cell, rates) {
    const most = Math.max(...rates, 1);
    const step = WIDTH / 59;
    const points = rates.map((one, i) => `${((60 - rates.length + i) * step).toFixed(1)},${(HEIGHT - 2 - (one / most) * (HEIGHT - 4)).toFixed(1)}`).join(" ");
    if (!cell.firstChild) cell.append(svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, class: "line", "aria-hidden": "true" }, svg("polyline", {})));
    const drawn = cell.firstChild.firstChild;
    if (drawn.getAttribute("points") !== points) drawn.setAttribute("points", points);
}
