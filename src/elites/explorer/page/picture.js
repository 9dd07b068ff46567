// The tiles of a map as pixels: the visible part and a margin around it, so that panning draws little.
"use strict";

const AROUND = 0.25; // margin on each side, relative to the visible part

/** @typedef {{zoom: number, left: number, bottom: number, right: number, top: number, x: number, y: number, width: number,
 *   height: number}} Region in the unit square, and in pixels of the whole map at this zoom, y downwards */

class Picture {
  /** @type {Region | null} */ region = null; // the region that it shows; null if it is outdated
  canvas = document.createElement("canvas");
  spare = document.createElement("canvas");

  /** Draws the visible part; pixels of the same zoom are moved. @param {MapView} view @param {number[]} seen */
  render(view, seen) {
    const zoom = state.zoom[0],
      around = AROUND / zoom,
      [wide, high] = sizeOf(view, zoom);
    const x = Math.floor(Math.max(0, seen[0] - around) * wide),
      y = Math.floor((1 - Math.min(1, seen[3] + around)) * high),
      width = Math.max(1, Math.ceil(Math.min(1, seen[2] + around) * wide) - x),
      height = Math.max(1, Math.ceil((1 - Math.max(0, seen[1] - around)) * high) - y);
    const { spare, canvas, region: old } = this;
    if (spare.width < width || spare.height < height) [spare.width, spare.height] = [width, height];
    const context = /** @type {CanvasRenderingContext2D} */ (spare.getContext("2d"));
    context.clearRect(0, 0, width, height);
    const kept = old?.zoom === zoom ? overlap(old, x, y, width, height) : null;
    if (old && kept)
      context.drawImage(
        canvas,
        ...[kept.x - old.x, kept.y - old.y, kept.width, kept.height],
        ...[kept.x - x, kept.y - y, kept.width, kept.height],
      );
    const place = {
      x: (/** @type {number} */ unit) => unit * wide - x,
      y: (/** @type {number} */ unit) => (1 - unit) * high - y,
    };
    for (const [px, py, pw, ph] of kept ? subtractRectangle(kept, x, y, width, height) : [[x, y, width, height]]) {
      context.save();
      context.beginPath();
      context.rect(px - x, py - y, pw, ph);
      context.clip();
      const window = [px / wide, 1 - (py + ph) / high, (px + pw) / wide, 1 - py / high];
      view.drawTiles(context, place, window, view.ratio);
      context.restore();
    }
    [this.canvas, this.spare] = [spare, canvas];
    this.region = {
      ...{ zoom, x, y, width, height },
      ...{ left: x / wide, right: (x + width) / wide, bottom: 1 - (y + height) / high, top: 1 - y / high },
    };
  }

  /** Copies the picture to its position, pixel by pixel unless it is stretched. @param {MapView} view
   * @param {CanvasRenderingContext2D} context */
  draw(view, context) {
    if (!this.region) return;
    const { left, top, width, height, zoom } = this.region,
      stretch = state.zoom[0] / zoom,
      [x, y] = view.toScreen(left, top).map((at) => Math.round(at * view.ratio));
    context.drawImage(this.canvas, 0, 0, width, height, x, y, width * stretch, height * stretch);
  }
}

/** The width and the height of a whole map, in pixels. @param {MapView} view @param {number} zoom */
const sizeOf = ({ plot, ratio }, zoom) => [plot.w * zoom * ratio, plot.h * zoom * ratio];

/** The part of a rectangle within a region. @param {Region} region @param {number} x @param {number} y @param {number} width
 * @param {number} height */
function overlap(region, x, y, width, height) {
  const left = Math.max(x, region.x),
    top = Math.max(y, region.y),
    right = Math.min(x + width, region.x + region.width),
    bottom = Math.min(y + height, region.y + region.height);
  return right > left && bottom > top ? { x: left, y: top, width: right - left, height: bottom - top } : null;
}

/** The parts of a rectangle that are not in a smaller one within it. @param {{x: number, y: number, width: number, height: number}} kept
 * @param {number} x @param {number} y @param {number} width @param {number} height */
function subtractRectangle(kept, x, y, width, height) {
  const right = kept.x + kept.width,
    bottom = kept.y + kept.height;
  const parts = [
    [x, y, kept.x - x, height],
    [right, y, x + width - right, height],
    [kept.x, y, kept.width, kept.y - y],
    [kept.x, bottom, kept.width, y + height - bottom],
  ];
  return parts.filter(([, , wide, high]) => wide > 0 && high > 0);
}
