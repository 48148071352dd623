// The page: its frame, its views, the token, and what it knows of the store.

import { Problem, json, token } from "./api.js";
import { h, problem, say, show } from "./dom.js";
import { help, listen } from "./keys.js";
import { Overview } from "./overview.js";
import { TopicView } from "./topic.js";

const EVERY_MS = 1000;
const SAMPLES = 60;
const THEMES = ["system", "light", "dark"];

/** What the page knows of the store: the last answer of the server, and rates from one to the next. */
const store = {
    data: null,
    ends: new Map(),
    kept: new Map(),
    topic: (name) => store.topics?.get(name) ?? null,
    log: (name) => store.logs?.get(name) ?? null,
    rate: (name) => store.kept.get(name)?.at(-1) ?? null,
    rates: (name) => store.kept.get(name) ?? [],
    refresh: () => poll(),

    take(data) {
        const seconds = store.data ? (new Date(data.time) - new Date(store.data.time)) / 1000 : 0;
        store.topics = new Map(data.topics.map((one) => [one.topic, one]));
        store.logs = new Map(data.logs.map((one) => [one.log, one]));
        // The server may give the same look twice.
        if (store.data && seconds <= 0) return;
        for (const { topic, partitions } of data.topics) {
            const end = partitions.reduce((sum, one) => sum + BigInt(one.end_offset), 0n);
            const before = store.ends.get(topic);
            store.ends.set(topic, end);
            if (before === undefined) continue;
            const rates = store.kept.get(topic) ?? [];
            rates.push(Math.max(0, Number(end - before) / seconds));
            store.kept.set(topic, rates.slice(-SAMPLES));
        }
        store.data = data;
    },
};

let view = null;
let polling = null;
let again = null;

const name = h("span", { class: "store" });
const state = h("span", { class: "state", role: "status" });
const theme = h("button", { type: "button", class: "quiet", onclick: nextTheme });
const forget = h("button", { type: "button", class: "quiet", onclick: () => ask(null) }, "Forget the token");
const trouble = h("div", { class: "trouble", hidden: true, role: "alert" });
const place = h("div", { class: "place" });

function frame() {
    document.body.replaceChildren(
        h("header", { class: "top" }, h("a", { href: "#/", class: "brand" }, h("img", { src: "/page/icon.svg", alt: "", width: "20", height: "20" }), "falaj"), name, h("span", { class: "grow" }), state, forget, theme,
            h("button", { type: "button", class: "quiet", "aria-label": "Keys", title: "Keys", onclick: help }, "?")),
        trouble, place);
    setTheme(localStorage.getItem("falaj-theme"));
    listen(() => ({ t: () => (location.hash = "#/"), d: nextTheme, Escape: escape, ...view?.keys }));
}

function setTheme(wanted) {
    const chosen = THEMES.includes(wanted) ? wanted : "system";
    if (chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    localStorage.setItem("falaj-theme", chosen);
    say(theme, { system: "Auto", light: "Light", dark: "Dark" }[chosen]);
    theme.setAttribute("aria-label", `Colours: ${chosen}`);
}

function nextTheme() {
    setTheme(THEMES[(THEMES.indexOf(localStorage.getItem("falaj-theme")) + 1) % THEMES.length]);
}

function escape(field) {
    if (!view?.escape(field) && location.hash.startsWith("#/topics/")) location.hash = "#/";
}

/** Ask the server, and again after a while. A hidden page asks nothing. */
async function poll() {
    clearTimeout(again);
    if (polling) return polling;
    polling = look();
    try {
        await polling;
    } finally {
        polling = null;
    }
    if (!document.hidden && !place.querySelector("form.token")) again = setTimeout(poll, EVERY_MS);
}

async function look() {
    try {
        store.take(await json("/v1/store"));
    } catch (error) {
        if (error.status === 401) ask(token.get() ? error : null);
        else failed(error);
        return;
    }
    show(trouble, false);
    show(forget, token.get() !== "");
    say(name, store.data.path?.replace(/\/+$/, "").split("/").at(-1) ?? "");
    state.dataset.state = store.data.read_only ? "paused" : "live";
    say(state, store.data.read_only ? "Read only" : "Connected");
    document.body.classList.remove("away");
    if (view) view.update();
    else route();
}

function failed(error) {
    state.dataset.state = error instanceof Problem ? "ended" : "reconnecting";
    say(state, error instanceof Problem ? "Refused" : "No answer");
    trouble.replaceChildren(problem(error));
    show(trouble, true);
    document.body.classList.toggle("away", view !== null);
}

/** Ask for the token. */
function ask(error) {
    leave();
    token.forget();
    Object.assign(store, { data: null, topics: null, logs: null });
    store.ends.clear();
    store.kept.clear();
    clearTimeout(again);
    show(trouble, false);
    show(forget, false);
    say(name, "");
    say(state, "");
    delete state.dataset.state;
    const field = h("input", { type: "password", name: "token", required: true, autocomplete: "off", spellcheck: "false", "aria-label": "Token", placeholder: "Token" });
    const file = h("input", { type: "file", "aria-label": "File with the token", onchange: async () => {
        field.value = (await file.files[0]?.text())?.trim() ?? "";
        if (field.value) form.requestSubmit();
    } });
    const form = h("form", { class: "token", onsubmit: (event) => {
        event.preventDefault();
        token.set(field.value.trim());
        place.replaceChildren();
        poll();
    } },
    h("h1", {}, "This server asks for a token"),
    h("p", {}, "On the server's machine it lies in the file ", h("code", {}, "server/token"), " of the store. The page keeps it until this tab is closed."),
    h("div", { class: "pair" }, field, h("button", {}, "Continue")), h("label", { class: "hint" }, "or choose the file ", file),
    error ? problem(error) : null);
    place.replaceChildren(h("main", {}, form));
    field.focus();
}

function leave() {
    view?.end();
    view = null;
}

/** Show the view that the address names. */
function route() {
    const [, topic, query] = /^#\/topics\/([^?]+)(?:\?(.*))?$/.exec(location.hash) ?? [];
    const before = view instanceof TopicView ? view.name : null;
    leave();
    const found = new URLSearchParams(query);
    const at = found.has("offset") ? { partition: found.get("partition") ?? "0", offset: found.get("offset") } : null;
    view = topic ? new TopicView(store, decodeURIComponent(topic), at) : new Overview(store);
    document.title = `${view.title} – falaj`;
    place.replaceChildren(view.element);
    view.begin();
    if (before && !topic) view.focusOn(before);
}

frame();
addEventListener("hashchange", () => store.data && route());
document.addEventListener("visibilitychange", () => {
    view?.hidden?.(document.hidden);
    if (!document.hidden) poll();
});
poll();
