// A list of rows of one height. Only those that can be seen, and a few around them, are in the document.

import { h } from "./dom.js";

const AROUND = 8;

export class List {
    /** `render(element, row)` fills a row; `chosen(row)` hears of the row that was moved to, `opened(row)` of Enter. */
    constructor(label, { render, chosen, opened }) {
        Object.assign(this, { render, chosen, opened, rows: [], current: null, top: 0 });
        this.window = h("div", { class: "window", role: "presentation" });
        this.space = h("div", { class: "space", role: "presentation" }, this.window);
        this.element = h("div", {
            class: "list",
            role: "listbox",
            tabindex: "0",
            "aria-label": label,
            onscroll: () => this.scrolled(),
            onkeydown: (event) => this.key(event),
            onclick: (event) => this.click(event),
        }, this.space);
        this.follows = true;
        new ResizeObserver(() => this.resized()).observe(this.element);
    }

    get height() {
        return parseFloat(getComputedStyle(this.element).getPropertyValue("--row")) || 28;
    }

    /** Show these rows. `dropped` and `added` ones at the front move the others: what is seen stays where it was. */
    set(rows, { dropped = 0, added = 0 } = {}) {
        this.rows = rows;
        const top = this.element.scrollTop;
        this.space.style.height = `${rows.length * this.height}px`;
        if (this.follows) this.element.scrollTop = this.element.scrollHeight;
        else if (dropped || added) this.element.scrollTop = Math.max(0, top + (added - dropped) * this.height);
        this.top = this.element.scrollTop;
        this.draw();
    }

    resized() {
        this.set(this.rows);
    }

    scrolled() {
        const { scrollTop, clientHeight, scrollHeight } = this.element;
        // Rows that came and went moved the list too, and `top` with it: this is about the reader.
        const atEnd = scrollTop + clientHeight >= scrollHeight - 2;
        if (scrollTop > this.top && atEnd) this.follows = true;
        else if (scrollTop < this.top && !atEnd) this.follows = false;
        this.top = scrollTop;
        this.draw();
    }

    draw() {
        const { scrollTop, clientHeight } = this.element, height = this.height;
        const first = Math.max(0, Math.floor(scrollTop / height) - AROUND);
        const end = Math.min(this.rows.length, Math.ceil((scrollTop + clientHeight) / height) + AROUND);
        this.window.style.transform = `translateY(${first * height}px)`;
        this.first = first;
        while (this.window.children.length > Math.max(0, end - first)) this.window.lastChild.remove();
        let active = null;
        for (let i = first; i < end; i++) {
            const row = this.rows[i];
            let element = this.window.children[i - first];
            if (!element) this.window.append((element = h("div", { class: "row", role: "option" })));
            if (element.row !== row) {
                element.row = row;
                element.id = `row-${row.number}`;
                this.render(element, row);
            }
            element.setAttribute("aria-posinset", i + 1);
            element.setAttribute("aria-setsize", this.rows.length);
            element.setAttribute("aria-selected", row === this.current);
            if (row === this.current) active = element;
        }
        if (active) this.element.setAttribute("aria-activedescendant", active.id);
        else this.element.removeAttribute("aria-activedescendant");
    }

    /** Make a row the current one, and scroll to it. */
    choose(row) {
        this.current = row;
        const at = row ? this.rows.indexOf(row) : -1;
        if (at >= 0) {
            const height = this.height, { scrollTop, clientHeight } = this.element;
            if (at * height < scrollTop) this.element.scrollTop = at * height;
            else if ((at + 1) * height > scrollTop + clientHeight) this.element.scrollTop = (at + 1) * height - clientHeight;
            this.scrolled();
            // What was chosen stays in sight, unless it is the newest.
            this.follows &&= at === this.rows.length - 1;
        } else this.draw();
        if (row) this.chosen(row);
    }

    key(event) {
        if (event.ctrlKey || event.altKey || event.metaKey || !this.rows.length) return;
        const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
        const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
        if (step) {
            event.preventDefault();
            const last = this.rows.length - 1;
            const at = this.rows.indexOf(this.current);
            // The first step goes to what is seen last, which is the newest record.
            const from = at >= 0 ? at : step > 0 ? last - 1 : last + 1;
            this.choose(this.rows[Math.min(Math.max(from + step, 0), last)]);
        } else if (event.key === "Enter" && this.current) {
            event.preventDefault();
            this.opened(this.current);
        }
    }

    click(event) {
        const row = event.target.closest(".row")?.row;
        if (!row) return;
        this.choose(row);
        this.opened(row);
    }
}
