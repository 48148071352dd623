// Consumer groups with their members and lag, and queues. Each part shows once the server answers it.

import { json } from "./api.js";
import { Table, dialog, h, problem, say, show, text } from "./dom.js";
import { number } from "./format.js";

const EVERY_MS = 2000;
const whole = (value) => (value === null || value === undefined ? "–" : number(BigInt(value)));

class Part {
    /** `nameOf(one)` is the name of a group or queue; `wrong(one)` says why it cannot be read. */
    constructor(store, { path, member, title, nameOf, wrong, columns }) {
        Object.assign(this, { store, path, member, asked: -EVERY_MS });
        const put = (cell, one) => {
            const state = wrong(one) ?? "";
            if (cell.dataset.state === state) return;
            cell.dataset.state = state;
            const button = h("button", { type: "button", class: "link", onclick: () => this.open(nameOf(one)) }, nameOf(one));
            cell.replaceChildren(button, state ? h("span", { class: "badge", title: state }, "unreadable") : "");
        };
        const name = { id: "name", label: title.slice(0, -1), by: nameOf, put };
        this.table = new Table(title, [name, ...columns], nameOf);
        this.said = h("div");
        this.left = h("p", { class: "hint" });
        this.element = h("section", { hidden: true }, h("h2", {}, title), this.said, this.table.element, this.left);
    }

    async update() {
        if (this.ended || performance.now() - this.asked < EVERY_MS) return;
        this.asked = performance.now();
        try {
            const found = (await json(this.path))[this.member];
            show(this.element, found.length > 0);
            this.said.replaceChildren();
            this.table.update(found);
            say(this.left, this.table.left ? `${number(this.table.left)} more are not shown.` : "");
        } catch (error) {
            // The frame of the page says when the server does not answer at all.
            if (error.status === 404) this.ended = true;
            else if (error.status) this.said.replaceChildren(problem(error));
        }
    }

    end() {
        this.ended = true;
    }

    async open(name) {
        const inside = h("div", { class: "scroll" }, h("p", { class: "hint" }, "Loading…"));
        dialog(name, inside);
        try {
            inside.replaceChildren(...this.inside(await json(`${this.path}/${encodeURIComponent(name)}`)));
        } catch (error) {
            inside.replaceChildren(problem(error));
        }
    }
}

export class Groups extends Part {
    constructor(store) {
        super(store, { path: "/v1/groups", member: "groups", title: "Groups", nameOf: (one) => one.name, wrong: (one) => one.problem?.detail, columns: [
            text("members", "Members", (one) => whole(one.members), { class: "number", number: true, by: (one) => one.members }),
            text("lag", "Lag", (one) => whole(one.lag), { class: "number", number: true, by: (one) => Number(one.lag ?? 0) }),
        ] });
    }

    inside({ partitions, members, sessions, log }) {
        const table = new Table("Partitions of the group", [
            text("topic", "Topic", (one) => one.topic),
            text("partition", "Partition", (one) => String(one.partition), { class: "number" }),
            text("committed", "Committed", (one) => whole(one.committed), { class: "number" }),
            text("lag", "Lag", (one) => whole(one.lag), { class: "number" }),
            text("owner", "Member", (one) => (one.owner ? this.process(one.owner) : "–"), { class: "wide" }),
        ], (one) => `${one.topic}/${one.partition}`);
        table.update(partitions);
        const list = (all) => h("ul", {}, all.map((one) => h("li", {}, one)));
        return [
            table.element,
            h("h3", {}, "Members"), members.length ? list(members.map((one) => this.process(one))) : h("p", { class: "hint" }, "There is no member now."),
            ...(sessions.length ? [h("h3", {}, "Members over HTTP"), list(sessions)] : []),
            ...(log ? [h("p", { class: "hint" }, `Its committed offsets are in the log ${log}.`)] : []),
        ];
    }

    process({ process, handle }) {
        const own = this.store.data?.writers?.some((one) => one.is_this_server && one.process === process);
        return `process ${process ?? "unknown"}${own ? ", this server" : ""}${handle ? `, handle ${handle}` : ""}`;
    }
}

export class Queues extends Part {
    constructor(store) {
        const column = (id, label, more = "") => text(id, label, (one) => whole(one[id]), { class: `number${more}`, number: true, by: (one) => Number(one[id] ?? 0) });
        super(store, { path: "/v1/queues", member: "queues", title: "Queues", nameOf: (one) => one.queue, wrong: (one) => one.error, columns: [
            text("topic", "Topic", (one) => one.topic ?? "–", { class: "wide" }),
            column("ready", "Ready"), column("delayed", "Delayed"), column("in_flight", "In flight"), column("done", "Done", " wide"), column("dead", "Dead"),
        ] });
    }

    inside(queue) {
        const rows = Object.entries(queue).filter(([, value]) => value !== null);
        return [h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, typeof value === "number" ? number(value) : value))))];
    }
}
