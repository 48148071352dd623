// The view of a topic: what it is, its records as they come, one of them in full.

import { json, topicPath } from "./api.js";
import { Table, h, problem, say, show, text } from "./dom.js";
import { ago, clock, count, number, rate, retention, size } from "./format.js";
import { List } from "./list.js";
import { openProduce } from "./produce.js";
import { Pane, brief } from "./record.js";
import { MOST, PAGE, Tail, page, record } from "./tail.js";

const STATES = {
    begin: "", connecting: "Connecting", live: "Live", paused: "Paused", reconnecting: "Reconnecting", finished: "Finished", ended: "Ended", more: "More records follow",
};

export class TopicView {
    /** `store` is what the page knows of the store; `at` a record to open, `{partition, offset}`. */
    constructor(store, name, at) {
        Object.assign(this, { store, name, at });
        this.element = h("main", { class: "topic", tabindex: "-1" }, h("p", { class: "hint" }, "Loading…"));
        this.title = name;
        this.stop = false;
    }

    async begin() {
        try {
            this.facts = await json(topicPath(this.name));
        } catch (error) {
            this.element.replaceChildren(h("h1", {}, this.name), problem(error));
            if (!error.status) setTimeout(() => this.stop || this.begin(), 1000);
            return;
        }
        this.partitions = this.facts.partitions.length;
        this.tail = new Tail(this.name, this.facts.codec, this.partitions, (moved) => this.changed(moved));
        this.pane = new Pane(() => this.close());
        this.list = new List(`Records of ${this.name}`, {
            render: (element, row) => this.row(element, row),
            chosen: (row) => this.pane.row && this.open(row),
            opened: (row) => this.open(row),
        });
        this.element.replaceChildren(this.head(), this.bar(), this.notice, h("div", { class: "split" }, this.list.element, this.pane.element));
        this.update();
        this.tail.start();
        this.list.element.focus();
        if (this.at) this.openAt(this.at);
    }

    /** Hear that the page is hidden, or seen again. */
    hidden(hidden) {
        this.tail?.rest(hidden);
    }

    end() {
        this.stop = true;
        this.tail?.stop();
    }

    head() {
        this.summary = h("dl", { class: "summary" });
        this.badges = h("span", { class: "badges" });
        this.more = h("details", { class: "more", ontoggle: () => this.update() }, h("summary", {}, "Partitions and segments"), this.inside());
        return h("header", { class: "head" },
            h("div", { class: "title" }, h("a", { href: "#/", class: "back" }, "Topics"), h("h1", {}, this.name), this.badges, h("button", { type: "button", onclick: () => this.produce() }, "Append")),
            this.summary, this.more);
    }

    inside() {
        this.table = new Table("Partitions", [
            text("partition", "Partition", (one) => String(one.partition), { class: "number" }),
            text("start", "Start", (one) => number(BigInt(one.start_offset)), { class: "number" }),
            text("end", "End", (one) => number(BigInt(one.end_offset)), { class: "number" }),
            text("durable", "Durable", (one) => number(BigInt(one.durable_offset)), { class: "number" }),
        ], (one) => one.partition, 256);
        this.segments = h("div", { class: "segments" });
        this.settings = h("p", { class: "hint" });
        return h("div", { class: "inside" }, h("div", {}, this.table.element), h("div", {}, this.settings, this.segments));
    }

