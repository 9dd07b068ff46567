// The quantities that give cells their colours, and their scales.
"use strict";

/** @typedef {[number, number, number]} RGB */

/** @param {string} hex @returns {RGB} */
const rgb = (hex) => /** @type {RGB} */ ([1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
/** @type {Record<string, RGB[]>} */
const PALETTES = Object.fromEntries(
  Object.entries(HEADER.palettes).map(([name, stops]) => [name, stops.map(rgb)]),
);
const LEVELS = 4; // of uncertainty: 2 ** (LEVELS - 1) classes of values at the lowest, one class at the highest

/** @typedef {{label: string, palette?: string, corrected?: boolean, whole?: boolean, about?: string}} Quantity */
/** @type {Record<string, Quantity>} */
const QUANTITIES = {
  fitness: { label: "fitness", palette: "viridis" },
  mean: { label: "corrected fitness", palette: "viridis", corrected: true },
  certain: { label: "fitness and its uncertainty", palette: "viridis", corrected: true },
  loss: { label: "loss of fitness", corrected: true },
  spread: { label: "spread of fitness", palette: "magma", corrected: true },
  stays: { label: "stays in its cell", palette: "cividis", corrected: true },
  operator: { label: "operator" },
  generation: { label: "generation", palette: "cividis", whole: true },
  age: { label: "age in evaluations", palette: "cividis", whole: true },
};

/** Whether colours and heights are those of fitness. */
const showsFitness = () =>
  state.view !== "difference" && ["fitness", "mean", "certain"].includes(state.colour);

/** A quantity of a solution in a frame; in the corrected archive fitness is the mean. NaN if it is not known.
 * @param {Run} run @param {Frame} frame @param {number} row @param {string} key @param {string} view */
function readValue(run, frame, row, key, view) {
  const elite = frame.elite[row],
    corrected = run.corrected;
  switch (key) {
    case "fitness":
    case "certain":
      return view === "corrected" ? (corrected?.mean[elite] ?? NaN) : frame.fitness[row];
    case "operator":
      return frame.operator[row];
    case "generation":
      return frame.generation[row];
    case "age":
      return frame.evaluations - frame.evaluation[row];
  }
  if (!corrected || elite < 0) return NaN;
  if (key === "mean") return corrected.mean[elite];
  if (key === "loss") return frame.fitness[row] - corrected.mean[elite];
  if (key === "change") return corrected.mean[elite] - frame.fitness[row];
  return corrected[key][elite];
}

const ROBUST = [0.02, 0.98]; // shares of the values that are below the ends of a scale
const MIN_ROBUST_VALUES = 10; // if there are fewer, all are within the ends
const ROBUST_MARGIN = 0.25; // extremes this near to these shares, relative to their distance, are within too

/** Ends of a scale, as in figures: the lowest and the highest value, unless a few values lie far beyond the others.
 * @param {ArrayLike<number>} values @returns {[number, number] | null} null if there is no finite value */
function robustEnds(values) {
  const sorted = Float64Array.from(values).filter(Number.isFinite).sort(),
    last = sorted.length - 1;
  if (last < 0) return null;
  const least = sorted[0],
    most = sorted[last],
    low = sorted[Math.ceil(ROBUST[0] * last)],
    high = sorted[Math.floor(ROBUST[1] * last)],
    near = ROBUST_MARGIN * (high - low);
  if (last + 1 < MIN_ROBUST_VALUES || !(low < high)) return [least, most];
  return [low - least <= near ? least : low, most - high <= near ? most : high];
}

/** The range of a quantity over whole runs, recorded and corrected, so that all pictures share one scale. */
class Scale {
  /** @param {Run[]} runs @param {string} key */
  constructor(runs, key) {
    this.key = key;
    const parts = runs.flatMap((run) => valuesOf(run, key)),
      ends = parts.map(robustEnds).filter((pair) => pair !== null);
    let low = ends.length ? Math.min(...ends.map(([least]) => least)) : 0,
      high = ends.length ? Math.max(...ends.map(([, most]) => most)) : 1;
    if (key === "loss" || key === "change") [low, high] = [-Math.max(-low, high), Math.max(-low, high)];
    if (key === "stays") [low, high] = [0, 1];
    if (key === "spread") low = 0;
    this.low = low;
    this.high = high;
    this.least = low; // of all values
    this.most = high;
    for (const part of parts)
      for (const value of part)
        if (Number.isFinite(value)) {
          this.least = Math.min(this.least, value);
          this.most = Math.max(this.most, value);
        }
    const spreads = runs
      .flatMap((run) => (run.corrected ? Array.from(run.corrected.spread) : []))
      .filter(Number.isFinite);
    spreads.sort((one, other) => one - other);
    this.widest = spreads.length ? spreads[Math.floor(0.95 * (spreads.length - 1))] || 1 : 1;
    const diverging = key === "loss" || key === "change"; // almost the background colour where nothing changes
    this.stops = diverging
      ? PALETTES[dark() ? "managua" : "PuOr"]
      : PALETTES[QUANTITIES[key].palette ?? "viridis"];
    if (key === "loss") this.stops = [...this.stops].reverse();
    this.operators = HEADER.operators.map((/** @type {{colour: string}} */ operator) => rgb(operator.colour));
    this.grey = dark() ? rgb("#4a4c54") : rgb("#d3d1ca");
  }

  /** The position of a value on the scale, from 0 to 1. @param {number} value */
  share(value) {
    return this.high > this.low ? Math.min(1, Math.max(0, (value - this.low) / (this.high - this.low))) : 0.5;
  }

  /** @param {number} value @param {number} spread @returns {RGB} */
  colour(value, spread = 0) {
    if (this.key === "operator") return this.operators[value] ?? this.grey;
    if (this.key === "certain") return this.suppressed(this.share(value), Math.min(1, spread / this.widest));
    return interpolatePalette(this.stops, this.share(value));
  }

  /** The colour in a value-suppressing palette: less certain values have fewer and greyer colours.
   * @param {number} share @param {number} doubt both from 0 to 1 @returns {RGB} */
  suppressed(share, doubt) {
    const level = Number.isFinite(doubt) ? Math.min(LEVELS - 1, Math.floor(doubt * LEVELS)) : LEVELS - 1;
    const classes = 2 ** (LEVELS - 1 - level);
    const middle = (Math.min(classes - 1, Math.floor(share * classes)) + 0.5) / classes;
    return mixColours(interpolatePalette(this.stops, middle), this.grey, (level / (LEVELS - 1)) * 0.85);
  }
}

/** The values of a quantity that pictures of a run show: recorded ones, those of snapshots, corrected ones.
 * @param {Run} run @param {string} key @returns {Numbers[]} */
function valuesOf(run, key) {
  const { end, past, corrected } = run;
  if (!["fitness", "mean", "certain"].includes(key))
    return [Float32Array.from({ length: end.count }, (_, row) => readValue(run, end, row, key, "recorded"))];
  const kept = corrected?.mean.filter(
    (/** @type {number} */ _, /** @type {number} */ elite) => corrected.kept[elite],
  );
  return [end.fitness, past.fitness, ...(kept ? [kept] : [])];
}

/** @param {RGB[]} stops @param {number} share @returns {RGB} */
function interpolatePalette(stops, share) {
  const at = share * (stops.length - 1),
    first = Math.min(stops.length - 2, Math.floor(at));
  return mixColours(stops[first], stops[first + 1], at - first);
}

/** @param {RGB} one @param {RGB} other @param {number} share @returns {RGB} */
function mixColours(one, other, share) {
  return /** @type {RGB} */ ([0, 1, 2].map((at) => Math.round(one[at] + (other[at] - one[at]) * share)));
}

/** @param {ArrayLike<number>} colour @param {number} alpha */
const css = (colour, alpha = 1) => `rgba(${colour[0]},${colour[1]},${colour[2]},${alpha})`;

/** Whether the page is dark now. */
const dark = () => document.documentElement.dataset.theme === "dark";
/** @type {Map<string, string>} */
const inks = new Map(); // emptied when the theme changes
/** A colour of the style sheet. @param {string} name @returns {string} */
function ink(name) {
  let colour = inks.get(name);
  if (!colour)
    inks.set(
      name,
      (colour = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()),
    );
  return colour;
}
