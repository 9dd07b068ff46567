// The map of one run on two canvases: tiles, and marks above them (axes, arrows, rings).
"use strict";

const MARGIN = { left: 54, right: 12, top: 10, bottom: 40 };
const MAX_ASPECT_RATIO = 1.6; // of a map's width to its height
const MOTION = 400; // ms
const MAX_ZOOM = 60;
const LETTERS = "ABCD";

const still = matchMedia("(prefers-reduced-motion: reduce)");

/** The drawn state of each tile. */
class Target {
  /** @param {number} tiles */
  constructor(tiles) {
    /** @type {Int32Array} */
    this.rows = new Int32Array(tiles).fill(-1);
    this.colour = new Float32Array(4 * tiles); // red, green, blue from 0 to 255, alpha from 0 to 1
    this.place = new Float32Array(2 * tiles); // positions of dots; the second number of a bar is its height
  }
}

class MapView {
  ratio = 1;
  plot = { x: 0, y: 0, w: 0, h: 0 };
  /** @type {Layout} */ layout = /** @type {any} */ (undefined); // until the first update
  /** @type {Frame} */ frame = /** @type {any} */ (undefined);
  moving = false;
  zooming = false;
  timer = 0;
  /** @type {number[] | null} */ arrowsFrom = null;

  /** @param {HTMLElement} parent @param {Run} run @param {() => Scale} scale @param {boolean} named */
  constructor(parent, run, scale, named) {
    this.run = run;
    this.scale = scale;
    this.named = named;
    this.box = element("div", {
      class: "map",
      tabindex: 0,
      role: "application",
      "aria-label": `Map of ${run.title}`,
    });
    this.ground = /** @type {HTMLCanvasElement} */ (element("canvas"));
    this.above = /** @type {HTMLCanvasElement} */ (element("canvas"));
    this.box.append(this.ground, this.above);
    if (named) {
      const mark = element("span", {
        class: "dot",
        style: { background: STROKES[run.index % STROKES.length] },
      });
      this.box.append(element("span", { class: "name" }, mark, run.title));
    }
    parent.append(this.box);
    this.picture = new Picture();
    this.begun = 0;
    this.target = this.from = this.now = new Target(0);
    this.arrows = [0, 0]; // how long they are, and how visible
    new ResizeObserver(() => this.resize()).observe(this.box);
    this.resize();
    addGestures(this);
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.box;
    if (!width || !height) return;
    this.ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.ground, this.above])
      [canvas.width, canvas.height] = [width * this.ratio, height * this.ratio];
    const head = this.named ? 26 : MARGIN.top;
    const high = Math.max(40, height - head - MARGIN.bottom),
      free = Math.max(40, width - MARGIN.left - MARGIN.right);
    const wide = this.layout?.kind === "profile" ? free : Math.min(free, MAX_ASPECT_RATIO * high);
    this.plot = {
      x: MARGIN.left + (free - wide) / 2,
      y: head,
      w: wide,
      h: Math.min(high, this.layout?.kind === "profile" ? high : MAX_ASPECT_RATIO * wide),
    };
    this.picture.region = null;
    this.paint();
  }

  /** Reads the state and moves to the new picture. @param {boolean} move */
  update(move = true) {
    const layouts = listLayouts(this.run.dims),
      kind = layouts.includes(state.layout) ? state.layout : layouts[0];
    const axes =
      kind === "nested"
        ? state.axes.slice(0, Math.min(4, this.run.dims))
        : kind === "dots"
          ? state.axes.slice(0, 2)
          : [0, 1];
    const usable = axes.every((axis) => axis < this.run.dims) ? axes : axes.map((_, place) => place);
    const same = this.layout?.kind === kind && this.layout.axes.join() === usable.join();
    if (!same) {
      this.layout = new Layout(this.run, kind, usable);
      this.resize();
    }
    this.frame = this.run.frame(state.moment);
    const target = this.goal();
    const moves = move && same && !still.matches && target.rows.length === this.now.rows.length;
    this.from = moves ? this.now : target;
    this.target = target;
    this.arrowsFrom = moves ? [...this.arrows] : null;
    this.begun = performance.now();
    if (!this.moving) this.step();
  }

  /** @returns {Target} */
  goal() {
    const { layout, frame, run } = this,
      view = frame === run.end ? state.view : "recorded"; // only the end was corrected
    const after = view === "corrected" && run.corrected;
    const scale = this.scale(),
      rows = layout.rows(frame, Boolean(after)),
      target = new Target(rows.length);
    const key = state.view === "difference" ? "change" : state.colour;
    target.rows = rows;
    for (let tile = 0; tile < rows.length; tile++) {
      const row = rows[tile];
      if (row < 0) {
        target.colour.fill(0, 4 * tile, 4 * tile + 4);
        continue;
      }
      const value = readValue(run, frame, row, key, view);
      const spread = run.corrected && frame.elite[row] >= 0 ? run.corrected.spread[frame.elite[row]] : NaN;
      const known = Number.isFinite(value),
        colour = known ? scale.colour(value, spread) : scale.grey;
      const lost = after && layout.kind === "dots" && !run.corrected.kept[row];
      target.colour.set([...colour, passes(run, frame, row) ? (lost ? 0.12 : 1) : 0.07], 4 * tile);
      if (layout.kind === "dots") {
        target.place.set(
          after && known
            ? layout.place(run.corrected.descriptor, row * run.dims)
            : layout.place(frame.descriptor, row * run.dims),
          2 * tile,
        );
      } else if (layout.kind === "profile") {
        const shown = known || !showsFitness() ? value : frame.fitness[row];
        target.place.set([0, Number.isFinite(shown) ? Math.max(0, Math.min(1, this.height(shown))) : 0], 2 * tile);
      }
    }
    return target;
  }

  /** The height of a bar. A height of 0 is the lowest value, or 0 if that is lower. @param {number} value */
  height(value) {
    const { low, high } = this.range();
    return (value - low) / (high - low || 1);
  }

  /** The values at the bottom and the top of a profile. */
  range() {
    const scale = this.scale();
    if (scale.key === "operator") return { low: -1, high: HEADER.operators.length };
    const low = Math.min(0, scale.least);
    return { low, high: scale.most > low ? scale.most + 0.08 * (scale.most - low) : low + 1 };
  }

  step() {
    const done =
      still.matches || this.from === this.target ? 1 : Math.min(1, (performance.now() - this.begun) / MOTION);
    const eased = done * done * (3 - 2 * done),
      { from, target } = this;
    if (done === 1) this.now = target;
    else {
      const now = new Target(target.rows.length);
      now.rows = target.rows;
      for (let at = 0; at < target.colour.length; at += 4) {
        const [was, is] = [from.colour[at + 3], target.colour[at + 3]];
        now.colour[at + 3] = was + (is - was) * eased;
        for (let part = at; part < at + 3; part++) {
          // a colour that comes or goes does not pass through black
          now.colour[part] =
            was === 0
              ? target.colour[part]
              : is === 0
                ? from.colour[part]
                : from.colour[part] + (target.colour[part] - from.colour[part]) * eased;
        }
      }
      for (let at = 0; at < target.place.length; at++)
        now.place[at] = from.place[at] + (target.place[at] - from.place[at]) * eased;
      this.now = now;
    }
    const wanted = state.view === "difference" && this.frame === this.run.end ? 1 : 0;
    const passing = this.arrowsFrom && state.view === "corrected" && this.from.rows !== this.target.rows;
    this.arrows = [wanted || passing ? eased : 0, wanted ? 1 : passing ? Math.sin(Math.PI * done) : 0];
    this.picture.region = null;
    this.paint();
    this.moving = done < 1;
    if (this.moving) requestAnimationFrame(() => this.step());
  }

  /** From the unit square to the screen. @param {number} x @param {number} y @returns {[number, number]} */
  toScreen(x, y) {
    const [zoom, cx, cy] = state.zoom,
      { plot } = this;
    return [plot.x + ((x - cx) * zoom + 0.5) * plot.w, plot.y + (0.5 - (y - cy) * zoom) * plot.h];
  }

  /** @param {number} px @param {number} py @returns {[number, number]} */
  toUnit(px, py) {
    const [zoom, cx, cy] = state.zoom,
      { plot } = this;
    return [cx + ((px - plot.x) / plot.w - 0.5) / zoom, cy - ((py - plot.y) / plot.h - 0.5) / zoom];
  }

  paint() {
    if (!this.layout || !this.plot.w) return;
    const context = /** @type {CanvasRenderingContext2D} */ (this.ground.getContext("2d"));
    const { plot, ratio } = this,
      [zoom, cx, cy] = state.zoom,
      half = 0.5 / zoom;
    const seen = [
      Math.max(0, cx - half),
      Math.max(0, cy - half),
      Math.min(1, cx + half),
      Math.min(1, cy + half),
    ];
    const { region } = this.picture;
    const covered =
      region &&
      seen[0] >= region.left &&
      seen[1] >= region.bottom &&
      seen[2] <= region.right &&
      seen[3] <= region.top;
    if (!region || !covered || (region.zoom !== zoom && !this.zooming)) this.picture.render(this, seen);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.ground.width, this.ground.height);
    context.save();
    context.beginPath();
    context.rect(plot.x * ratio, plot.y * ratio, plot.w * ratio, plot.h * ratio);
    context.clip();
    this.picture.draw(this, context);
    context.restore();
    this.paintAbove();
  }

  /** Draws tiles, those of one colour at once. @param {CanvasRenderingContext2D} context
   * @param {{x: (x: number) => number, y: (y: number) => number}} place @param {number[]} window @param {number} ratio */
  drawTiles(context, place, window, ratio) {
    const { layout, now, plot } = this,
      radius = this.radius() * ratio;
    if (layout.kind === "dots") {
      const [wide, high] = [plot.w, plot.h].map((side) => this.radius() / (side * state.zoom[0]));
      for (let tile = now.rows.length - 1; tile >= 0; tile--) {
        const [x, y] = [now.place[2 * tile], now.place[2 * tile + 1]];
        if (x < window[0] - wide || x > window[2] + wide || y < window[1] - high || y > window[3] + high)
          continue;
        context.beginPath();
        context.arc(place.x(x), place.y(y), radius, 0, 7);
        context.fillStyle = css(now.colour.subarray(4 * tile), now.colour[4 * tile + 3]);
        context.fill();
      }
      return;
    }
    /** @type {Map<number, number[]>} */
    const groups = new Map();
    for (let tile = 0; tile < now.rows.length; tile++) {
      const at = 4 * tile,
        alpha = now.colour[at + 3];
      if (alpha < 0.01 || !this.within(tile, window)) continue;
      const key =
        (Math.round(now.colour[at]) * 65536 +
          Math.round(now.colour[at + 1]) * 256 +
          Math.round(now.colour[at + 2])) *
          32 +
        Math.round(31 * alpha);
      const group = groups.get(key);
      if (group) group.push(tile);
      else groups.set(key, [tile]);
    }
    const size = Math.sqrt((plot.w * plot.h) / now.rows.length) * state.zoom[0]; // of a tile, in pixels
    const fine = layout.kind === "cells",
      apart = fine && size > 16; // with a gap between them
    context.lineJoin = "round";
    if (fine && size > 9) {
      // empty cells are drawn faintly
      context.beginPath();
      for (let tile = 0; tile < now.rows.length; tile++)
        if (now.colour[4 * tile + 3] < 0.5 && this.within(tile, window)) this.trace(context, tile, place);
      context.strokeStyle = dark() ? "#ffffff12" : "#0000000f";
      context.lineWidth = ratio;
      context.stroke();
    }
    if (layout.kind === "nested") {
      const [across, up] = layout.shape,
        room = GAP / 3;
      context.fillStyle = dark() ? "#ffffff0a" : "#00000008";
      for (let block = 0; block < across * up; block++) {
        const x = ((block % across) + room) / across,
          y = (Math.floor(block / across) + room) / up,
          w = (1 - 2 * room) / across,
          h = (1 - 2 * room) / up;
        context.fillRect(
          place.x(x),
          place.y(y + h),
          place.x(x + w) - place.x(x),
          place.y(y) - place.y(y + h),
        );
      }
    }
    for (const [key, tiles] of groups) {
      const colour = Math.floor(key / 32),
        alpha = (key % 32) / 31;
      context.beginPath();
      for (const tile of tiles) this.trace(context, tile, place);
      context.fillStyle = context.strokeStyle = css([colour >> 16, (colour >> 8) & 255, colour & 255], alpha);
      context.fill();
      if (apart) {
        context.strokeStyle = ink("paper");
        context.lineWidth = Math.min(1.6, size / 22) * ratio;
        context.stroke();
      } else if (fine && alpha === 1) {
        // closes the gaps between antialiased edges
        context.lineWidth = 0.8;
        context.stroke();
      }
    }
  }

  radius() {
    return (
      Math.max(2.2, Math.min(9, 0.42 * Math.sqrt((this.plot.w * this.plot.h) / (this.now.rows.length + 1)))) *
      Math.min(3, state.zoom[0] ** 0.5)
    );
  }

  /** Whether a tile may be visible. @param {number} tile @param {number[]} window */
  within(tile, window) {
    const { layout } = this,
      far = 3 / Math.sqrt(layout.tiles);
    if (layout.kind === "profile") return layout.right[tile] >= window[0] && layout.left[tile] <= window[2];
    const x = layout.centres[2 * tile],
      y = layout.centres[2 * tile + 1];
    return x > window[0] - far && x < window[2] + far && y > window[1] - far && y < window[3] + far;
  }

  /** Adds a tile's outline to the path. @param {any} path @param {number} tile
   * @param {{x: (x: number) => number, y: (y: number) => number}} place */
  trace(path, tile, place) {
    const { layout } = this;
    if (layout.kind === "profile") {
      const zero = this.height(0),
        height = this.now.place[2 * tile + 1],
        x0 = place.x(layout.left[tile]),
        x1 = place.x(layout.right[tile]);
      const gap = x1 - x0 > 4 ? 0.5 : 0,
        y0 = place.y(Math.max(0, Math.min(zero, 1))),
        y1 = place.y(height);
      path.moveTo(x0 + gap, y0);
      path.lineTo(x0 + gap, y1);
      path.lineTo(x1 - gap, y1);
      path.lineTo(x1 - gap, y0);
      path.closePath();
      return;
    }
    for (let corner = layout.starts[tile]; corner < layout.starts[tile + 1]; corner++) {
      const x = place.x(layout.corners[2 * corner]),
        y = place.y(layout.corners[2 * corner + 1]);
      if (corner === layout.starts[tile]) path.moveTo(x, y);
      else path.lineTo(x, y);
    }
    path.closePath();
  }

  paintAbove() {
    const context = /** @type {CanvasRenderingContext2D} */ (this.above.getContext("2d"));
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.box.clientWidth, this.box.clientHeight);
    drawAxes(this, context);
    context.save();
    context.beginPath();
    context.rect(this.plot.x - 1, this.plot.y - 1, this.plot.w + 2, this.plot.h + 2);
    context.clip();
    drawArrows(this, context);
    state.pins.forEach(
      (pin, index) => pin.run === this.run.index && drawRing(this, context, pin.elite, LETTERS[index]),
    );
    if (state.chosen.run === this.run.index) drawRing(this, context, state.chosen.elite, "", true);
    else if (state.hover === null) drawRing(this, context, this.counterpart(state.chosen), "", false);
    const { hover } = state;
    if (hover?.run === this.run.index && hover.tile >= 0) drawOutline(this, context, hover.tile, 2);
    else if (hover && hover.elite >= 0) drawRing(this, context, this.counterpart(hover), "", false);
    context.restore();
  }

  /** The elite of this run that is nearest to one of another run; -1 if their descriptors differ. @param {Chosen} other */
  counterpart(other) {
    if (other.run === this.run.index) return other.elite;
    const run = runs[other.run];
    if (
      run.header.names.join() !== this.run.header.names.join() ||
      run.header.bounds.join() !== this.run.header.bounds.join()
    )
      return -1;
    return this.run.nearest(run.descriptor(other.elite));
  }

  /** The tile in which an elite is now; -1 if it is in none. @param {number} elite */
  tileOf(elite) {
    return elite < 0 ? -1 : this.now.rows.findIndex((row) => row >= 0 && this.frame.elite[row] === elite);
  }

  /** The middle of a tile on the screen. @param {number} tile */
  middle(tile) {
    const { layout, now } = this;
    if (layout.kind === "dots") return this.toScreen(now.place[2 * tile], now.place[2 * tile + 1]);
    if (layout.kind === "profile") return this.toScreen(layout.centres[2 * tile], now.place[2 * tile + 1]);
    return this.toScreen(layout.centres[2 * tile], layout.centres[2 * tile + 1]);
  }

  /** The tile and the elite at a position on the screen. @param {number} px @param {number} py @returns {Hover | null} */
  pick(px, py) {
    const { plot, layout, now } = this;
    if (px < plot.x || px > plot.x + plot.w || py < plot.y || py > plot.y + plot.h) return null;
    let tile = -1;
    if (layout.kind === "dots") {
      let least = (this.radius() + 8) ** 2;
      for (let dot = 0; dot < now.rows.length; dot++) {
        const [x, y] = this.toScreen(now.place[2 * dot], now.place[2 * dot + 1]),
          distance = (x - px) ** 2 + (y - py) ** 2;
        if (distance < least && now.colour[4 * dot + 3] > 0.1) [tile, least] = [dot, distance];
      }
    } else tile = layout.at(...this.toUnit(px, py));
    if (tile < 0) return null;
    const row = now.rows[tile];
    return { run: this.run.index, row, elite: row < 0 ? -1 : this.frame.elite[row], tile, x: px, y: py };
  }

  /** @param {number} factor @param {number} px @param {number} py */
  zoomAt(factor, px, py) {
    const [zoom] = state.zoom,
      next = Math.max(1, Math.min(MAX_ZOOM, zoom * factor)),
      [x, y] = this.toUnit(px, py);
    const shift = 1 - zoom / next;
    setZoom(next, state.zoom[1] + (x - state.zoom[1]) * shift, state.zoom[2] + (y - state.zoom[2]) * shift);
    views.forEach((view) => view.settle());
  }

  /** Sets whether a vertical swipe scrolls the page, not the map. @param {boolean} allowed */
  allowScrolling(allowed) {
    this.box.style.touchAction = allowed ? "pan-y" : "none";
  }

  /** While the zoom changes, the last picture is stretched; it is redrawn afterwards. */
  settle() {
    this.zooming = true;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.zooming = false;
      this.paint();
    }, 120);
  }

  /** The elite next to the chosen one in a direction of the screen. @param {number} dx @param {number} dy */
  neighbour(dx, dy) {
    const from = this.tileOf(state.chosen.elite);
    if (from < 0) return 0;
    const [x0, y0] = this.middle(from);
    let best = state.chosen.elite,
      least = Infinity;
    this.now.rows.forEach((row, tile) => {
      if (row < 0 || tile === from || this.frame.elite[row] < 0) return;
      const [x, y] = this.middle(tile),
        along = (x - x0) * dx + (y - y0) * dy;
      const across = this.layout.kind === "profile" ? 0 : Math.abs((x - x0) * dy + (y - y0) * dx);
      if (along > 0.5 && across <= 1.2 * along + 1 && along + 2 * across < least)
        [best, least] = [this.frame.elite[row], along + 2 * across];
    });
    return best;
  }
}
