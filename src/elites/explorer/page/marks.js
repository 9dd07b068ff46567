// Marks above the tiles of a map: axes, arrows, rings.
"use strict";

const APART = 44; // px between arrows

/** @param {MapView} view @param {CanvasRenderingContext2D} context */
function drawAxes(view, context) {
  const { plot, layout, run } = view,
    soft = ink("soft");
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = soft;
  context.strokeStyle = dark() ? "#ffffff22" : "#00000018";
  context.lineWidth = 1;
  context.strokeRect(plot.x - 0.5, plot.y - 0.5, plot.w + 1, plot.h + 1);
  const [x0, y0] = view.toUnit(plot.x, plot.y + plot.h),
    [x1, y1] = view.toUnit(plot.x + plot.w, plot.y);
  const axes = layout.kind === "nested" || layout.kind === "dots" ? layout.axes : [0, 1];
  const value = (/** @type {number} */ unit, /** @type {number} */ axis) => {
    const [low, high] = run.header.bounds[axis];
    return low + (high - low) * unit;
  };
  context.textAlign = "center";
  const across = ticks(value(x0, axes[0]), value(x1, axes[0]), plot.w / 110);
  for (const at of across) {
    const x = view.toScreen(run.unit(at, axes[0]), 0)[0];
    if (x >= plot.x - 1 && x <= plot.x + plot.w + 1)
      context.fillText(tickText(at, across), x, plot.y + plot.h + 16);
  }
  context.textAlign = "right";
  const profile = layout.kind === "profile",
    { low, high } = view.range();
  const unitOf = (/** @type {number} */ at) => (profile ? (at - low) / (high - low) : run.unit(at, axes[1]));
  const [from, to] = profile
    ? [low + (high - low) * y0, low + (high - low) * y1]
    : [value(y0, axes[1]), value(y1, axes[1])];
  const up = profile && view.scale().key === "operator" ? [] : ticks(from, to, plot.h / 70);
  for (const at of up) {
    const y = view.toScreen(0, unitOf(at))[1];
    if (y >= plot.y - 1 && y <= plot.y + plot.h + 1) context.fillText(tickText(at, up), plot.x - 8, y + 4);
  }
  context.textAlign = "center";
  const { labels, names } = run.header,
    inner = layout.kind === "nested" ? axes.slice(2) : [];
  const label = (/** @type {string} */ text, /** @type {number | undefined} */ within) =>
    fitText(context, within === undefined ? text : `${text}; within a block: ${names[within]}`, plot.w);
  context.fillText(label(labels[axes[0]], inner[0]), plot.x + plot.w / 2, plot.y + plot.h + 34);
  context.save();
  context.translate(plot.x - 42, plot.y + plot.h / 2);
  context.rotate(-Math.PI / 2);
  const key = state.view === "difference" ? "change of fitness" : QUANTITIES[state.colour].label;
  context.fillText(profile ? key : fitText(context, label(labels[axes[1]], inner[1]), plot.h), 0, 0);
  context.restore();
}

/** Arrows from the recorded descriptors of elites to their mean descriptors. @param {MapView} view @param {CanvasRenderingContext2D} context */
function drawArrows(view, context) {
  const { run, layout } = view,
    after = run.corrected;
  if (!after || view.frame !== run.end) return;
  const [grown, seen] = view.arrows;
  if (grown && seen) {
    context.strokeStyle = context.fillStyle = dark()
      ? `rgba(255,255,255,${0.55 * seen})`
      : `rgba(20,20,24,${0.55 * seen})`;
    context.lineWidth = 1;
    for (const elite of selectArrows(view)) drawArrow(view, context, elite, grown, 5);
  }
  const { hover, chosen } = state;
  const one =
    hover?.run === run.index && hover.elite >= 0 ? hover.elite : chosen.run === run.index ? chosen.elite : -1;
  if (one >= 0 && Number.isFinite(after.mean[one]) && layout.kind !== "dots") {
    context.strokeStyle = context.fillStyle = ink("paper");
    context.lineWidth = 4.5;
    drawArrow(view, context, one, 1);
    context.strokeStyle = context.fillStyle = ink("mark");
    context.lineWidth = 1.8;
    drawArrow(view, context, one, 1);
  }
}

