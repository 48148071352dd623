// Elements. All text becomes text nodes: nothing here, or elsewhere on the page, makes markup of a string.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: attributes, `on…` listeners, properties in `set`, children as nodes or text. */
export function h(name, given = {}, ...children) {
    return fill(document.createElement(name), given, children);
}

/** Make an element of SVG. */
export function svg(name, given = {}, ...children) {
    return fill(document.createElementNS(SVG, name), given, children);
}

function fill(element, given, children) {
    for (const [name, value] of Object.entries(given)) {
        if (value === null || value === undefined || value === false) continue;
        if (name === "set") Object.assign(element, value);
        else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
        else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
    return element;
}

/** Set the text of an element if it changed, so that a selection in it stays. */
export function say(element, text) {
    if (element.textContent !== text) element.textContent = text;
}

/** Show or hide an element. */
export function show(element, shown) {
    if (element.hidden === shown) element.hidden = !shown;
}

/** A refusal, as the server says it: a sentence, and what helps. */
export function problem(error) {
    return h("p", { class: "problem", role: "alert" }, error.message, error.remedy ? h("span", {}, ` ${sentence(error.remedy)}`) : null);
}

function sentence(text) {
    return text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

/** A button that copies a text. */
export function copier(label, text) {
    const button = h("button", { type: "button", class: "quiet", onclick: copy }, label);
    async function copy() {
        try {
            await navigator.clipboard.writeText(text());
            say(button, "Copied");
        } catch {
            say(button, "The browser does not allow it");
        }
        setTimeout(() => say(button, label), 1500);
    }
    return button;
}

/** A dialog over the page. Escape closes it, and the focus returns to where it was. */
export function dialog(title, ...children) {
    const before = document.activeElement;
    const close = h("button", { type: "button", class: "quiet icon", "aria-label": "Close", onclick: () => box.close() }, "×");
    const box = h("dialog", { "aria-label": title, onclose: ended }, h("header", {}, h("h2", {}, title), close), ...children);
    function ended() {
        box.remove();
        if (before?.isConnected) before.focus();
    }
    document.body.append(box);
    box.showModal();
    return box;
}

/**
 * A table that changes in place, so that focus and selection stay. Columns: `id`, `label`, `put(cell, row)`, and
 * `by(row)` where it can be sorted. At most `most` rows are in the document; `left` says how many are not.
 */
export class Table {
    constructor(label, columns, key, most = 200) {
        Object.assign(this, { columns, key, most, rows: [], left: 0, order: null, down: false });
        this.lines = new Map();
        this.heads = columns.map((column) => this.head(column));
        this.body = h("tbody", { onkeydown: (event) => walk(event, this.body) });
        this.element = h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, this.heads)), this.body);
    }

    head(column) {
        const cell = h("th", { scope: "col", class: column.class });
        if (!column.by) cell.append(column.label);
        else cell.append(h("button", { type: "button", class: "sort", onclick: () => this.sort(column) }, column.label));
        return cell;
    }

    sort(column) {
        this.down = this.order === column ? !this.down : column.number === true;
        this.order = column;
        this.heads.forEach((cell, i) => {
            if (this.columns[i] === column) cell.setAttribute("aria-sort", this.down ? "descending" : "ascending");
            else cell.removeAttribute("aria-sort");
        });
        this.update(this.rows);
    }

    update(rows) {
        this.rows = rows;
        const sorted = this.order ? rows.toSorted((a, b) => this.compare(a, b)) : rows;
        const shown = sorted.slice(0, this.most);
        this.left = rows.length - shown.length;
        const kept = new Set(shown.map(this.key));
        for (const [key, line] of this.lines) {
            if (!kept.has(key)) {
                line.remove();
                this.lines.delete(key);
            }
        }
        shown.forEach((row, i) => {
            const line = this.lines.get(this.key(row)) ?? this.line(row);
            this.columns.forEach((column, at) => column.put(line.cells[at], row));
            if (this.body.children[i] !== line) this.body.insertBefore(line, this.body.children[i] ?? null);
        });
    }

    compare(a, b) {
        const [left, right] = [this.order.by(a), this.order.by(b)];
        const order = left < right ? -1 : left > right ? 1 : 0;
        return this.down ? -order : order;
    }

    line(row) {
        const cells = this.columns.map((column) => h("td", { class: column.class, "data-label": column.label }));
        const line = h("tr", {}, cells);
        this.lines.set(this.key(row), line);
        return line;
    }
}

/** Move between the links of rows by the arrow keys. */
function walk(event, body) {
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
    const links = [...body.querySelectorAll("tr > :first-child > a, tr > :first-child > button")];
    const at = links.indexOf(event.target);
    if (at < 0) return;
    event.preventDefault();
    links[Math.min(Math.max(at + step, 0), links.length - 1)].focus();
}

/** A column whose cells are text. */
export function text(id, label, of, more = {}) {
    return { id, label, put: (cell, row) => say(cell, of(row)), ...more };
}
