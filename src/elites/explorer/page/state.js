// The state of the view: one object, stored in the hash of the address, and its listeners.
"use strict";

/**
 * @typedef {{run: number, elite: number}} Chosen
 * @typedef {{run: number, row: number, elite: number, tile: number, x: number, y: number}} Hover
 */

const state = {
  view: "recorded", // or corrected, difference
  colour: "fitness",
  layout: "", // cells, profile, nested or dots
  axes: /** @type {number[]} */ ([]),
  /** @type {Chosen} */ chosen: { run: 0, elite: 0 },
  /** @type {Chosen[]} */ pins: [],
  /** @type {number | null} */ moment: null, // evaluations; null is the end
  zoom: [1, 0.5, 0.5], // factor, and the middle
  /** @type {Record<string, [number, number]>} */ filters: {},
  tab: "progress",
  sort: ["fitness", -1],
  theme: "", // light or dark; empty is the system's
  /** @type {Hover | null} */ hover: null,
};
const START = structuredClone(state);
const MAX_PINS = 4;

/** @type {((changed: Set<string>) => void)[]} */
const listeners = [];
/** @type {Set<string>} */
const changed = new Set();

/** Changes the state. Listeners are called once before the next picture. @param {Partial<typeof state>} patch */
function change(patch) {
  if (!changed.size) requestAnimationFrame(notifyListeners);
  Object.assign(state, patch);
  Object.keys(patch).forEach((key) => changed.add(key));
}

function notifyListeners() {
  const keys = new Set(changed);
  changed.clear();
  listeners.forEach((listener) => listener(keys));
  if (![...keys].some((key) => key !== "hover")) return;
  clearTimeout(hashTimer); // browsers do not allow an address that changes with every picture
  hashTimer = setTimeout(() => {
    hashTimer = 0;
    writeHash();
  }, 150);
}

/** @param {number} value */
const brief = (value) => String(Number(value.toPrecision(5)));

/** The state as text for the address, without values that equal those at the start. @param {Run[]} runs */
function hashOf(runs) {
  const parts = new URLSearchParams();
  const put = (/** @type {string} */ name, /** @type {string} */ text, /** @type {string} */ usual) => {
    if (text !== usual) parts.set(name, text);
  };
  const cell = (/** @type {Chosen} */ { run, elite }) => `${run}.${runs[run].elites.cell[elite]}`;
  put("view", state.view, START.view);
  put("colour", state.colour, START.colour);
  put("layout", state.layout, START.layout);
  put("axes", state.axes.join("."), START.axes.join("."));
  put("cell", cell(state.chosen), cell(START.chosen));
  put("pins", state.pins.map(cell).join("-"), "");
  put("at", state.moment === null ? "" : brief(state.moment), "");
  put("zoom", state.zoom.map(brief).join("_"), START.zoom.map(brief).join("_"));
  put(
    "only",
    Object.entries(state.filters)
      .map(([key, range]) => [key, ...range.map(brief)].join("_"))
      .join("~"),
    "",
  );
  put("tab", state.tab, START.tab);
  put("sort", state.sort.join("_"), START.sort.join("_"));
  put("theme", state.theme, START.theme);
  return parts.toString();
}

/** Evaluations of the longest run. @param {Run[]} runs */
const lastMoment = (runs) => Math.max(...runs.map((run) => run.header.evaluations));

/** The state in an address; invalid values are left out. @param {string} text @param {Run[]} runs */
function readHash(text, runs) {
  const parts = new URLSearchParams(text),
    read = structuredClone(START);
  const oneOf = (
    /** @type {string} */ name,
    /** @type {string[]} */ allowed,
    /** @type {string} */ usual,
  ) => {
    const given = parts.get(name);
    return given !== null && allowed.includes(given) ? given : usual;
  };
  const eliteOf = (/** @type {string} */ text) => {
    const [run, cell] = text.split(".").map(Number);
    const elite = runs[run] ? runs[run].elites.cell.indexOf(cell) : -1;
    return elite < 0 ? null : { run, elite };
  };
  const isCorrected = runs.some((run) => run.corrected);
  read.view = oneOf("view", isCorrected ? ["recorded", "corrected", "difference"] : ["recorded"], START.view);
  read.colour = oneOf(
    "colour",
    Object.keys(QUANTITIES).filter((key) => isCorrected || !QUANTITIES[key].corrected),
    START.colour,
  );
  read.layout = oneOf("layout", listLayouts(runs[0].dims), START.layout);
  read.tab = oneOf("tab", Object.keys(TABS), START.tab);
  read.theme = oneOf("theme", ["light", "dark"], START.theme);
  const axes = (parts.get("axes") ?? "").split(".").map(Number);
  if (
    axes.length === START.axes.length &&
    axes.every((axis) => Number.isInteger(axis) && axis >= 0 && axis < runs[0].dims)
  )
    read.axes = axes;
  read.chosen = eliteOf(parts.get("cell") ?? "") ?? START.chosen;
  read.pins = (parts.get("pins") ?? "")
    .split("-")
    .map(eliteOf)
    .filter((pin) => pin !== null)
    .slice(0, MAX_PINS);
  const moment = parts.get("at"),
    zoom = (parts.get("zoom") ?? "").split("_").map(Number);
  if (moment && Number(moment) >= 0 && Number(moment) < lastMoment(runs)) read.moment = Number(moment);
  const [factor, ...middle] = zoom;
  if (zoom.length === 3 && factor >= 1 && factor <= MAX_ZOOM && middle.every((at) => at >= 0 && at <= 1))
    read.zoom = zoom;
  for (const filter of (parts.get("only") ?? "").split("~")) {
    const [key, low, high] = filter.split("_");
    if (Object.hasOwn(QUANTITIES, key) || axisOf(key) >= 0)
      if (Number(low) <= Number(high)) read.filters[key] = [Number(low), Number(high)];
  }
  const [key, way] = (parts.get("sort") ?? "").split("_");
  if (key && (way === "1" || way === "-1")) read.sort = [key, Number(way)];
  return read;
}

let writeHash = () => {};
let hashTimer = 0;
