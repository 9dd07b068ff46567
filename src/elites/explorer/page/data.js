// The data of the page: a header of plain values, and blocks of numbers that are decoded when first used.
"use strict";

/**
 * @typedef {{at: [number, number], type: string, shape: number[], low?: number, high?: number, rising?: boolean}} Block
 * @typedef {Float32Array | Uint8Array | Uint16Array | Uint32Array | Int32Array} Numbers
 * @typedef {{evaluations: number, count: number, cell: Numbers, fitness: Numbers, descriptor: Numbers, operator: Numbers,
 *   generation: Numbers, evaluation: Numbers, elite: Int32Array}} Frame an archive at a moment; `elite` is the index of the
 *   same solution in the final archive, or -1
 */

const HEADER = JSON.parse(/** @type {string} */ (document.getElementById("header")?.textContent));
const BLOCKS = /** @type {string} */ (document.getElementById("blocks")?.textContent);
const KINDS = { f4: Float32Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array };

/** The bytes of a block. @param {[number, number]} at @param {string} blocks @returns {Promise<ArrayBuffer>} */
async function inflate(at, blocks = BLOCKS) {
  const packed = Uint8Array.from(atob(blocks.slice(at[0], at[0] + at[1])), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).arrayBuffer();
}

/** The numbers of a block; quantised ones as they were, NaN included. @param {Block} block @returns {Promise<Numbers>} */
async function numbers(block) {
  const raw = new KINDS[/** @type {keyof typeof KINDS} */ (block.type)](await inflate(block.at));
  if (block.rising) for (let at = 1; at < raw.length; at++) raw[at] += raw[at - 1];
  if (block.low === undefined || block.high === undefined) return raw;
  const missing = block.type === "u1" ? 255 : 65535,
    low = block.low,
    step = (block.high - block.low) / (missing - 1);
  return Float32Array.from(raw, (code) => (code === missing ? NaN : low + step * code));
}

/** All blocks of an object, under the same names. @param {any} described @returns {Promise<any>} */
async function unpacked(described) {
  const names = Object.keys(described).filter((name) => described[name]?.at);
  const found = await Promise.all(names.map((name) => numbers(described[name])));
  return { ...described, ...Object.fromEntries(names.map((name, index) => [name, found[index]])) };
}

const EMPTY_FRAME = {
  cell: new Int32Array(0),
  fitness: new Float32Array(0),
  descriptor: new Float32Array(0),
  operator: new Uint8Array(0),
  generation: new Int32Array(0),
  evaluation: new Int32Array(0),
  elite: new Int32Array(0),
};

/** A run with its arrays. Elites are numbered from the best. */
class Run {
  /** @type {any} */ elites;
  /** @type {any} */ corrected;
  /** @type {any} */ ancestors;
  /** @type {Frame} */ end = { ...EMPTY_FRAME, evaluations: 0, count: 0 };
  /** @type {Frame[]} */ snapshots = [];
  /** @type {Map<number, number>} */ byEvaluation = new Map();
  /** @type {Map<number, number>} */ ancestorRows = new Map();
  /** @type {Numbers} */ centroids = new Float32Array(0);
  cells = 0;
  /** @type {Numbers} */ sizes = new Uint8Array(0); // corners of each cell in two dimensions
  /** @type {Numbers} */ corners = new Float32Array(0);
  /** @type {Promise<Numbers> | undefined} */ _samples;
  /** @type {Promise<Numbers> | undefined} */ _cloud;

  /** @param {any} header @param {number} index */
  constructor(header, index) {
    this.header = header;
    this.index = index;
    this.dims = /** @type {number} */ (header.names.length);
    this.count = /** @type {number} */ (header.elites.count);
    this.title = `${header.algorithm} on ${header.task}, seed ${header.seed}`;
  }

