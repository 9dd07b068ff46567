// The data of the page: a header of plain values, and blocks of numbers that are decoded when first used.
"use strict";

/**
 * @typedef {{at: [number, number], type: string, shape: number[], low?: number[], high?: number[], rising?: boolean}} Block
 * @typedef {Float32Array | Uint8Array | Uint16Array | Uint32Array | Int32Array} Numbers
 * @typedef {{evaluations: number, count: number, cell: Numbers, fitness: Numbers, descriptor: Numbers, operator: Numbers,
 *   generation: Numbers, evaluation: Numbers, elite: Int32Array}} Frame an archive at a moment; `elite` is the index of the
 *   same solution in the final archive, or -1
 */

const HEADER = JSON.parse(/** @type {string} */ (document.getElementById("header")?.textContent));
const BLOCKS = /** @type {string} */ (document.getElementById("blocks")?.textContent);
const MISSING = 65535; // stands for NaN in quantised blocks
const NO_SNAPSHOT = 255; // stands for no snapshot
const KINDS = { f4: Float32Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array };

/** The bytes of a block. @param {[number, number]} at @param {string} blocks @returns {Promise<ArrayBuffer>} */
async function inflate(at, blocks = BLOCKS) {
  const packed = Uint8Array.from(atob(blocks.slice(at[0], at[0] + at[1])), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).arrayBuffer();
}

/** The numbers of a block; quantised blocks are decoded, NaN included. @param {Block} block @returns {Promise<Numbers>} */
async function numbers(block) {
  const Kind = KINDS[/** @type {keyof typeof KINDS} */ (block.type)],
    size = Kind.BYTES_PER_ELEMENT,
    planes = new Uint8Array(await inflate(block.at)),
    count = planes.length / size,
    bytes = new Uint8Array(planes.length);
  for (let plane = 0; plane < size; plane++)
    for (let at = 0; at < count; at++) bytes[at * size + plane] = planes[plane * count + at];
  const raw = new Kind(bytes.buffer),
    { low, high } = block;
  if (block.rising) for (let at = 1; at < raw.length; at++) raw[at] += raw[at - 1];
  if (!low || !high) return raw;
  const steps = low.map((least, column) => (high[column] - least) / (MISSING - 1));
  return Float32Array.from(raw, (code, at) =>
    code === MISSING ? NaN : low[at % low.length] + steps[at % low.length] * code,
  );
}

/** Bytes of replications, `[elites, replications, d]`: they are stored sorted and as differences, replication by
 * replication. @param {Block} block @returns {Promise<Uint8Array>} */
async function decodeReplications(block) {
  const [d, replications, elites] = block.shape,
    changes = await numbers(block),
    codes = new Uint8Array(changes.length);
  for (let part = 0; part < d; part++) {
    for (let row = 0; row < replications; row++) {
      for (let elite = 0; elite < elites; elite++) {
        const before = part ? 0 : row - 1,
          base = row ? codes[(elite * replications + before) * d + part] : 0;
        codes[(elite * replications + row) * d + part] =
          base + changes[(part * replications + row) * elites + elite];
      }
    }
  }
  return codes;
}

/** A number from 0 to 1; NaN if it is missing. @param {number} code a byte */
const unitOf = (code) => (code === 255 ? NaN : code / 254);

