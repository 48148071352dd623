// The form that appends a record.

import { json, topicPath } from "./api.js";
import { dialog, h, problem, show } from "./dom.js";
import { number } from "./format.js";

/** Open it, for this topic or for one that is named in it. */
export function openProduce(store, name = null) {
    const known = name === null ? null : store.topic(name);
    const topic = h("input", { name: "topic", required: true, pattern: "[A-Za-z0-9._\\-]{1,249}", list: "topics", autocomplete: "off", spellcheck: "false", placeholder: "A new name makes a new topic" });
    const names = h("datalist", { id: "topics" }, (store.data?.topics ?? []).slice(0, 500).map((one) => h("option", { value: one.topic })));
    const partition = h("select", { name: "partition" }, h("option", { value: "" }, "By the key"), (known?.partitions ?? []).map((one) => h("option", { value: one.partition }, one.partition)));
    const key = h("input", { name: "key", autocomplete: "off", spellcheck: "false", placeholder: "None" });
    const value = h("textarea", { name: "value", rows: 8, spellcheck: "false", class: "code" });
    const tombstone = h("input", { type: "checkbox", name: "tombstone", onchange: () => show(valueField, !tombstone.checked) });
    const durable = h("input", { type: "checkbox", name: "durable" });
    const headers = h("div", { class: "pairs" });
    const addHeader = () => {
        const line = h("div", { class: "pair" }, h("input", { "aria-label": "Name of a header", placeholder: "Name", autocomplete: "off" }), h("input", { "aria-label": "Value of a header", placeholder: "Value", autocomplete: "off" }),
            h("button", { type: "button", class: "quiet icon", "aria-label": "Remove this header", onclick: () => line.remove() }, "×"));
        headers.append(line);
        return line;
    };
    const said = h("div", { role: "status" });
    const send = h("button", {}, "Append");
    const codec = known?.codec;
    const field = (label, input, hint) => h("label", { class: "field" }, h("span", {}, label, hint ? h("span", { class: "hint" }, ` ${hint}`) : null), input);
    const valueField = field("Value", value, codec === "json" ? "a JSON document" : codec ? `codec ${codec}` : null);
    const form = h("form", { class: "produce", method: "dialog", onsubmit: submit },
        name === null ? field("Topic", topic) : null, names,
        known?.partitions.length > 1 ? field("Partition", partition) : null,
        field("Key", key), valueField,
        h("div", { class: "field" }, h("span", {}, "Headers"), headers, h("button", { type: "button", class: "quiet", onclick: () => addHeader().firstChild.focus() }, "Add a header")),
        h("label", { class: "check" }, tombstone, " Tombstone: delete the key"),
        h("label", { class: "check" }, durable, " Wait until it is on the disk"),
        h("footer", {}, said, send));

    async function submit(event) {
        event.preventDefault();
        send.disabled = true;
        try {
            const to = name ?? topic.value;
            const body = written(to);
            const query = new URLSearchParams({ sync: durable.checked ? "durable" : "interval" });
            if (partition.value !== "") query.set("partition", partition.value);
            const answer = await json(topicPath(to, `/records?${query}`), { method: "POST", body: body.text, headers: { "Content-Type": body.type } });
            const place = h("p", { class: "done" }, `Appended at offset ${number(BigInt(answer.first))}${answer.partition ? ` of partition ${answer.partition}` : ""}${answer.durable ? ", durable" : ""}. `);
            if (name === null) place.append(h("a", { href: `#/topics/${encodeURIComponent(to)}`, onclick: () => box.close() }, "Show the topic"));
            said.replaceChildren(place);
            store.refresh();
            value.select();
        } catch (error) {
            said.replaceChildren(problem(error));
        }
        send.disabled = false;
    }

    /** The record as a line, with the value as it was typed: a number keeps its digits. */
    function written(to) {
        const isJson = (store.topic(to)?.codec ?? null) === "json";
        const pairs = [...headers.children].map((line) => ({ name: line.children[0].value, value: line.children[1].value })).filter((pair) => pair.name);
        const parts = [];
        if (key.value !== "") parts.push(`"key":${JSON.stringify(key.value)}`);
        if (pairs.length) parts.push(`"headers":${JSON.stringify(pairs)}`);
        if (tombstone.checked) parts.push('"tombstone":true,"value":null');
        else {
            if (isJson) check(value.value);
            // A line end in a checked document is only space between its parts.
            parts.push(`"value":${isJson ? value.value.replace(/[\r\n]+/g, " ") : JSON.stringify(value.value)}`);
        }
        return { text: `{${parts.join(",")}}\n`, type: "application/vnd.falaj.records+ndjson" };
    }

    const box = dialog(name === null ? "Append a record" : `Append to ${name}`, form);
    (name === null ? topic : value).focus();
}

function check(text) {
    try {
        JSON.parse(text);
    } catch (error) {
        throw Object.assign(new Error(`the value is no JSON document: ${error.message}`), { remedy: "mend it; text stands in quotes" });
    }
}