  async load() {
    const { header } = this;
    const [elites, centroids, sizes, corners, corrected, ancestors, snapshots] = await Promise.all([
      unpacked(header.elites),
      numbers(header.centroids),
      header.polygons && numbers(header.polygons.sizes),
      header.polygons && numbers(header.polygons.corners),
      header.corrected && unpacked(without(header.corrected, ["samples", "cloud"])),
      unpacked(header.ancestors),
      Promise.all(header.snapshots.map(unpacked)),
    ]);
    this.elites = elites;
    this.centroids = centroids;
    this.cells = this.centroids.length / this.dims;
    this.sizes = sizes;
    this.corners = corners;
    this.corrected = corrected;
    this.ancestors = ancestors;
    this.byEvaluation = new Map(Array.from(elites.evaluation, (evaluation, elite) => [evaluation, elite]));
    this.ancestorRows = new Map(Array.from(ancestors.evaluation, (evaluation, row) => [evaluation, row]));
    this.snapshots = snapshots.map((snapshot) => ({
      ...snapshot,
      count: snapshot.fitness.length,
      elite: Int32Array.from(snapshot.evaluation, (evaluation) => this.byEvaluation.get(evaluation) ?? -1),
    }));
    this.end = {
      ...elites,
      evaluations: header.evaluations,
      elite: Int32Array.from({ length: this.count }, (_, index) => index),
    };
    return this;
  }

  /** The archive after so many evaluations: the last snapshot until then, or, without snapshots, those elites of the final
   * archive that had been found. @param {number | null} moment @returns {Frame} */
  frame(moment) {
    if (moment === null || moment >= this.header.evaluations) return this.end;
    if (this.snapshots.length) {
      const before = this.snapshots.filter((snapshot) => snapshot.evaluations <= moment);
      return before.length
        ? before[before.length - 1]
        : { ...this.end, count: 0, evaluations: 0, ...EMPTY_FRAME };
    }
    const kept = this.end.elite.filter((elite) => this.elites.evaluation[elite] < moment);
    const pick = (/** @type {Numbers} */ values) => Float32Array.from(kept, (elite) => values[elite]);
    return {
      evaluations: moment,
      count: kept.length,
      cell: Int32Array.from(kept, (elite) => this.elites.cell[elite]),
      fitness: pick(this.elites.fitness),
      descriptor: Float32Array.from(
        { length: kept.length * this.dims },
        (_, at) => this.elites.descriptor[kept[Math.floor(at / this.dims)] * this.dims + (at % this.dims)],
      ),
      operator: pick(this.elites.operator),
      generation: pick(this.elites.generation),
      evaluation: pick(this.elites.evaluation),
      elite: kept,
    };
  }

  /** Fitness of an elite's replications. @param {number} elite @returns {Promise<number[]>} */
  async samples(elite) {
    this._samples ??= numbers(this.header.corrected.samples);
    const all = await this._samples,
      size = this.corrected.replications,
      least = this.corrected.least[elite],
      most = this.corrected.most[elite];
    return Array.from(all.slice(elite * size, (elite + 1) * size), (share) => least + (most - least) * share);
  }

  /** Descriptors of an elite's replications, or of the first of them, in units of the bounds' ranges. @param {number} elite @returns {Promise<number[][]>} */
  async cloud(elite) {
    this._cloud ??= numbers(this.header.corrected.cloud);
    const all = await this._cloud,
      size = this.corrected.clouds,
      dims = this.dims;
    return Array.from({ length: size }, (_, row) => {
      const at = (elite * size + row) * dims;
      return Array.from(all.slice(at, at + dims));
    });
  }

  /** A coordinate in units of its bounds' range. @param {number} value @param {number} dimension */
  unit(value, dimension) {
    const [low, high] = this.header.bounds[dimension];
    return (value - low) / (high - low);
  }

  /** The descriptor of an elite, where it was found or where it is on average. @param {number} elite @param {boolean} mean */
  descriptor(elite, mean = false) {
    const all = mean && this.corrected ? this.corrected.descriptor : this.elites.descriptor;
    return Array.from(all.slice(elite * this.dims, (elite + 1) * this.dims));
  }

  /** The elite nearest to a descriptor, whose missing coordinates count nothing. @param {number[]} wanted */
  nearest(wanted) {
    let best = -1,
      least = Infinity;
    for (let elite = 0; elite < this.count; elite++) {
      let distance = 0;
      for (let axis = 0; axis < wanted.length; axis++) {
        const [low, high] = this.header.bounds[axis];
        distance += ((this.elites.descriptor[elite * this.dims + axis] - wanted[axis]) / (high - low)) ** 2;
      }
      if (distance < least) [best, least] = [elite, distance];
    }
    return best;
  }
}

/** The object without these keys. @param {any} object @param {string[]} names */
function without(object, names) {
  return Object.fromEntries(Object.entries(object).filter(([name]) => !names.includes(name)));
}
