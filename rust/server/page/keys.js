// Keys of the whole page. While a field has the focus, they are its own, except Escape.

import { dialog, h } from "./dom.js";

const HELP = [
    ["/", "Search"],
    ["↑ ↓ PgUp PgDn Home End", "Move between rows"],
    ["Enter", "Open a topic or a record"],
    ["Escape", "Close what is open, clear the search, go back"],
    ["n", "Append a record"],
    ["p", "Pause and resume the records that come"],
    ["o", "Load older records"],
    ["f", "Fold and unfold the JSON of a record"],
    ["t", "Go to the topics"],
    ["d", "Switch between light, dark and the system's choice"],
    ["?", "List the keys"],
];

/** Listen. `actions` gives for a key what it does in the view of now. */
export function listen(actions) {
    document.addEventListener("keydown", (event) => {
        if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey) return;
        // A dialog has keys of its own.
        if (document.querySelector("dialog[open]")) return;
        const field = event.target.closest?.("input, textarea, select");
        if (field && event.key !== "Escape") return;
        const act = event.key === "?" ? help : actions()[event.key];
        if (!act) return;
        event.preventDefault();
        act(field);
    });
}

/** List the keys. */
export function help() {
    dialog("Keys", h("dl", { class: "keys" }, HELP.map(([keys, what]) => h("div", {}, h("dt", {}, keys.split(" ").map((key) => h("kbd", {}, key))), h("dd", {}, what)))));
}