    bar() {
        this.search = h("input", { type: "search", placeholder: "Search  /", "aria-label": "Search the records", autocomplete: "off", spellcheck: "false", oninput: () => this.searched() });
        this.partition = h("select", { "aria-label": "Partition", onchange: () => this.restart() }, h("option", { value: "" }, "All partitions"), [...Array(this.partitions).keys()].map((one) => h("option", { value: one }, `Partition ${one}`)));
        show(this.partition, this.partitions > 1);
        this.place = h("select", { "aria-label": "Where to begin", onchange: () => this.placed() }, [["newest", "Newest"], ["oldest", "Oldest"], ["offset", "Offset…"], ["time", "Time…"]].map(([value, label]) => h("option", { value }, label)));
        this.offset = h("input", { type: "text", inputmode: "numeric", pattern: "[0-9]*", placeholder: "Offset", "aria-label": "Begin with this offset", hidden: true, onchange: () => this.restart() });
        this.time = h("input", { type: "datetime-local", step: "1", "aria-label": "Begin with this time", hidden: true, onchange: () => this.restart() });
        this.state = h("span", { class: "state", role: "status" });
        this.pauser = h("button", { type: "button", class: "quiet", onclick: () => this.pause() }, "Pause");
        this.older = h("button", { type: "button", class: "quiet", onclick: () => this.loadOlder() }, "Older");
        this.newest = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.toNewest() }, "Newest");
        this.notice = h("div", { class: "notice", role: "status" });
        return h("div", { class: "bar", role: "group", "aria-label": "Which records" }, this.search, this.partition, this.place, this.offset, this.time, h("span", { class: "grow" }), this.state, this.older, this.newest, this.pauser);
    }

    /** Take what the page knows of the store now. */
    update() {
        if (!this.tail) return;
        const now = this.store.topic(this.name), log = this.store.log(this.facts.log);
        if (now && !now.problem) this.facts = now;
        const { facts } = this, all = facts.partitions;
        this.tail.codec = facts.codec;
        this.tail.ends = new Map(all.map((one) => [one.partition, BigInt(one.end_offset)]));
        const records = all.reduce((sum, one) => sum + BigInt(one.end_offset) - BigInt(one.start_offset), 0n);
        const shared = log && log.topics.length > 1 ? `, shared with ${count(log.topics.length - 1, "topic")}` : "";
        const rows = [
            ["Records", `${facts.compacted ? "≤ " : ""}${number(records)}`],
            ["Per second", rate(this.store.rate(this.name))],
            ["Size", log?.bytes === undefined ? "–" : size(log.bytes) + shared],
            ["Segments", log?.segments === undefined ? "–" : number(log.segments)],
            ["Keeps", retention(facts.retention)],
            ["Codec", facts.codec ?? "not named yet"],
        ];
        if (this.summary.children.length !== rows.length) this.summary.replaceChildren(...rows.map(([name]) => h("div", {}, h("dt", {}, name), h("dd", {}))));
        rows.forEach(([, value], i) => say(this.summary.children[i].lastChild, value));
        const badges = [facts.compacted && "compacted", facts.finished && "finished", log?.failed_sync && "failed sync"].filter(Boolean);
        if (this.badges.textContent !== badges.join("")) this.badges.replaceChildren(...badges.map((badge) => h("span", { class: "badge" }, badge)));
        say(this.settings, `Log ${facts.log}, created ${ago(facts.created)}, segments of ${size(facts.segment_bytes)}, sync every ${facts.sync_interval}${log?.problem ? `. ${log.problem}` : ""}`);
        if (this.more.open) {
            this.table.update(all);
            this.showSegments();
        }
        this.changed({});
    }

    async showSegments() {
        const key = `${this.store.data?.time}`;
        if (this.segmentsOf === key) return;
        this.segmentsOf = key;
        try {
            const { segments } = await json(`/v1/logs/${encodeURIComponent(this.facts.log)}`);
            const most = Math.max(...segments.map((one) => Number(one.bytes)), 1);
            const line = (one) => {
                const filled = h("span", { class: "filled" });
                filled.style.inlineSize = `${(Number(one.bytes) / most) * 100}%`;
                return h("li", {}, h("span", { class: "number" }, String(one.segment)), h("span", { class: "track" }, filled), h("span", { class: "number" }, size(one.bytes)));
            };
            const left = segments.length - 50;
            this.segments.replaceChildren(h("h3", {}, count(segments.length, "segment")), h("ol", {}, segments.slice(-50).map(line)), left > 0 ? h("p", { class: "hint" }, `${number(left)} older ones are not shown.`) : "");
        } catch (error) {
            this.segments.replaceChildren(problem(error));
        }
    }

    /** Show what became of the records. */
    changed(moved) {
        const { tail } = this;
        if (!this.list || !this.state) return;
        this.list.set(tail.shown, moved);
        this.state.dataset.state = tail.state;
        say(this.state, STATES[tail.state]);
        const waits = ["paused", "more", "ended", "finished"].includes(tail.state);
        say(this.pauser, tail.state === "more" ? `Next ${PAGE}` : waits ? "Resume" : "Pause");
        show(this.pauser, tail.state !== "finished");
        show(this.newest, !this.list.follows);
        say(this.older, this.searching ? "Stop" : tail.pattern ? "Search older" : "Older");
        this.older.disabled = !this.searching && !tail.hasOlder(this.starts());
        const said = [
            tail.said ? `${tail.said.message}${tail.said.remedy ? `: ${tail.said.remedy}` : ""}.` : null,
            tail.state === "finished" ? "This topic is finished: no record comes after these." : null,
            tail.skipped ? `${count(tail.skipped, "record")} came faster than a page can show, and were skipped.` : null,
            tail.cut ? "The newest records left the page to make space; Resume shows them again." : null,
            tail.gone ? `The page keeps at most ${number(MOST)} records; ${count(tail.gone, "older one")} left it.` : null,
            tail.pattern ? `${count(tail.shown.length, "record")} of ${number(tail.rows.length)} here ${tail.shown.length === 1 ? "has" : "have"} that text.` : null,
            !tail.rows.length && ["live", "finished"].includes(tail.state) ? "There is no record yet. New ones appear here at once." : null,
            this.failed ?? null,
        ].filter(Boolean).join(" ");
        say(this.notice, said);
        show(this.notice, said !== "");
    }

    row(element, row) {
        const place = this.partitions > 1 ? `${row.partition}·${row.offset}` : String(row.offset);
        if (place.length > (this.wide ?? 8)) this.list.element.style.setProperty("--place", `${(this.wide = place.length)}ch`);
        const key = brief(row.key), value = brief(row.value);
        element.replaceChildren(
            h("span", { class: "offset" }, place),
            h("time", { class: "time", datetime: row.time, title: row.time }, clock(row.time)),
            h("bdi", { class: row.key ? "key" : "key none" }, row.key ? key : "–"),
            h("bdi", { class: row.value.tombstone ? "data none" : "data" }, value),
        );
    }

    starts() {
        return new Map(this.facts.partitions.map((one) => [one.partition, BigInt(one.start_offset)]));
    }

    open(row) {
        this.list.current = row;
        this.list.draw();
        show(this.newest, !this.list.follows);
        this.pane.open(this.name, row);
        this.element.classList.add("opened");
        history.replaceState(null, "", `#/topics/${encodeURIComponent(this.name)}?${new URLSearchParams({ partition: row.partition, offset: row.offset })}`);
        if (matchMedia("(width < 800px)").matches) this.pane.element.querySelector("button").focus();
    }

    /** Open a record that may not be in the list. */
    async openAt({ partition, offset }) {
        try {
            const { lines } = await page(topicPath(this.name, `/records?${new URLSearchParams({ partition, from: offset, limit: 1 })}`));
            if (lines.length) this.open(record(lines[0], this.facts.codec));
        } catch (error) {
            this.failed = error.message;
            this.changed({});
        }
    }

    close() {
        this.pane.hide();
        this.element.classList.remove("opened");
        history.replaceState(null, "", `#/topics/${encodeURIComponent(this.name)}`);
        this.list.element.focus();
    }

    searched() {
        clearTimeout(this.soon);
        this.soon = setTimeout(() => {
            this.list.follows = true;
            this.tail.search(this.search.value);
        }, 120);
    }

    placed() {
        show(this.offset, this.place.value === "offset");
        show(this.time, this.place.value === "time");
        if (this.place.value === "offset") {
            // An offset belongs to one partition.
            if (this.partition.value === "") this.partition.value = "0";
            this.offset.focus();
        } else if (this.place.value === "time") this.time.focus();
        else this.restart();
    }

    restart() {
        const partition = this.partition.value === "" ? null : Number(this.partition.value);
        let from = null;
        if (this.place.value === "oldest") from = {};
        if (this.place.value === "offset" && this.offset.value && this.offset.checkValidity()) from = { offset: this.offset.value };
        if (this.place.value === "time" && this.time.value) from = { time: new Date(this.time.value).toISOString() };
        this.list.follows = from === null;
        this.list.element.scrollTop = 0;
        this.tail.start(partition, from);
    }

    pause() {
        if (["paused", "more", "ended"].includes(this.tail.state)) this.tail.resume();
        else if (this.tail.state !== "finished") this.tail.pause();
    }

    toNewest() {
        this.list.follows = true;
        this.changed({});
    }

    async loadOlder() {
        if (this.searching) {
            this.searching = false;
            return;
        }
        if (this.older.disabled) return;
        this.searching = true;
        this.failed = null;
        this.list.follows = false;
        this.changed({});
        try {
            await this.tail.older(this.starts(), () => !this.searching || this.stop);
        } catch (error) {
            this.failed = `${error.message}.`;
        }
        this.searching = false;
        this.changed({});
    }

    produce() {
        openProduce(this.store, this.name);
    }

    /** Keys of this view. */
    get keys() {
        if (!this.tail) return {};
        return {
            "/": () => this.search.select(),
            n: () => this.produce(),
            p: () => this.pause(),
            o: () => this.loadOlder(),
            f: () => this.pane.fold(),
            ArrowDown: () => this.list.element.focus(),
            ArrowUp: () => this.list.element.focus(),
        };
    }

    /** Close what is open; false if nothing is. */
    escape(field) {
        if (!this.tail) return false;
        if (this.searching) this.searching = false;
        else if (field === this.search && this.search.value) {
            this.search.value = "";
            this.searched();
        } else if (field) this.list.element.focus();
        else if (this.pane.row) this.close();
        else return false;
        return true;
    }
}
