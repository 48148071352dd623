// Find what is wider than the page, and what would scroll to the side.
const wide = [...document.querySelectorAll("body *")].filter(one => one.checkVisibility()
    && one.getBoundingClientRect().right > innerWidth + 0.5 && !one.closest(".row, .value, svg"));
return [document.scrollingElement.scrollWidth, wide.map(one => one.outerHTML.slice(0, 120)),
    [...document.querySelectorAll(".place, .scroll, .list, .produce, dialog")].filter(one => one.scrollWidth > one.clientWidth + 1)
        .map(one => one.className)];