/** All blocks of an object, under the same names. @param {any} described @returns {Promise<any>} */
async function unpack(described) {
  const names = Object.keys(described).filter((name) => described[name]?.shape);
  const arrays = await Promise.all(names.map((name) => numbers(described[name])));
  return { ...described, ...Object.fromEntries(names.map((name, index) => [name, arrays[index]])) };
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
  /** @type {any} */ past; // solutions of snapshots that are not final elites, and the first snapshot of the final elites
  /** @type {Frame} */ end = { ...EMPTY_FRAME, evaluations: 0, count: 0 };
  /** @type {number[]} */ moments = []; // of snapshots
  /** @type {{number: number, frame: Frame} | undefined} */ _snapshot; // the last that was shown
  /** @type {Map<number, number>} */ byEvaluation = new Map();
  /** @type {Map<number, number>} */ ancestorRows = new Map();
  /** @type {Numbers} */ centroids = new Float32Array(0);
  cells = 0;
  /** @type {Promise<Uint8Array> | undefined} */ _samples;
  /** @type {Promise<Uint8Array> | undefined} */ _cloud;

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
    const [elites, centroids, corrected, ancestors, past] = await Promise.all([
      unpack(header.elites),
      numbers(header.centroids),
      header.corrected && unpack(without(header.corrected, ["samples", "cloud"])),
      unpack(header.ancestors),
      unpack(header.past),
    ]);
    this.elites = elites;
    this.centroids = centroids;
    this.cells = this.centroids.length / this.dims;
    this.corrected = corrected;
    this.ancestors = ancestors;
    this.byEvaluation = new Map(Array.from(elites.evaluation, (evaluation, elite) => [evaluation, elite]));
    this.ancestorRows = new Map(Array.from(ancestors.evaluation, (evaluation, row) => [evaluation, row]));
    this.past = past;
    this.moments = past.moments;
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
    if (this.moments.length) {
      const number = this.moments.filter((snapshot) => snapshot <= moment).length - 1;
      return number < 0 ? { ...EMPTY_FRAME, count: 0, evaluations: 0 } : this.snapshot(number);
    }
    const kept = this.end.elite.filter((elite) => this.elites.evaluation[elite] < moment);
    return this._frame(moment, kept, new Int32Array(0));
  }

  /** @param {number} number @returns {Frame} */
  snapshot(number) {
    if (this._snapshot?.number !== number) {
      const { since, first, last } = this.past;
      const kept = this.end.elite.filter((elite) => since[elite] !== NO_SNAPSHOT && since[elite] <= number);
      const old = Int32Array.from(first.keys()).filter((row) => first[row] <= number && last[row] >= number);
      this._snapshot = { number, frame: this._frame(this.moments[number], kept, old) };
    }
    return this._snapshot.frame;
  }

  /** An archive of final elites and earlier solutions, sorted, the best first. @param {number} evaluations
   * @param {Int32Array} kept @param {Int32Array} old @returns {Frame} */
  _frame(evaluations, kept, old) {
    const { elites, past, dims } = this;
    /** @type {{all: any, row: number, elite: number}[]} */
    const rows = [
      ...Array.from(kept, (elite) => ({ all: elites, row: elite, elite })),
      ...Array.from(old, (row) => ({
        all: past,
        row,
        elite: this.byEvaluation.get(past.evaluation[row]) ?? -1,
      })),
    ];
    rows.sort((one, other) => other.all.fitness[other.row] - one.all.fitness[one.row]);
    const pick = (/** @type {string} */ name) => Float64Array.from(rows, ({ all, row }) => all[name][row]);
    return {
      evaluations,
      count: rows.length,
      cell: Int32Array.from(pick("cell")),
      fitness: Float32Array.from(pick("fitness")),
      descriptor: Float32Array.from({ length: rows.length * dims }, (_, at) => {
        const { all, row } = rows[Math.floor(at / dims)];
        return all.descriptor[row * dims + (at % dims)];
      }),
      operator: Uint8Array.from(pick("operator")),
      generation: Int32Array.from(pick("generation")),
      evaluation: Int32Array.from(pick("evaluation")),
      elite: Int32Array.from(rows, ({ elite }) => elite),
    };
  }

  /** Fitness of an elite's replications. @param {number} elite @returns {Promise<number[]>} */
  async samples(elite) {
    this._samples ??= decodeReplications(this.header.corrected.samples);
    const all = await this._samples,
      size = this.corrected.replications,
      least = this.corrected.least[elite],
      most = this.corrected.most[elite];
    return Array.from(
      all.slice(elite * size, (elite + 1) * size),
      (code) => least + (most - least) * unitOf(code),
    );
  }

  /** Descriptors of an elite's replications, or of the first of them, in units of the bounds' ranges. @param {number} elite @returns {Promise<number[][]>} */
  async cloud(elite) {
    this._cloud ??= decodeReplications(this.header.corrected.cloud);
    const all = await this._cloud,
      size = this.corrected.clouds,
      dims = this.dims;
    return Array.from({ length: size }, (_, row) => {
      const at = (elite * size + row) * dims;
      return Array.from(all.slice(at, at + dims), unitOf);
    });
  }

  /** A coordinate in units of its bounds' range. @param {number} value @param {number} dimension */
  unit(value, dimension) {
    const [low, high] = this.header.bounds[dimension];
    return (value - low) / (high - low);
  }

  /** The descriptor of an elite: when it was found, or the mean of its replications. @param {number} elite @param {boolean} mean */
  descriptor(elite, mean = false) {
    const all = mean && this.corrected ? this.corrected.descriptor : this.elites.descriptor;
    return Array.from(all.slice(elite * this.dims, (elite + 1) * this.dims));
  }

  /** A descriptor as text. @param {ArrayLike<number>} values */
  placeText(values) {
    return this.header.names
      .map((/** @type {string} */ name, /** @type {number} */ axis) => `${name} ${short(values[axis])}`)
      .join(", ");
  }

  /** The elite nearest to a descriptor; missing coordinates are ignored. @param {number[]} wanted */
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
