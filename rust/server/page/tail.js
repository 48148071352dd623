// The records of a topic in memory: those that come, and older ones on demand. Never more than MOST of them, and never
// more than TEXT characters: the oldest leave. The stream is read as fast as the page draws, and no faster.

import { Problem, ask, events, topicPath } from "./api.js";
import { members } from "./json.js";

export const MOST = 5000;
const TEXT = 32 << 20;
const FIRST = 400;
export const PAGE = 500;
const LATEST_PAUSE_MS = 5000;

let numbers = 0;

/** Read a record as the server writes it, from an event or from a list. */
export function record(written, codec) {
    const found = members(written);
    const plain = (name) => (found.has(name) ? JSON.parse(found.get(name)) : undefined);
    const field = (from, name) => (from[`${name}_base64`] === undefined ? textOf(from[name]) : { base64: from[`${name}_base64`] });
    return {
        number: ++numbers,
        partition: plain("partition"),
        offset: BigInt(plain("offset")),
        time: plain("time"),
        key: field({ key: plain("key"), key_base64: plain("key_base64") }, "key"),
        headers: (plain("headers") ?? []).map((header) => ({ name: header.name, value: field(header, "value") })),
        value: value(found, codec),
        length: written.length,
    };
}

const textOf = (text) => (text === null || text === undefined ? null : { text });

function value(found, codec) {
    if (found.has("tombstone")) return { tombstone: true };
    if (found.has("value_base64")) return { base64: JSON.parse(found.get("value_base64")) };
    const written = found.get("value");
    const text = codec === "json" ? null : JSON.parse(written);
    // A topic may get its codec after the page asked for it.
    return typeof text === "string" ? { text } : { text: written, json: true };
}

/** The times of records in an order that text has: with nine digits of a second. */
const moment = (iso) => iso.slice(0, 19) + (/\.(\d+)/.exec(iso)?.[1] ?? "").padEnd(9, "0");

export class Tail {
    /** `changed({dropped, added})` is called when rows or the state changed. */
    constructor(topic, codec, partitions, changed) {
        Object.assign(this, { topic, codec, partitions, changed, rows: [], shown: [] });
        Object.assign(this, { state: "begin", said: null, pattern: null, held: 0, gone: 0, skipped: 0 });
        this.next = new Map();
        this.low = new Map();
    }

    /** Begin: with the newest records, or with those from an offset or a time on. */
    start(partition = null, from = null) {
        this.stop();
        Object.assign(this, { partition, from, rows: [], held: 0, gone: 0, skipped: 0, last: null, sparse: false, cut: false });
        this.next.clear();
        this.low.clear();
        this.refresh();
        this.run();
    }

    stop() {
        this.ended?.abort();
        this.ended = null;
    }

    pause() {
        this.stop();
        this.become("paused");
    }

    resume() {
        if (this.cut) return this.start(this.partition);
        if (this.state === "more") this.from = { ...this.from, whole: false };
        this.run();
    }

    /** Rest while the page is hidden: a browser has few connections for a server, and other tabs need them. */
    rest(rests) {
        if (rests && ["connecting", "live", "reconnecting"].includes(this.state)) {
            this.rests = true;
            this.stop();
        } else if (!rests && this.rests) {
            this.rests = false;
            this.run();
        }
    }

    become(state, said = null) {
        Object.assign(this, { state, said });
        this.changed({});
    }

    /** Read the stream until it is stopped, also over interruptions. */
    async run() {
        this.stop();
        const ended = (this.ended = new AbortController());
        this.become("connecting");
        for (let pause = 250; !ended.signal.aborted; pause = Math.min(pause * 2, LATEST_PAUSE_MS)) {
            try {
                const over = await this.read(ended.signal, () => (pause = 250));
                if (over === "again") continue;
                if (over || ended.signal.aborted) return;
                this.become("reconnecting");
            } catch (error) {
                if (ended.signal.aborted) return;
                if (error.kind === "topic-recreated") {
                    this.start(this.partition);
                    return;
                }
                const passes = !(error instanceof Problem) || error.status === 503;
                this.become(passes ? "reconnecting" : "ended", error);
                if (!passes) return;
            }
            await new Promise((done) => setTimeout(done, pause));
        }
    }

    /** Read one stream; return true if nothing comes after it, "again" if the next one begins at once. */
    async read(signal, alive) {
        const limited = this.from !== null && !this.from.whole;
        let left = limited ? PAGE : Infinity;
        const lists = events(this.address(limited), { last: this.last, signal });
        // The answer has begun once the first list is asked for, which may wait: so the state says so at once.
        const opened = setTimeout(() => this.become("live"), 300);
        try {
            for await (const list of lists) {
                alive();
                if (signal.aborted) return true;
                for (const event of list) {
                    if (event.event === "finished") return this.over("finished");
                    if (event.event === "problem") return this.over("ended", new Problem(JSON.parse(event.data)));
                }
                left -= list.length;
                this.last = list.at(-1).id;
                this.take(list.map((event) => record(event.data, this.codec)));
                if (this.state !== "live") this.become("live");
                if (limited && left <= 0) {
                    if (this.behind() > PAGE) return this.over("more");
                    this.from = { ...this.from, whole: true };
                    return "again";
                }
                if (!limited && this.behind() > MOST) {
                    this.skip();
                    return "again";
                }
                await new Promise(requestAnimationFrame);
            }
        } finally {
            clearTimeout(opened);
        }
        return false;
    }

    over(state, said = null) {
        this.become(state, said);
        return true;
    }

