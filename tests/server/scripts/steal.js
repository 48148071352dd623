// Each way in which a page of another origin could reach the page at ADDRESS, and what it got.
const address = ADDRESS, said = {};
const attempt = async (name, how) => {
    try { said[name] = await how(); } catch (error) { said[name] = "refused"; }
};
const once = node => new Promise((done, fail) => {
    node.onload = () => done("loaded"); node.onerror = () => fail(new Error());
    document.body.append(node);
});
await attempt("read the page", async () => (await fetch(address)).text());
await attempt("read the store", async () => (await fetch(address + "v1/store")).text());
await attempt("read with a guess", async () => (await fetch(address + "v1/store", {headers: {Authorization: "Bearer x"}})).text());
await attempt("run its script", () => once(Object.assign(document.createElement("script"), {src: address + "page/main.js", type: "module"})));
await attempt("run its script plainly", () => once(Object.assign(document.createElement("script"), {src: address + "page/format.js"})));
await attempt("show its icon", () => once(Object.assign(document.createElement("img"), {src: address + "page/icon.svg"})));
await attempt("take its style", () => once(Object.assign(document.createElement("link"), {rel: "stylesheet", href: address + "page/page.css"})));
await attempt("frame it", async () => {
    const frame = Object.assign(document.createElement("iframe"), {src: address});
    await once(frame);
    return frame.contentDocument?.body.textContent || "refused";
});
await attempt("reach into its window", async () => {
    const opened = window.open(address);
    await new Promise(done => setTimeout(done, 500));
    const found = opened?.document?.body?.textContent ?? "refused";
    opened?.close();
    return found || "refused";
});
return said;
