// The layout of a map: tiles in the unit square, y upwards, in any number of descriptor dimensions.
"use strict";

const NESTED = 6; // bins per dimension of nested squares in four dimensions, unless the archive is a grid
const GAP = 0.055; // of a block, on each side

/** The layouts of a map, the usual one first. @param {number} dims */
function listLayouts(dims) {
  return dims === 1 ? ["profile"] : dims === 2 ? ["cells", "dots"] : ["nested", "dots"];
}

const LAYOUT_LABELS = { profile: "profile", cells: "cells", nested: "nested squares", dots: "dots" };

/** Tiles of a run's map. A tile shows at most one solution of a frame. */
class Layout {
  tiles = 0;
  starts = new Uint32Array(1); // of each tile's corners
  /** @type {Numbers} */ corners = new Float32Array(0);
  centres = new Float32Array(0);
  left = new Float32Array(0); // of bars
  right = new Float32Array(0);
  shape = [1, 1, 1, 1]; // blocks across and up, squares within them

  /** @param {Run} run @param {string} kind @param {number[]} axes dimensions that place a block, then a square in it */
  constructor(run, kind, axes) {
    this.run = run;
    this.kind = kind;
    this.axes = axes;
    if (kind === "cells") this._cells();
    else if (kind === "profile") this._profile();
    else if (kind === "nested") this._nested(); // dots have the rows of a frame as tiles
  }

  _cells() {
    const { run } = this,
      [across, up] = run.header.grid;
    this.tiles = run.cells;
    this.centres = Float32Array.from({ length: 2 * this.tiles }, (_, at) =>
      run.unit(run.centroids[at], at % 2),
    );
    const outlines = across
      ? { starts: evenly(this.tiles), corners: rectangles(this.centres, 0.5 / across, 0.5 / up) }
      : voronoi(this.centres);
    this.starts = outlines.starts;
    this.corners = outlines.corners;
  }

  _profile() {
    const centres = Array.from(this.run.centroids, (value) => this.run.unit(value, 0));
    const order = centres.map((_, cell) => cell).sort((one, other) => centres[one] - centres[other]);
    this.tiles = centres.length;
    this.left = new Float32Array(this.tiles);
    this.right = new Float32Array(this.tiles);
    order.forEach((cell, place) => {
      this.left[cell] = place ? (centres[order[place - 1]] + centres[cell]) / 2 : 0;
      this.right[cell] = place < this.tiles - 1 ? (centres[cell] + centres[order[place + 1]]) / 2 : 1;
    });
    this.centres = Float32Array.from({ length: 2 * this.tiles }, (_, at) => (at % 2 ? 0.5 : centres[at / 2]));
  }

  _nested() {
    const { run, axes } = this,
      grid = run.header.grid;
    const bins = axes.length === 3 ? Math.max(2, Math.min(12, Math.round(Math.cbrt(run.cells)))) : NESTED;
    const [a, b, c, d] = [0, 1, 2, 3].map((place) =>
      place >= axes.length ? 1 : grid.length ? grid[axes[place]] : bins,
    );
    this.shape = [a, b, c, d];
    this.tiles = a * b * c * d;
    this.starts = evenly(this.tiles);
    this.corners = new Float32Array(8 * this.tiles);
    this.centres = new Float32Array(2 * this.tiles);
    const inner = 1 - 2 * GAP;
    for (let tile = 0; tile < this.tiles; tile++) {
      const l = tile % d,
        k = Math.floor(tile / d) % c,
        j = Math.floor(tile / (d * c)) % b,
        i = Math.floor(tile / (d * c * b));
      const x = (i + GAP + (inner * k) / c) / a,
        y = (j + GAP + (inner * l) / d) / b,
        w = inner / (a * c),
        h = inner / (b * d);
      this.corners.set([x, y, x + w, y, x + w, y + h, x, y + h], 8 * tile);
      this.centres.set([x + w / 2, y + h / 2], 2 * tile);
    }
  }

  /** The tile of a descriptor in nested squares. @param {ArrayLike<number>} values @param {number} from */
  tileOf(values, from) {
    let tile = 0;
    for (let place = 0; place < 4; place++) {
      const count = this.shape[place];
      const unit =
        place < this.axes.length ? this.run.unit(values[from + this.axes[place]], this.axes[place]) : 0;
      tile = tile * count + Math.max(0, Math.min(count - 1, Math.floor(unit * count)));
    }
    return tile;
  }

  /** The row of a frame that each tile shows, or -1. Rows are sorted, the best first.
   * @param {Frame} frame @param {boolean} corrected @returns {Int32Array} */
  rows(frame, corrected) {
    if (this.kind === "dots") return Int32Array.from({ length: frame.count }, (_, row) => row);
    const rows = new Int32Array(this.tiles).fill(-1),
      after = this.run.corrected;
    if (corrected && after) {
      for (let elite = 0; elite < this.run.count; elite++) {
        if (!after.kept[elite]) continue;
        const tile =
          this.kind === "nested" ? this.tileOf(after.descriptor, elite * this.run.dims) : after.cell[elite];
        if (rows[tile] < 0 || after.mean[elite] > after.mean[rows[tile]]) rows[tile] = elite;
      }
    } else {
      for (let row = frame.count - 1; row >= 0; row--) {
        rows[this.kind === "nested" ? this.tileOf(frame.descriptor, row * this.run.dims) : frame.cell[row]] =
          row;
      }
    }
    return rows;
  }

