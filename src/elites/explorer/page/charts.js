// Small charts: curves, histograms, clouds of descriptors, parallel axes.
"use strict";

/** The progress of all runs: a chart per metric. @param {HTMLElement} parent */
function drawCurves(parent) {
  const labels = [
    ...new Set(runs.flatMap((run) => run.header.curves.map((/** @type {any} */ curve) => curve.label))),
  ];
  if (!labels.length) {
    parent.replaceChildren(
      element("p", { class: "soft" }, "There is no log of the progress of this archive."),
    );
    return;
  }
  const row = element("div", { class: "row" });
  parent.replaceChildren(row);
  labels.slice(0, 4).forEach((label) => {
    const place = element("div");
    row.append(place);
    drawCurve(place, label);
  });
}

const STROKES = ["var(--ink)", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c"]; // of runs

/** @param {HTMLElement} place @param {string} label */
async function drawCurve(place, label) {
  const lines = await Promise.all(
    runs.map(async (run) => {
      const curve = run.header.curves.find((/** @type {any} */ one) => one.label === label);
      if (!curve) return null;
      const [x, y] = await Promise.all([numbers(curve.evaluations), numbers(curve.values)]);
      const after = curve.corrected ? await unpack(curve.corrected) : null;
      return { run, x, y, after, percent: curve.percent };
    }),
  );
  const drawnLines = lines.filter((line) => line !== null);
  const width = Math.max(180, place.clientWidth || 300),
    height = 136,
    pad = { l: 52, r: 14, t: 20, b: 20 };
  const ends = drawnLines
    .flatMap((line) => [...line.y, ...(line.after?.values ?? [])])
    .filter(Number.isFinite);
  const top = Math.max(...ends),
    bottom = Math.min(0, ...ends),
    far = Math.max(...drawnLines.map((line) => line.x[line.x.length - 1]));
  const sx = (/** @type {number} */ x) => pad.l + ((width - pad.l - pad.r) * x) / far;
  const sy = (/** @type {number} */ y) =>
    height - pad.b - ((height - pad.t - pad.b) * (y - bottom)) / (top - bottom || 1);
  const picture = svgElement("svg", { class: "chart", width, height, role: "img", "aria-label": label });
  const percents = drawnLines.some((line) => line.percent),
    up = ticks(bottom, top, 3),
    across = ticks(0, far, 3);
  picture.append(
    svgElement("text", { x: pad.l, y: 11 }, label),
    ...up.map((at) =>
      svgElement(
        "g",
        {},
        svgElement("line", { x1: pad.l, x2: width - pad.r, y1: sy(at), y2: sy(at), stroke: "var(--faint)" }),
        svgElement(
          "text",
          { x: pad.l - 6, y: sy(at) + 4, "text-anchor": "end" },
          percents ? percent(at) : tickText(at, up),
        ),
      ),
    ),
    ...across
      .slice(1)
      .map((at) =>
        svgElement("text", { x: sx(at), y: height - 4, "text-anchor": "middle" }, tickText(at, across)),
      ),
  );
  for (const { run, x, y, after } of drawnLines) {
    const path = (/** @type {Numbers} */ xs, /** @type {Numbers} */ ys) =>
      Array.from(xs, (at, index) =>
        Number.isFinite(ys[index]) ? `${sx(at).toFixed(1)},${sy(ys[index]).toFixed(1)}` : "",
      )
        .filter(Boolean)
        .join(" ");
    const stroke = STROKES[run.index % STROKES.length];
    picture.append(svgElement("polyline", { points: path(x, y), fill: "none", stroke, "stroke-width": 1.6 }));
    if (after)
      picture.append(
        svgElement("polyline", {
          points: path(after.evaluations, after.values),
          fill: "none",
          stroke,
          "stroke-width": 1.4,
          "stroke-dasharray": "4 3",
        }),
      );
  }
  if (state.moment !== null) {
    const x = sx(Math.min(far, state.moment));
    picture.append(
      svgElement("line", { x1: x, x2: x, y1: pad.t, y2: height - pad.b, stroke: "var(--soft)" }),
    );
  }
  place.replaceChildren(picture);
}

/** The distribution of the fitness of an elite's replications. @param {number[]} samples @param {number} recorded @param {number} mean */
function histogram(samples, recorded, mean) {
  const values = samples.filter(Number.isFinite),
    width = 200,
    height = 92,
    floor = height - 18;
  const low = Math.min(recorded, ...values),
    high = Math.max(recorded, ...values),
    bins = 24;
  const sx = (/** @type {number} */ value) =>
    4 + (width - 8) * (high > low ? (value - low) / (high - low) : 0.5);
  const counts = new Array(bins).fill(0);
  for (const value of values)
    counts[Math.min(bins - 1, Math.floor(bins * (high > low ? (value - low) / (high - low) : 0.5)))]++;
  const most = Math.max(1, ...counts),
    wide = (width - 8) / bins;
  const mark = (/** @type {number} */ value, /** @type {string} */ dash) =>
    svgElement("line", {
      x1: sx(value),
      x2: sx(value),
      y1: 16,
      y2: floor,
      stroke: "var(--ink)",
      "stroke-width": 1.5,
      "stroke-dasharray": dash,
    });
  const anchor = (/** @type {number} */ value) =>
    sx(value) < 40 ? "start" : sx(value) > width - 40 ? "end" : "middle";
  const close = Math.abs(sx(recorded) - sx(mean)) < 70;
  return svgElement(
    "svg",
    {
      class: "chart",
      viewBox: `0 0 ${width} ${height}`,
      width: "100%",
      role: "img",
      "aria-label": `fitness of ${values.length} replications`,
    },
    ...counts.map((count, bin) =>
      svgElement("rect", {
        x: 4 + bin * wide + 0.5,
        width: wide - 1,
        y: floor - ((floor - 22) * count) / most,
        height: ((floor - 22) * count) / most,
        fill: "var(--soft)",
        opacity: 0.55,
        rx: 1,
      }),
    ),
    mark(mean, "3 2"),
    mark(recorded, ""),
    svgElement("text", { x: sx(recorded), y: 11, "text-anchor": anchor(recorded) }, "recorded"),
    close ? null : svgElement("text", { x: sx(mean), y: 11, "text-anchor": anchor(mean) }, "mean"),
    svgElement("text", { x: 4, y: height - 4 }, short(low)),
    svgElement("text", { x: width - 4, y: height - 4, "text-anchor": "end" }, high > low ? short(high) : ""),
  );
}

/** The replications of an elite in descriptor space, along the first one or two axes shown. @param {Run} run @param {number} elite
 * @param {number[][]} places */
function cloudChart(run, elite, places) {
  const size = 130,
    pad = 6,
    span = size - 2 * pad,
    axes = run.dims === 1 ? [0, 0] : (state.axes.length >= 2 ? state.axes : [0, 1]).slice(0, 2);
  const at = (/** @type {number[]} */ unit, /** @type {number} */ row) =>
    /** @type {[number, number]} */ ([
      pad + span * unit[axes[0]],
      run.dims === 1 ? size / 2 + ((row * 7919) % 41) - 20 : size - pad - span * unit[axes[1]],
    ]);
  const unit = (/** @type {number[]} */ values) => values.map((value, axis) => run.unit(value, axis));
  const [fx, fy] = at(unit(run.descriptor(elite)), 20),
    [mx, my] = at(unit(run.descriptor(elite, true)), 20);
  return svgElement(
    "svg",
    {
      class: "chart",
      viewBox: `0 0 ${size} ${size}`,
      width: "100%",
      role: "img",
      "aria-label": "descriptors of the replications",
    },
    svgElement("rect", {
      x: pad,
      y: pad,
      width: span,
      height: span,
      fill: "none",
      stroke: "var(--faint)",
      rx: 3,
    }),
    ...places
      .filter((place) => place.every(Number.isFinite))
      .map((place, row) => {
        const [cx, cy] = at(place, row);
        return svgElement("circle", { cx, cy, r: 1.7, fill: "var(--soft)", opacity: 0.6 });
      }),
    svgElement("line", { x1: fx, y1: fy, x2: mx, y2: my, stroke: "var(--ink)" }),
    svgElement("circle", { cx: fx, cy: fy, r: 3.4, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5 }),
    svgElement("circle", { cx: mx, cy: my, r: 3, fill: "var(--ink)" }),
  );
}

/** The quantities with axes and columns. @param {Run} run @returns {{key: string, label: string}[]} */
function listColumns(run) {
  const keys = [
    "fitness",
    ...(run.corrected ? ["mean", "loss", "spread", "stays"] : []),
    "operator",
    "generation",
    "age",
  ];
  return [
    ...keys.map((key) => ({ key, label: QUANTITIES[key].label })),
    ...run.header.names.map((/** @type {string} */ name, /** @type {number} */ axis) => ({
      key: `d${axis}`,
      label: name,
    })),
  ];
}

/** @param {Run} run @param {number} elite @param {string} key */
function columnValue(run, elite, key) {
  const axis = axisOf(key);
  return axis >= 0
    ? run.elites.descriptor[elite * run.dims + axis]
    : readValue(run, run.end, elite, key, "recorded");
}

/** A line per elite through an axis per quantity. Dragging along an axis filters by a range. @param {HTMLElement} parent */
function drawParallel(parent) {
  const run = runs[state.chosen.run],
    columns = listColumns(run).filter(({ key }) => key !== "operator");
  const pad = { x: 60, top: 26, bottom: 18 },
    width = Math.max(parent.clientWidth, 2 * pad.x + 66 * (columns.length - 1)), // scrolls where there is less room
    height = Math.max(140, parent.clientHeight - 8);
  const ratio = window.devicePixelRatio || 1;
  const canvas = /** @type {HTMLCanvasElement} */ (
    element("canvas", {
      width: width * ratio,
      height: height * ratio,
      style: { width: `${width}px`, height: `${height}px`, touchAction: "pan-x", cursor: "ns-resize" },
    })
  );
  parent.replaceChildren(element("div", { class: "wide" }, canvas));
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const ranges = columns.map(({ key }) => findExtent(run, key));
  const x = (/** @type {number} */ column) =>
    pad.x + ((width - 2 * pad.x) * column) / Math.max(1, columns.length - 1);
  const y = (/** @type {number} */ column, /** @type {number} */ value) => {
    const [low, high] = ranges[column];
    return (
      height -
      pad.bottom -
      (height - pad.top - pad.bottom) * (high > low ? (value - low) / (high - low) : 0.5)
    );
  };
  const line = (/** @type {number} */ elite) => {
    context.beginPath();
    columns.forEach(({ key }, column) => {
      const value = columnValue(run, elite, key);
      if (Number.isFinite(value)) context.lineTo(x(column), y(column, value));
    });
    context.stroke();
  };
  const paint = () => {
    const scale = currentScale();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.lineWidth = 0.8;
    for (const [inside, alpha] of /** @type {[boolean, number][]} */ ([
      [false, 0.04],
      [true, Math.min(0.7, 120 / run.count + 0.06)],
    ])) {
      for (let elite = run.count - 1; elite >= 0; elite--) {
        if (passes(run, run.end, elite) !== inside) continue;
        const value = readValue(run, run.end, elite, scale.key, "recorded");
        const colour = Number.isFinite(value)
          ? scale.colour(value, run.corrected?.spread[elite])
          : scale.grey;
        context.strokeStyle = css(colour, alpha);
        line(elite);
      }
    }
    context.strokeStyle = ink("mark");
    context.lineWidth = 2.2;
    line(state.hover?.run === run.index && state.hover.elite >= 0 ? state.hover.elite : state.chosen.elite);
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    columns.forEach(({ key, label }, column) => {
      context.strokeStyle = ink("soft");
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x(column), pad.top);
      context.lineTo(x(column), height - pad.bottom);
      context.stroke();
      context.fillStyle = ink("soft");
      context.fillText(fitText(context, label, (width - 2 * pad.x) / columns.length + 6), x(column), 11);
      context.fillText(short(ranges[column][1]), x(column), 22);
      context.fillText(short(ranges[column][0]), x(column), height - 4);
      const filter = state.filters[key];
      if (!filter) return;
      context.fillStyle = dark() ? "#ffffff30" : "#00000022";
      const [bottom, top] = filter.map((end) =>
        Math.max(pad.top, Math.min(height - pad.bottom, y(column, end))),
      );
      context.fillRect(x(column) - 6, top, 12, Math.max(2, bottom - top));
    });
  };
  /** @type {{column: number, start: number} | null} */
  let drag = null;
  const valueAt = (/** @type {number} */ column, /** @type {number} */ py) => {
    const [low, high] = ranges[column];
    return (
      low +
      (high - low) * Math.max(0, Math.min(1, (height - pad.bottom - py) / (height - pad.top - pad.bottom)))
    );
  };
  canvas.addEventListener("pointerdown", (event) => {
    const column = columns.findIndex((_, at) => Math.abs(x(at) - event.offsetX) < 26);
    if (column < 0) return;
    drag = { column, start: event.offsetY };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag || Math.abs(event.offsetY - drag.start) < 3) return;
    const range = [drag.start, event.offsetY]
      .map((py) => valueAt(/** @type {any} */ (drag).column, py))
      .sort((one, other) => one - other);
    setFilter(columns[drag.column].key, /** @type {[number, number]} */ (range));
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && Math.abs(event.offsetY - drag.start) < 3) setFilter(columns[drag.column].key, null);
    drag = null;
  });
  paint();
  return paint;
}