/** Elites that leave their cell: the fittest of each square of the screen, so that zooming in shows more. @param {MapView} view */
function selectArrows(view) {
  const { run, layout, plot } = view,
    after = run.corrected,
    squares = new Map();
  for (let elite = 0; elite < run.count; elite++) {
    const left = after.cell[elite] !== run.elites.cell[elite] && after.cell[elite] >= 0;
    if (!left || !passes(run, run.end, elite)) continue;
    const [x, y] = view.toScreen(...layout.place(run.elites.descriptor, elite * run.dims));
    if (x < plot.x || x > plot.x + plot.w) continue;
    const square = `${Math.floor(x / APART)} ${layout.kind === "profile" ? 0 : Math.floor(y / APART)}`;
    const best = squares.get(square);
    if (best === undefined || run.elites.fitness[elite] > run.elites.fitness[best]) squares.set(square, elite);
  }
  return squares.values();
}

/** @param {MapView} view @param {CanvasRenderingContext2D} context @param {number} elite @param {number} grown @param {number} size of the head */
function drawArrow(view, context, elite, grown, size = 8) {
  const { run, layout } = view,
    at = elite * run.dims,
    after = run.corrected;
  const begin = layout.place(run.elites.descriptor, at),
    end = layout.place(after.descriptor, at);
  if (layout.kind === "profile") {
    const value = readValue(run, run.end, elite, view.scale().key, "recorded");
    const ends = showsFitness() ? [run.elites.fitness[elite], after.mean[elite]] : [value, value];
    if (!ends.every(Number.isFinite)) return;
    [begin[1], end[1]] = ends.map((end) => view.height(end));
  }
  const [x0, y0] = view.toScreen(...begin),
    [x, y] = view.toScreen(...end);
  const x1 = x0 + (x - x0) * grown,
    y1 = y0 + (y - y0) * grown,
    length = Math.hypot(x1 - x0, y1 - y0);
  if (length < 2) return;
  const head = Math.min(size, 0.45 * length),
    dx = (x1 - x0) / length,
    dy = (y1 - y0) / length;
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1 - dx * head, y1 - dy * head);
  context.stroke();
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 - dx * head - dy * head * 0.42, y1 - dy * head + dx * head * 0.42);
  context.lineTo(x1 - dx * head + dy * head * 0.42, y1 - dy * head - dx * head * 0.42);
  context.fill();
}

/** A ring that is visible on every colour. @param {MapView} view @param {CanvasRenderingContext2D} context @param {number} elite @param {string} letter
 * @param {boolean} strong */
function drawRing(view, context, elite, letter, strong = true) {
  const tile = view.tileOf(elite);
  if (tile < 0) return;
  drawOutline(view, context, tile, strong ? 3 : 1.5);
  if (!letter) return;
  const [x, y] = view.middle(tile);
  context.beginPath();
  context.arc(x, y, 9, 0, 7);
  context.fillStyle = ink("ink");
  context.fill();
  context.fillStyle = ink("paper");
  context.font = "650 12px system-ui, sans-serif";
  context.textAlign = "center";
  context.fillText(letter, x, y + 4.3);
}

/** @param {MapView} view @param {CanvasRenderingContext2D} context @param {number} tile @param {number} width */
function drawOutline(view, context, tile, width) {
  if (view.layout.kind === "profile") {
    drawPointer(view, context, tile, width);
    return;
  }
  context.beginPath();
  if (view.layout.kind === "dots") context.arc(...view.middle(tile), view.radius() + 1, 0, 7);
  else view.trace(context, tile, { x: (x) => view.toScreen(x, 0)[0], y: (y) => view.toScreen(0, y)[1] });
  context.lineJoin = "round";
  context.strokeStyle = ink("paper");
  context.lineWidth = width + 3;
  context.stroke();
  context.strokeStyle = ink("mark");
  context.lineWidth = width;
  context.stroke();
}

/** A triangle above a bar, which may be too narrow for a ring. @param {MapView} view @param {CanvasRenderingContext2D} context @param {number} tile
 * @param {number} width */
function drawPointer(view, context, tile, width) {
  const [x, top] = view.middle(tile),
    size = 4 + width,
    y = Math.max(top - 2, view.plot.y + 1.5 * size);
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x - size, y - 1.5 * size);
  context.lineTo(x + size, y - 1.5 * size);
  context.closePath();
  context.fillStyle = ink("mark");
  context.strokeStyle = ink("paper");
  context.lineWidth = 1.5;
  context.fill();
  context.stroke();
}

/** Text that is cut where there is no room. @param {CanvasRenderingContext2D} context @param {string} text @param {number} room */
function fitText(context, text, room) {
  let cut = text;
  while (cut.length > 4 && context.measureText(cut).width > room) cut = `${cut.slice(0, -2)}…`;
  return cut;
}
