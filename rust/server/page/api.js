// Requests to the server. The token is in a header, never in an address; it is kept for this tab alone.

const KEPT = "falaj-token";

export const token = {
    get: () => sessionStorage.getItem(KEPT) ?? "",
    set: (text) => sessionStorage.setItem(KEPT, text),
    forget: () => sessionStorage.removeItem(KEPT),
};

/** A refusal of the server: its sentence is the message. */
export class Problem extends Error {
    constructor(document, status) {
        super(document.detail ?? `the server answered with status ${status}`);
        this.kind = (document.type ?? "").replace("urn:falaj:problem:", "");
        this.remedy = document.remedy ?? "";
        this.status = status;
    }
}

/** The server does not answer. */
export class Unreachable extends Error {
    constructor() {
        super("the server does not answer");
        this.remedy = "the page tries again by itself";
    }
}

/** Send a request; return its answer if it succeeded. */
export async function ask(path, { headers = {}, ...options } = {}) {
    const sent = new Headers(headers);
    if (token.get()) sent.set("Authorization", `Bearer ${token.get()}`);
    let answer;
    try {
        answer = await fetch(path, { ...options, headers: sent, cache: "no-store", credentials: "omit" });
    } catch (error) {
        throw error.name === "AbortError" ? error : new Unreachable();
    }
    if (!answer.ok) {
        // A proxy in between answers without a problem document.
        throw new Problem(await answer.json().catch(() => ({})), answer.status);
    }
    return answer;
}

/** Read a JSON document. */
export async function json(path, options) {
    const answer = await ask(path, options);
    return answer.json().catch((error) => {
        throw error.name === "AbortError" ? error : new Unreachable();
    });
}

/** The path of a topic. */
export const topicPath = (name, rest = "") => `/v1/topics/${encodeURIComponent(name)}${rest}`;

/**
 * Read a stream of events: lists of `{id, event, data}`. The next bytes are read when the caller asks for them, so a
 * caller that is slow slows the server down, and nothing piles up here.
 */
export async function* events(path, { last, signal }) {
    const headers = { Accept: "text/event-stream" };
    if (last) headers["Last-Event-ID"] = last;
    const answer = await ask(path, { headers, signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let parts = [], event = {};
    try {
        for (;;) {
            const { value, done } = await reader.read();
            if (done) return;
            const found = [];
            let from = 0;
            for (let at = value.indexOf("\n"); at >= 0; at = value.indexOf("\n", from)) {
                parts.push(value.slice(from, at));
                from = at + 1;
                const line = parts.length > 1 ? parts.join("") : parts[0];
                parts = [];
                if (line === "") {
                    if (event.data !== undefined) found.push(event);
                    event = {};
                } else if (line.startsWith("data: ")) event.data = line.slice(6);
                else if (line.startsWith("id: ")) event.id = line.slice(4);
                else if (line.startsWith("event: ")) event.event = line.slice(7);
            }
            if (from < value.length) parts.push(value.slice(from));
            if (found.length) yield found;
        }
    } catch (error) {
        throw error.name === "AbortError" ? error : new Unreachable();
    } finally {
        reader.cancel().catch(() => {});
    }
}
