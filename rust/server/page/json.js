// JSON as it was written: numbers keep their digits, objects the order of their members and repeated names. The
// browser's own parser would round and reorder.

import { h, say } from "./dom.js";
import { count, number, visible, visibleLines } from "./format.js";

const CHILDREN = 200;
const TEXT = 2000;
const DEPTH = 200;
const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WORD = /true|false|null/y;

/** The members of an object: for each name where its value begins and ends in the text. Values are not parsed. */
export function members(text) {
    const found = new Map();
    let at = 1;
    while (text[at] === '"') {
        const colon = pass(text, at);
        const name = JSON.parse(text.slice(at, colon));
        const end = pass(text, colon + 1);
        found.set(name, text.slice(colon + 1, end));
        at = end + 1;
    }
    return found;
}

/** Pass a value: return where it ends. */
function pass(text, from) {
    let depth = 0;
    for (let at = from; at < text.length; at++) {
        const code = text.charCodeAt(at);
        if (code === 34) {
            at = closing(text, at);
            if (depth === 0) return at + 1;
        } else if (code === 123 || code === 91) depth++;
        else if (code === 125 || code === 93) {
            if (depth === 0) return at;
            if (--depth === 0) return at + 1;
        } else if (code === 44 && depth === 0) return at;
    }
    return text.length;
}

/** Where the string that begins here closes. */
function closing(text, from) {
    for (let at = text.indexOf('"', from + 1); at >= 0; at = text.indexOf('"', at + 1)) {
        let slashes = 0;
        while (text.charCodeAt(at - 1 - slashes) === 92) slashes++;
        if (slashes % 2 === 0) return at;
    }
    return text.length;
}

/** Parse a document into nodes; null where it is none. */
export function parse(text) {
    let at = 0;
    const match = (pattern) => {
        pattern.lastIndex = at;
        const found = pattern.exec(text)?.[0];
        if (found !== undefined) at += found.length;
        return found;
    };
    const expect = (ok) => {
        if (!ok) throw new SyntaxError("no JSON");
    };
    const value = (depth) => {
        expect(depth < DEPTH);
        match(SPACE);
        const first = text[at];
        let node;
        if (first === "{" || first === "[") node = list(first === "{", depth);
        else if (first === '"') node = { kind: "text", text: string() };
        else {
            const word = match(WORD);
            const written = word ?? match(NUMBER);
            expect(written);
            node = { kind: word ? "word" : "number", text: written };
        }
        match(SPACE);
        return node;
    };
    const string = () => {
        expect(text[at] === '"');
        const begin = at;
        at = closing(text, at) + 1;
        return JSON.parse(text.slice(begin, at));
    };
    const list = (named, depth) => {
        const items = [], close = named ? "}" : "]";
        at++;
        match(SPACE);
        if (text[at] === close) at++;
        else {
            for (let more = true; more; at++) {
                let name = null;
                if (named) {
                    match(SPACE);
                    name = string();
                    match(SPACE);
                    expect(text[at++] === ":");
                }
                items.push([name, value(depth + 1)]);
                more = text[at] === ",";
                expect(more || text[at] === close);
            }
        }
        return { kind: named ? "object" : "array", items };
    };
    try {
        const node = value(0);
        expect(at === text.length);
        return node;
    } catch {
        return null;
    }
}

/** Show a node. Objects and lists fold; what is folded is made when it is opened. */
export function tree(node, name = null, depth = 0) {
    const label = name === null ? null : h("span", { class: "name" }, `${visible(JSON.stringify(name))}: `);
    if (node.kind !== "object" && node.kind !== "array") return h("div", { class: "leaf" }, label, leaf(node));
    const named = node.kind === "object";
    const [open, close] = named ? "{}" : "[]";
    const what = node.items.length === 0 ? `${open}${close}` : `${open} ${count(node.items.length, named ? "member" : "item")} ${close}`;
    if (node.items.length === 0) return h("div", { class: "leaf" }, label, what);
    const fold = h("details", { class: "fold", set: { open: depth < 3 && node.items.length <= 50 } }, h("summary", {}, label, h("span", { class: "hint" }, what)));
    const box = h("div", { class: "inside" });
    fold.append(box);
    let shown = 0;
    const more = () => {
        const next = node.items.slice(shown, shown + CHILDREN);
        box.append(...next.map(([key, child], i) => tree(child, named ? key : shown + i, depth + 1)));
        shown += next.length;
        const left = node.items.length - shown;
        if (left > 0) {
            const button = h("button", { type: "button", class: "quiet" }, `Show more of ${number(left)}`);
            button.addEventListener("click", () => {
                button.remove();
                more();
            });
            box.append(button);
        }
    };
    if (fold.open) more();
    else fold.addEventListener("toggle", more, { once: true });
    return fold;
}

function leaf(node) {
    if (node.kind !== "text") return h("span", { class: node.kind }, node.text);
    const span = h("span", { class: "text" }, quoted(node.text.slice(0, TEXT)));
    if (node.text.length <= TEXT) return span;
    const button = h("button", { type: "button", class: "quiet" }, `Show all of ${number(node.text.length)} characters`);
    button.addEventListener("click", () => {
        button.remove();
        say(span, quoted(node.text));
    });
    return h("span", {}, span, "… ", button);
}

const quoted = (text) => visibleLines(JSON.stringify(text));

/** Fold or unfold all of a tree that was made. */
export function foldAll(element, open) {
    for (const fold of element.querySelectorAll("details.fold")) fold.open = open;
}
