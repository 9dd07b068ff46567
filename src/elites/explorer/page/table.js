// A sortable table of elites. Only the visible rows are elements.
"use strict";

const LINE = 24; // px

/** @param {HTMLElement} parent */
function drawTable(parent) {
  const run = runs[state.chosen.run],
    columns = [{ key: "cell", label: "cell" }, ...listColumns(run)];
  const template = `repeat(${columns.length}, minmax(78px, 1fr))`,
    least = `${columns.length * 78}px`;
  const value = (/** @type {number} */ elite, /** @type {string} */ key) =>
    key === "cell" ? run.elites.cell[elite] : columnValue(run, elite, key);
  const text = (/** @type {number} */ elite, /** @type {string} */ key) => {
    const shown = value(elite, key);
    if (key === "operator") return HEADER.operators[shown].name;
    if (key === "stays") return percent(shown);
    if (key === "spread") return formatSpread(shown);
    if (key === "cell" || QUANTITIES[key]?.whole) return fixed(shown);
    return short(shown);
  };
  let [key, way] = /** @type {[string, number]} */ (state.sort);
  if (!columns.some((column) => column.key === key)) [key, way] = ["fitness", -1];
  const order = Array.from({ length: run.count }, (_, elite) => elite).filter((elite) =>
    passes(run, run.end, elite),
  );
  const sortKey = (/** @type {number} */ elite) => {
    const shown = value(elite, key);
    return Number.isFinite(shown) ? shown : -Infinity * way;
  };
  order.sort((one, other) => (sortKey(one) - sortKey(other)) * way || one - other);
  const head = element(
    "div",
    { class: "grid", role: "row", style: { gridTemplateColumns: template, minWidth: least } },
    ...columns.map((column) =>
      element(
        "button",
        {
          "aria-sort": column.key === key ? (way > 0 ? "ascending" : "descending") : null,
          title: `Sort by ${column.label}`,
          onclick: () => change({ sort: [column.key, column.key === key ? -way : -1] }),
        },
        column.label + (column.key === key ? (way > 0 ? " ↑" : " ↓") : ""),
      ),
    ),
  );
  const body = element("div", {
    style: { position: "relative", height: `${order.length * LINE}px`, minWidth: least },
  });
  const scroll = element(
    "div",
    { class: "scroll", role: "table", "aria-label": "Elites", tabindex: 0 },
    head,
    body,
  );
  const fillIn = () => {
    const first = Math.max(0, Math.floor(scroll.scrollTop / LINE) - 5),
      last = Math.min(order.length, first + Math.ceil(scroll.clientHeight / LINE) + 12);
    body.replaceChildren(
      ...order.slice(first, last).map((elite, index) =>
        element(
          "div",
          {
            class: "line",
            role: "row",
            "aria-selected": state.chosen.elite === elite ? "true" : "false",
            style: { top: `${(first + index) * LINE}px`, gridTemplateColumns: template },
            onclick: () => change({ chosen: { run: run.index, elite } }),
            onpointerenter: () =>
              change({ hover: { run: run.index, row: elite, elite, tile: -1, x: 0, y: 0 } }),
            onpointerleave: () => change({ hover: null }),
          },
          ...columns.map((column) => element("span", {}, text(elite, column.key))),
        ),
      ),
    );
  };
  scroll.addEventListener("scroll", fillIn);
  parent.replaceChildren(scroll);
  fillIn();
  return fillIn;
}
