// Numbers, sizes and times for people. Offsets are BigInt: JavaScript would round large ones.

const GROUPED = new Intl.NumberFormat("en");
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

export const number = (value) => GROUPED.format(value);

export const count = (value, one, many = `${one}s`) => `${number(value)} ${Number(value) === 1 ? one : many}`;

/** Bytes, in powers of 1,024. */
export function size(bytes) {
    let value = Number(bytes);
    for (const unit of ["B", "KiB", "MiB", "GiB"]) {
        if (value < 1024) return `${value < 10 && unit !== "B" ? value.toFixed(1) : Math.round(value)} ${unit}`;
        value /= 1024;
    }
    return `${value.toFixed(1)} TiB`;
}

/** Records a second. */
export function rate(value) {
    if (value === null) return "–";
    if (value === 0) return "0";
    return value < 10 ? value.toFixed(1) : number(Math.round(value));
}

/** The time of a record in a list: of this day, or with the day. */
export function clock(iso) {
    const date = new Date(iso);
    const ms = (/\.(\d{1,3})/.exec(iso)?.[1] ?? "").padEnd(3, "0");
    const time = `${CLOCK.format(date)}.${ms}`;
    return date.toDateString() === new Date().toDateString() ? time : `${DAY.format(date)} ${time}`;
}

/** How long ago something was. */
export function ago(iso) {
    const seconds = Math.max(0, (Date.now() - new Date(iso)) / 1000);
    for (const [name, unit] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
        if (seconds >= unit) return `${count(Math.floor(seconds / unit), name)} ago`;
    }
    return seconds < 5 ? "just now" : `${count(Math.floor(seconds), "second")} ago`;
}

/** What a topic keeps, in a few words. */
export function retention(limits) {
    if (!limits) return "";
    const parts = [limits.age, limits.bytes && size(limits.bytes), limits.records && count(BigInt(limits.records), "record")];
    const kept = parts.filter(Boolean).join(", ") || "everything";
    const also = [limits.waits && "waits for groups", limits.protected && "protected"].filter(Boolean);
    return [kept, ...also].join(", ");
}

// Characters that would be unseen, or would order the text around them: C0 and C1, zero width, directions.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

/** A text of one line whose unseen characters are seen. */
export const visible = (text) => text.replace(UNSEEN, mark);

/** The same, where lines and tabs stay. */
export const visibleLines = (text) => text.replace(UNSEEN, (one) => ("\n\t".includes(one) ? one : mark(one)));

function mark(one) {
    const code = one.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}
