// Consumer groups with their members and lag, and queues. Each part shows once the server answers it.

import { json } from "./api.js";
import { Table, dialog, h, problem, say, show, text } from "./dom.js";
import { number } from "./format.js";

const EVERY_MS = 4000;
const whole = (value) => (value === null || value === undefined ? "–" : number(BigInt(value)));
const many = (value) => (Array.isArray(value) ? value.length : value);

class Part {
    constructor(store, { path, member, title, columns }) {
        Object.assign(this, { store, path, member, asked: 0 });
        const nameOf = (one) => one.name ?? one[member.slice(0, -1)];
        const name = { id: "name", label: title.slice(0, -1), by: nameOf, put: (cell, one) => {
            if (!cell.firstChild) cell.append(h("button", { type: "button", class: "link", onclick: () => this.open(nameOf(one)) }, nameOf(one)));
        } };
        this.table = new Table(title, [name, ...columns], nameOf);
        this.said = h("div");
        this.left = h("p", { class: "hint" });
        this.element = h("section", { hidden: true }, h("h2", {}, title), this.said, this.table.element, this.left);
    }

    async update() {
        if (this.ended || performance.now() - this.asked < EVERY_MS) return;
        this.asked = performance.now();
        try {
            const found = (await json(this.path))[this.member] ?? [];
            show(this.element, found.length > 0);
            this.said.replaceChildren();
            this.table.update(found);
            say(this.left, this.table.left ? `${number(this.table.left)} more are not shown.` : "");
        } catch (error) {
            // A server without this part, or a principal without the grant.
            if ([403, 404].includes(error.status)) this.ended = true;
            else if (error.status) this.said.replaceChildren(problem(error));
        }
    }

    end() {
        this.ended = true;
    }

    async open(name) {
        const box = dialog(name, h("div", { class: "scroll" }, h("p", { class: "hint" }, "Loading…")));
        const inside = box.querySelector(".scroll");
        try {
            inside.replaceChildren(...this.inside(await json(`${this.path}/${encodeURIComponent(name)}`)));
        } catch (error) {
            inside.replaceChildren(problem(error));
        }
    }
}

export class Groups extends Part {
    constructor(store) {
        super(store, { path: "/v1/groups", member: "groups", title: "Groups", columns: [
            text("members", "Members", (one) => whole(many(one.members)), { class: "number", number: true, by: (one) => Number(many(one.members) ?? 0) }),
            text("lag", "Lag", (one) => whole(one.lag), { class: "number", number: true, by: (one) => Number(one.lag ?? 0) }),
        ] });
    }

    inside(group) {
        const parts = (group.topics ?? []).flatMap((one) => (one.partitions ?? []).map((part) => ({ topic: one.topic ?? one.name, ...part })));
        const all = parts.length ? parts : (group.partitions ?? []);
        const table = new Table("Partitions", [
            text("topic", "Topic", (one) => one.topic),
            text("partition", "Partition", (one) => String(one.partition), { class: "number" }),
            text("committed", "Committed", (one) => whole(one.committed), { class: "number" }),
            text("lag", "Lag", (one) => whole(one.lag), { class: "number" }),
            text("member", "Member", (one) => memberName(one.member ?? one.owner), { class: "wide" }),
        ], (one) => `${one.topic}/${one.partition}`);
        table.update(all);
        const members = (Array.isArray(group.members) ? group.members : []).map((one) => h("li", {}, memberName(one)));
        return [table.element, h("h3", {}, "Members"), members.length ? h("ul", {}, members) : h("p", { class: "hint" }, "There is no member now.")];
    }
}

const memberName = (one) => (one === null || one === undefined ? "–" : typeof one === "string" ? one : (one.name ?? one.member ?? (one.process ? `process ${one.process}` : JSON.stringify(one))));

export class Queues extends Part {
    constructor(store) {
        const column = (id, label, of) => text(id, label, (one) => whole(of(one)), { class: "number", number: true, by: (one) => Number(of(one) ?? 0) });
        super(store, { path: "/v1/queues", member: "queues", title: "Queues", columns: [
            text("topic", "Topic", (one) => one.topic ?? "–", { class: "wide" }),
            column("ready", "Ready", (one) => one.ready),
            column("delayed", "Delayed", (one) => one.delayed),
            column("in_flight", "In flight", (one) => one.in_flight),
            { ...column("done", "Done", (one) => one.done), class: "number wide" },
            column("dead", "Dead", (one) => one.dead),
        ] });
    }

    inside(queue) {
        const rows = Object.entries(queue).filter(([, value]) => value !== null && typeof value !== "object");
        return [h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, String(value)))))];
    }
}
