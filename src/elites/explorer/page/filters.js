// Filters: a range per quantity. Solutions outside are faint on the map and missing in the table.
"use strict";

/** The dimension of a descriptor's key, or -1. @param {string} key such as d0 */
const axisOf = (key) => (/^d\d+$/.test(key) ? Number(key.slice(1)) : -1);

/** Whether a solution passes the filters. @param {Run} run @param {Frame} frame @param {number} row */
function passes(run, frame, row) {
  for (const key in state.filters) {
    const [low, high] = state.filters[key],
      axis = axisOf(key);
    const value =
      axis >= 0 ? frame.descriptor[row * run.dims + axis] : readValue(run, frame, row, key, "recorded");
    if (!(value >= low && value <= high)) return false;
  }
  return true;
}

/** The lowest and the highest value of a quantity among a run's elites. @param {Run} run @param {string} key
 * @returns {[number, number]} */
function findExtent(run, key) {
  let [low, high] = [Infinity, -Infinity];
  for (let elite = 0; elite < run.count; elite++) {
    const value = columnValue(run, elite, key);
    if (Number.isFinite(value)) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  return low > high ? [0, 1] : [low, high];
}

/** Round numbers around all values of a quantity in all runs. @param {string} key @returns {[number, number]} */
function roundExtent(key) {
  const extents = runs.filter((run) => axisOf(key) < run.dims).map((run) => findExtent(run, key)),
    low = Math.min(...extents.map(([least]) => least)),
    high = Math.max(...extents.map(([, most]) => most));
  const digits = Math.max(0, Math.min(12, 2 - Math.floor(Math.log10(high - low || Math.abs(high) || 1)))),
    unit = 10 ** digits;
  return [Math.floor(low * unit) / unit, Math.ceil(high * unit) / unit];
}

/** @param {string} key */
function filterLabel(key) {
  return listColumns(runs[0]).find((column) => column.key === key)?.label ?? key;
}

/** @param {string} key @param {[number, number] | null} range null for none */
function setFilter(key, range) {
  const others = without(state.filters, [key]);
  change({ filters: range ? { ...others, [key]: range } : others });
}

/** The menu to add a filter. */
function drawFilterChoice() {
  const select = byId("filter-by"),
    columns = listColumns(runs[0]).filter(({ key }) => key !== "operator" && !state.filters[key]);
  select.replaceChildren(
    element("option", { value: "" }, "filter by"),
    ...columns.map(({ key, label }) => element("option", { value: key }, label)),
  );
  select.value = "";
}

/** @type {Map<string, {chip: HTMLElement, fields: HTMLInputElement[]}>} */
const chips = new Map();

/** Two fields for each filter, and how many elites pass all of them. */
function drawFilters() {
  const keys = Object.keys(state.filters),
    parent = byId("filters");
  for (const key of chips.keys()) if (!state.filters[key]) chips.delete(key);
  for (const key of keys) {
    if (!chips.has(key)) chips.set(key, makeChip(key));
    const fields = /** @type {{fields: HTMLInputElement[]}} */ (chips.get(key)).fields;
    fields.forEach((field, end) => {
      if (document.activeElement !== field) field.value = brief(state.filters[key][end]);
    });
  }
  const shown = keys.map((key) => /** @type {{chip: HTMLElement}} */ (chips.get(key)).chip);
  if (shown.length !== parent.children.length - 1 || shown.some((chip, at) => parent.children[at] !== chip))
    parent.replaceChildren(...shown, element("span", { class: "soft" }));
  let [inside, all] = [0, 0];
  for (const run of runs) {
    all += run.count;
    for (let elite = 0; elite < run.count; elite++) inside += Number(passes(run, run.end, elite));
  }
  parent.lastChild.textContent = `${fixed(inside)} of ${fixed(all)} elites`;
  parent.hidden = !keys.length;
  drawFilterChoice();
}

/** @param {string} key */
function makeChip(key) {
  const label = filterLabel(key);
  const read = () => {
    const whole = roundExtent(key);
    const values = fields.map((field, end) => (field.value.trim() ? Number(field.value) : whole[end]));
    setFilter(key, [Math.min(...values), Math.max(...values)]);
  };
  const fields = ["from", "to"].map(
    (end) =>
      /** @type {HTMLInputElement} */ (
        element("input", { type: "number", step: "any", "aria-label": `${label} ${end}`, onchange: read })
      ),
  );
  const remove = element(
    "button",
    { "aria-label": `Remove the filter of ${label}`, onclick: () => setFilter(key, null) },
    "×",
  );
  return { chip: element("span", { class: "chip" }, label, fields[0], "to", fields[1], remove), fields };
}

/** Adds a filter of all values, and focuses its first field. @param {string} key */
function addFilter(key) {
  if (!key) return;
  setFilter(key, roundExtent(key));
  notifyListeners();
  chips.get(key)?.fields[0].select();
}
