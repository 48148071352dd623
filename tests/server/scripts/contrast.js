// Find text that has too little contrast with what is behind it.
const channel = one => { one /= 255; return one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4; };
const light = text => { const [r, g, b] = text.match(/[\d.]+/g).map(Number);
    return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };
const ground = one => { for (; one; one = one.parentElement) {
    const colour = getComputedStyle(one).backgroundColor;
    if (!/, 0\)$/.test(colour) && colour !== "transparent") return colour; } };
const poor = [];
for (const one of document.querySelectorAll("body *")) {
    const text = [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!text || !one.checkVisibility() || one.disabled || ["SCRIPT", "NOSCRIPT", "OPTION"].includes(one.tagName)) continue;
    const [a, b] = [light(getComputedStyle(one).color), light(ground(one))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) poor.push(`${one.outerHTML.slice(0, 90)} ${contrast.toFixed(2)}`);
}
return poor;