  /** The position of a descriptor. In a profile, only x is used. @param {ArrayLike<number>} values @param {number} from
   * @returns {[number, number]} */
  place(values, from) {
    if (this.kind === "nested") {
      const tile = this.tileOf(values, from);
      return [this.centres[2 * tile], this.centres[2 * tile + 1]];
    }
    const [x, y] = this.kind === "dots" ? this.axes : [0, 1];
    return [
      this.run.unit(values[from + x], x),
      this.kind === "profile" ? 0 : this.run.unit(values[from + y], y),
    ];
  }

  /** The tile at a place; -1 where there is none. Dots are found by `MapView`. @param {number} x @param {number} y */
  at(x, y) {
    if (x < 0 || x > 1 || y < 0 || y > 1) return -1;
    if (this.kind === "profile") {
      for (let tile = 0; tile < this.tiles; tile++)
        if (x >= this.left[tile] && x < this.right[tile]) return tile;
      return -1;
    }
    let best = -1,
      least = Infinity;
    const [wide, high] =
      this.kind === "nested" ? [this.shape[0] * this.shape[2], this.shape[1] * this.shape[3]] : [1, 1];
    for (let tile = 0; tile < this.tiles; tile++) {
      const distance =
        ((this.centres[2 * tile] - x) * wide) ** 2 + ((this.centres[2 * tile + 1] - y) * high) ** 2;
      if (distance < least) [best, least] = [tile, distance];
    }
    return best;
  }
}

/** The first corner of each tile, if each has four. @param {number} tiles */
const evenly = (tiles) => Uint32Array.from({ length: tiles + 1 }, (_, tile) => 4 * tile);

/** Rectangles around centres. @param {Float32Array} centres @param {number} wide half of the width @param {number} high */
function rectangles(centres, wide, high) {
  const corners = new Float32Array(4 * centres.length);
  for (let tile = 0; tile < centres.length / 2; tile++) {
    const x = centres[2 * tile],
      y = centres[2 * tile + 1];
    corners.set([x - wide, y - high, x + wide, y - high, x + wide, y + high, x - wide, y + high], 8 * tile);
  }
  return corners;
}

/** The Voronoi cells of points in the unit square. A cell begins as the whole square and loses all that is nearer to another
 * point, near points first: points beyond twice the distance of its farthest corner change nothing.
 * @param {Float32Array} points x, y, x, y, … */
function voronoi(points) {
  const count = points.length / 2,
    side = Math.max(1, Math.floor(Math.sqrt(count / 2)));
  /** @type {number[][]} */
  const buckets = Array.from({ length: side * side }, () => []);
  const bucket = (/** @type {number} */ at) => Math.max(0, Math.min(side - 1, Math.floor(at * side)));
  for (let point = 0; point < count; point++)
    buckets[bucket(points[2 * point + 1]) * side + bucket(points[2 * point])].push(point);
  const starts = new Uint32Array(count + 1);
  /** @type {number[]} */
  const corners = [];
  for (let point = 0; point < count; point++) {
    const px = points[2 * point],
      py = points[2 * point + 1],
      column = bucket(px),
      row = bucket(py);
    let outline = [0, 0, 1, 0, 1, 1, 0, 1];
    for (let ring = 0; ring < side; ring++) {
      for (let y = Math.max(0, row - ring); y <= Math.min(side - 1, row + ring); y++) {
        const step = Math.abs(y - row) === ring ? 1 : 2 * ring; // only the edge of the ring
        for (let x = column - ring; x <= column + ring; x += step) {
          if (x < 0 || x >= side) continue;
          for (const other of buckets[y * side + x])
            if (other !== point) outline = clipToNearer(outline, px, py, points[2 * other], points[2 * other + 1]);
        }
      }
      let far = 0;
      for (let at = 0; at < outline.length; at += 2)
        far = Math.max(far, Math.hypot(outline[at] - px, outline[at + 1] - py));
      if (ring / side >= 2 * far) break;
    }
    corners.push(...outline);
    starts[point + 1] = corners.length / 2;
  }
  return { starts, corners: Float32Array.from(corners) };
}

/** The part of a convex outline that is nearer to a point than to another one.
 * @param {number[]} outline @param {number} px @param {number} py @param {number} qx @param {number} qy */
function clipToNearer(outline, px, py, qx, qy) {
  const nx = qx - px,
    ny = qy - py,
    limit = (nx * (px + qx) + ny * (py + qy)) / 2;
  if (nx === 0 && ny === 0) return outline;
  let cut = false;
  for (let at = 0; at < outline.length && !cut; at += 2)
    cut = nx * outline[at] + ny * outline[at + 1] > limit;
  if (!cut) return outline;
  /** @type {number[]} */
  const kept = [];
  for (let at = 0; at < outline.length; at += 2) {
    const next = (at + 2) % outline.length,
      [x0, y0, x1, y1] = [outline[at], outline[at + 1], outline[next], outline[next + 1]],
      d0 = nx * x0 + ny * y0 - limit,
      d1 = nx * x1 + ny * y1 - limit;
    if (d0 <= 0) kept.push(x0, y0);
    if (d0 < 0 !== d1 < 0 && d0 !== 0 && d1 !== 0) {
      const share = d0 / (d0 - d1);
      kept.push(x0 + (x1 - x0) * share, y0 + (y1 - y0) * share);
    }
  }
  return kept;
}