    address(limited) {
        const query = new URLSearchParams();
        if (this.partition !== null) query.set("partition", this.partition);
        if (limited) query.set("limit", PAGE);
        if (!this.last) {
            if (this.from?.offset !== undefined) query.set("from", this.from.offset);
            else if (this.from?.time) query.set("at", this.from.time);
            else if (this.from === null) query.set("last", Math.max(1, Math.floor(FIRST / (this.partition === null ? this.partitions : 1))));
        }
        return topicPath(this.topic, `/records?${query}`);
    }

    /** How many records there are after those that came, as far as is known. */
    behind() {
        let behind = 0n;
        for (const [partition, next] of this.next) {
            const end = this.ends?.get(partition) ?? 0n;
            if (end > next) behind += end - next;
        }
        return behind;
    }

    /** More records come than a page can show: go on with the newest. */
    skip() {
        this.skipped += Number(this.behind());
        Object.assign(this, { last: null, from: null });
    }

    /** Add records that came. */
    take(records) {
        const fresh = records.filter((one) => one.offset >= (this.next.get(one.partition) ?? 0n));
        for (const one of fresh) {
            this.next.set(one.partition, one.offset + 1n);
            if (!this.low.has(one.partition)) this.low.set(one.partition, one.offset);
            this.held += one.length;
        }
        fresh.forEach((one) => (one.hit = this.hits(one)));
        this.rows.push(...fresh);
        if (this.partitions > 1 && this.partition === null) this.sort();
        let leave = 0;
        while (this.rows.length - leave > MOST || (this.held > TEXT && this.rows.length - leave > 1)) {
            const one = this.rows[leave++];
            this.held -= one.length;
            this.low.set(one.partition, one.offset + 1n);
        }
        const dropped = this.rows.splice(0, leave).filter((one) => one.hit).length;
        this.gone += leave;
        this.show({ dropped });
    }

    sort() {
        const before = (a, b) => (a.at ??= moment(a.time)) < (b.at ??= moment(b.time));
        if (!this.rows.every((row, i) => i === 0 || !before(row, this.rows[i - 1]))) {
            this.rows.sort((a, b) => (before(a, b) ? -1 : before(b, a) ? 1 : 0));
        }
    }

    show(moved) {
        this.shown = this.pattern ? this.rows.filter((one) => one.hit) : this.rows.slice();
        this.changed(moved);
    }

    /** Keep to records that have this text. */
    search(text) {
        this.pattern = text ? new RegExp(RegExp.escape?.(text) ?? text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"), "i") : null;
        if (this.sparse) this.start(this.partition, this.from);
        else this.refresh();
    }

    refresh() {
        this.rows.forEach((one) => (one.hit = this.hits(one)));
        this.show({});
    }

    hits(one) {
        if (!this.pattern) return true;
        const texts = [one.key?.text, one.value.text, String(one.offset), ...one.headers.flatMap((header) => [header.name, header.value?.text])];
        return texts.some((text) => text !== undefined && this.pattern.test(text));
    }

    /** True if there are older records than those that are here. `starts` are the first offsets of the partitions. */
    hasOlder(starts) {
        return [...this.low].some(([partition, low]) => low > (starts.get(partition) ?? 0n));
    }

    /**
     * Add older records. With a search it goes back until it has found some, until `stop()` says so, or to the
     * beginning; it keeps only those that it found.
     */
    async older(starts, stop) {
        const found = [];
        do {
            const pages = [...this.low].map(([partition, low]) => this.before(partition, low, starts.get(partition) ?? 0n));
            const came = (await Promise.all(pages)).flat();
            came.forEach((one) => (one.hit = this.hits(one)));
            found.push(...(this.pattern ? came.filter((one) => one.hit) : came));
            this.sparse ||= this.pattern !== null;
        } while (this.pattern && found.length < 20 && this.hasOlder(starts) && !stop());
        const sorted = found.sort((a, b) => (a.partition === b.partition ? (a.offset < b.offset ? -1 : 1) : moment(a.time) < moment(b.time) ? -1 : 1));
        const added = sorted.slice(-MOST);
        // A search keeps what it found; else the newest leave, and resuming begins with them again.
        if (this.pattern) this.rows = this.rows.filter((one) => one.hit);
        if (this.rows.length + added.length > MOST) {
            this.rows.length = MOST - added.length;
            this.cut = true;
            this.stop();
            this.become("paused");
        }
        this.rows.unshift(...added);
        this.held = this.rows.reduce((sum, one) => sum + one.length, 0);
        this.show({ added: added.length });
    }

    /** Read the records of a partition right before this offset. */
    async before(partition, low, start) {
        const most = BigInt(Math.max(20, Math.floor(PAGE / Math.max(1, this.low.size))));
        const from = low - most > start ? low - most : start;
        if (from >= low) return [];
        const came = [];
        for (let at = from; at < low;) {
            const query = new URLSearchParams({ partition, from: at, limit: low - at });
            const { lines, next } = await page(topicPath(this.topic, `/records?${query}`));
            const records = lines.map((line) => record(line, this.codec)).filter((one) => one.offset < low);
            came.push(...records);
            if (next <= at || next >= low || !lines.length) break;
            at = next;
        }
        this.low.set(partition, from);
        return came;
    }
}

/** Read records as lines, and where the next ones begin. */
export async function page(path) {
    const answer = await ask(path, { headers: { Accept: "application/x-ndjson" } });
    const lines = (await answer.text()).split("\n").filter(Boolean);
    return { lines, next: BigInt(answer.headers.get("Falaj-Next-Offset")) };
}
