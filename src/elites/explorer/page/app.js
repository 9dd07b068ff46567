// The page: its parts, and what is redrawn when the state changes.
"use strict";

/** @type {Run[]} */
let runs = [];
/** @type {MapView[]} */
let views = [];
/** @type {Map<string, Scale>} */
const scales = new Map();
const TABS = { progress: "progress", table: "table", axes: "parallel axes", pins: "compare" };
const VIEWS = { recorded: "recorded", corrected: "corrected", difference: "difference" };
const KEYS = [
  ["← ↑ → ↓", "the next elite in that direction"],
  ["p", "pin, or unpin"],
  ["1, 2, 3", "recorded, corrected, difference"],
  ["c", "the next colour"],
  ["space", "play the archive's growth"],
  ["+, −, 0", "zoom; all"],
  ["/", "go to a cell or a descriptor"],
  ["drag, wheel", "move, zoom; two fingers do both"],
  ["shift and click", "pin a cell"],
  ["Esc", "remove all filters"],
];
/** @type {(() => void) | undefined} */
let repaintDetail;

/** The scale of the current view. */
function currentScale() {
  const key = state.view === "difference" ? "change" : state.colour,
    name = `${key} ${dark()}`;
  let scale = scales.get(name);
  if (!scale) scales.set(name, (scale = new Scale(runs, key)));
  return scale;
}

/** @param {number} zoom @param {number} x @param {number} y */
function setZoom(zoom, x, y) {
  const half = 0.5 / zoom,
    within = (/** @type {number} */ at) =>
      Math.max(Math.min(half, 0.5) - 0.25 / zoom, Math.min(1 - half + 0.25 / zoom, at));
  change({ zoom: zoom === 1 && x === 0.5 && y === 0.5 ? [1, 0.5, 0.5] : [zoom, within(x), within(y)] });
}

/** @param {Chosen} chosen */
function togglePin(chosen) {
  const at = state.pins.findIndex((pin) => pin.run === chosen.run && pin.elite === chosen.elite);
  const pins =
    at >= 0 ? state.pins.filter((_, index) => index !== at) : [...state.pins.slice(-MAX_PINS + 1), chosen];
  change({ pins, ...(at < 0 ? { tab: "pins" } : {}) });
}

function applyTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.theme = state.theme || system;
  inks.clear();
}

function drawHeader() {
  const alike = runs.every((run) => run.header.task === runs[0].header.task);
  byId("about").textContent =
    runs.length === 1
      ? runs[0].header.summary
      : runs.map((run) => run.title).join(" · ") + (alike ? "" : ": different tasks, on one scale of fitness");
}

/** @param {HTMLElement} parent @param {Record<string, string>} choices @param {string} now @param {(key: string) => void} choose
 * @param {Record<string, string>} disabled reasons why choices are disabled */
function drawSegments(parent, choices, now, choose, disabled = {}) {
  parent.replaceChildren(
    ...Object.entries(choices).map(([key, label]) =>
      element(
        "button",
        {
          "aria-pressed": String(key === now),
          "data-key": key,
          title: disabled[key],
          "aria-disabled": disabled[key] ? "true" : null,
          onclick: () => choose(key),
        },
        label,
      ),
    ),
  );
}

function drawControls() {
  const corrected = runs.some((run) => run.corrected),
    why = runs[0].header.uncorrected_reason;
  /** @type {Record<string, string>} */
  const disabled = corrected ? {} : { corrected: why, difference: why };
  drawSegments(
    byId("views"),
    VIEWS,
    state.view,
    (key) => {
      if (corrected || key === "recorded") change({ view: key });
      else note(why);
    },
    disabled,
  );
  const select = byId("colours");
  select.replaceChildren(
    ...Object.entries(QUANTITIES)
      .filter(([, quantity]) => corrected || !quantity.corrected)
      .map(([key, { label }]) => element("option", { value: key, selected: key === state.colour }, label)),
  );
  select.value = state.colour;
  select.disabled = state.view === "difference";
  const kinds = listLayouts(runs[0].dims),
    layout = state.layout || kinds[0];
  byId("layouts-label").hidden = kinds.length < 2;
  byId("layouts").replaceChildren(
    ...kinds.map((kind) =>
      element("option", { value: kind }, LAYOUT_LABELS[/** @type {keyof typeof LAYOUT_LABELS} */ (kind)]),
    ),
  );
  byId("layouts").value = layout;
  drawAxesChoice(layout);
  drawSegments(byId("tabs"), TABS, state.tab, (key) => change({ tab: key }));
  byId("search").placeholder = `cell, or ${runs[0].header.names
    .map((/** @type {string} */ _, /** @type {number} */ axis) => (0.2 * (axis + 1)).toFixed(1))
    .slice(0, 3)
    .join(" ")}${runs[0].dims > 3 ? " …" : ""}`;
}

/** The choice of the dimension of each axis, if there are more than two. @param {string} layout */
function drawAxesChoice(layout) {
  const places =
    layout === "nested"
      ? ["across", "up", "within, across", "within, up"].slice(0, runs[0].dims)
      : layout === "dots" && runs[0].dims > 2
        ? ["across", "up"]
        : [];
  byId("axes-choice").replaceChildren(
    ...places.map((place, index) => {
      const select = /** @type {HTMLSelectElement} */ (
        element(
          "select",
          {
            "aria-label": `dimension ${place}`,
            title: place,
            onchange: (/** @type {any} */ event) => {
              const axes = [...state.axes],
                chosen = Number(event.target.value),
                other = axes.indexOf(chosen);
              if (other >= 0) axes[other] = axes[index];
              axes[index] = chosen;
              change({ axes });
            },
          },
          ...runs[0].header.names.map((/** @type {string} */ name, /** @type {number} */ axis) =>
            element("option", { value: axis }, name),
          ),
        )
      );
      select.value = String(state.axes[index]);
      return select;
    }),
  );
}

/** @param {string} text */
function note(text) {
  byId("note").textContent = text;
  byId("note").hidden = !text;
}

function drawMoment() {
  const last = lastMoment(runs),
    now = state.moment ?? last,
    cells = runs.map((run) => fixed(run.frame(state.moment).count)).join(" and ");
  const slider = byId("moment");
  slider.max = last;
  slider.step = Math.max(1, Math.round(last / 1000));
  if (document.activeElement !== slider || playing) slider.value = now;
  byId("moment-text").textContent =
    state.moment === null
      ? `${fixed(last)} evaluations`
      : `${fixed(now)} evaluations, ${cells} cells`;
  byId("moment-text").title = runs[0].moments.length
    ? "snapshots of the archive"
    : "no snapshots: shows when each final elite was found";
}

let playing = 0;
function togglePlay() {
  const last = lastMoment(runs);
  if (playing) {
    cancelAnimationFrame(playing);
    playing = 0;
    byId("play").textContent = "▶";
    return;
  }
  const start = state.moment === null ? 0 : state.moment,
    began = performance.now();
  byId("play").textContent = "❚❚";
  const tick = () => {
    const moment = start + (last * (performance.now() - began)) / 8000;
    if (moment >= last) {
      change({ moment: null });
      playing = 0;
      byId("play").textContent = "▶";
      return;
    }
    change({ moment: Math.round(moment) });
    playing = requestAnimationFrame(tick);
  };
  playing = requestAnimationFrame(tick);
}

function drawDetail() {
  const parent = byId("detail");
  repaintDetail = undefined;
  byId("lower").classList.toggle("tall", state.tab !== "progress");
  if (state.tab !== "pins") for (const stage of [...stages]) if (stage !== mainStage) stage.remove();
  if (state.tab === "progress") drawCurves(parent);
  else if (state.tab === "table") repaintDetail = drawTable(parent);
  else if (state.tab === "axes") repaintDetail = drawParallel(parent);
  else drawPins(parent);
}

function drawTip() {
  const tip = byId("tip"),
    { hover } = state;
  if (!hover || hover.tile < 0) {
    tip.hidden = true;
    return;
  }
  const view = /** @type {MapView} */ (views.find((one) => one.run.index === hover.run)),
    { run, frame } = view;
  /** @type {(string | Node)[]} */
  const lines = [];
  if (hover.row < 0) lines.push(element("div", { class: "soft" }, "empty"));
  else {
    const { row, elite } = hover,
      corrected = run.corrected && elite >= 0;
    lines.push(
      element(
        "div",
        {},
        `fitness ${short(frame.fitness[row])}`,
        corrected ? ` → ${short(run.corrected.mean[elite])} ± ${formatSpread(run.corrected.spread[elite])}` : "",
      ),
    );
    const key = state.view === "difference" ? "loss" : state.colour;
    if (!showsFitness()) {
      const value = readValue(run, frame, row, key, "recorded");
      const text =
        key === "operator"
          ? (HEADER.operators[value]?.name ?? "")
          : key === "stays"
            ? percent(value)
            : QUANTITIES[key].whole
              ? fixed(value)
              : short(value);
      lines.push(element("div", {}, `${QUANTITIES[key].label} ${text}`));
    }
    const place = frame.descriptor.slice(row * run.dims, (row + 1) * run.dims);
    lines.push(
      element("div", { class: "soft" }, run.placeText(place)),
      element("div", { class: "soft" }, `cell ${fixed(frame.cell[row])}`),
    );
  }
  tip.replaceChildren(...lines);
  tip.hidden = false;
  const { left, top } = view.box.getBoundingClientRect(),
    x = left + hover.x,
    y = top + hover.y;
  tip.style.left = `${Math.min(x + 16, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${y + 22 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 12 : y + 18}px`;
}

/** @param {Set<string>} keys */
function redraw(keys) {
  const any = (/** @type {string[]} */ ...names) => names.some((name) => keys.has(name));
  if (keys.has("theme")) applyTheme();
  if (any("view", "colour", "layout", "axes", "theme", "tab")) drawControls();
  if (keys.has("view")) {
    const unknown = state.view === "recorded" ? [] : runs.filter((run) => !run.corrected);
    note(unknown.map((run) => `${run.title}: ${run.header.uncorrected_reason}`).join(" "));
  }
  if (any("view", "colour", "layout", "axes", "filters", "theme")) views.forEach((view) => view.update());
  else if (keys.has("moment")) views.forEach((view) => view.update(!playing));
  else if (keys.has("zoom")) views.forEach((view) => view.paint());
  else if (any("hover", "chosen", "pins")) views.forEach((view) => view.paintAbove());
  if (any("view", "colour", "theme")) {
    drawLegend(
      byId("legend"),
      currentScale(),
      state.view === "difference" ? "change of fitness by re-evaluation" : QUANTITIES[state.colour].label,
    );
  }
  if (keys.has("zoom")) views.forEach((view) => view.allowScrolling(state.zoom[0] === 1));
  if (keys.has("moment")) drawMoment();
  if (any("hover", "moment", "view", "zoom")) drawTip();
  if (any("hover", "chosen", "pins", "axes")) {
    const shown = state.hover && state.hover.elite >= 0 ? state.hover : state.chosen;
    drawElite(byId("elite"), runs[shown.run], shown.elite, keys.size === 1 && state.hover !== null);
  }
  if (keys.has("filters")) drawFilters();
  const whole = {
    progress: ["tab", "moment", "theme"],
    table: ["tab", "sort", "filters"],
    axes: ["tab", "theme", "colour", "view"],
    pins: ["tab", "pins"],
  };
  if (any(...whole[/** @type {keyof typeof whole} */ (state.tab)])) drawDetail();
  else if (repaintDetail && (state.tab === "axes" ? any("filters", "hover", "chosen") : any("chosen")))
    repaintDetail();
}

/** Selects an elite by the number of its cell, or as the nearest one to a descriptor. @param {string} text */
function search(text) {
  const run = runs[state.chosen.run],
    values = text
      .trim()
      .split(/[\s,;]+/)
      .map(Number);
  if (!text.trim() || values.some((value) => !Number.isFinite(value)))
    return note(text.trim() ? "A cell's number, or a descriptor's coordinates." : "");
  const cells = `a cell from 0 to ${fixed(run.cells - 1)}`;
  if (values.length !== 1 && values.length !== run.dims)
    return note(`${values.length} numbers were given; give ${cells}, or ${run.dims} numbers of a descriptor.`);
  note("");
  if (values.length === 1 && (run.dims > 1 || Number.isInteger(values[0]))) {
    const elite = run.elites.cell.indexOf(values[0]);
    if (elite < 0)
      note(
        values[0] >= 0 && values[0] < run.cells && Number.isInteger(values[0])
          ? `Cell ${values[0]} is empty.`
          : `${values[0]} was given; give ${cells}${run.dims > 1 ? `, or ${run.dims} numbers of a descriptor` : ""}.`,
      );
    else change({ chosen: { run: run.index, elite } });
  } else change({ chosen: { run: run.index, elite: run.nearest(values) } });
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest("dialog")) return;
  if (["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName)) {
    if (event.key === "Escape") target.blur();
    return;
  }
  const view = views.find((one) => one.run.index === state.chosen.run) ?? views[0];
  const ways = /** @type {Record<string, [number, number]>} */ ({
    ArrowLeft: [-1, 0],
    ArrowRight: [1, 0],
    ArrowUp: [0, -1],
    ArrowDown: [0, 1],
  });
  const centre = /** @type {[number, number]} */ ([
    view.plot.x + view.plot.w / 2,
    view.plot.y + view.plot.h / 2,
  ]);
  const keys = Object.keys(QUANTITIES).filter((key) => view.run.corrected || !QUANTITIES[key].corrected);
  if (ways[event.key] && !target.closest(".scroll"))
    change({ chosen: { run: view.run.index, elite: view.neighbour(...ways[event.key]) }, hover: null });
  else if (event.key === "p") togglePin(state.chosen);
  else if (["1", "2", "3"].includes(event.key)) byId("views").children[Number(event.key) - 1].click();
  else if (event.key === "c") change({ colour: keys[(keys.indexOf(state.colour) + 1) % keys.length] });
  else if (event.key === " " && target.tagName !== "BUTTON") togglePlay();
  else if (event.key === "+" || event.key === "=") view.zoomAt(1.4, ...centre);
  else if (event.key === "-") view.zoomAt(1 / 1.4, ...centre);
  else if (event.key === "0") setZoom(1, 0.5, 0.5);
  else if (event.key === "/") byId("search").focus();
  else if (event.key === "?") showHelp();
  else if (event.key === "Escape") change({ filters: {} });
  else return;
  event.preventDefault();
}

function showHelp() {
  const dialog = byId("dialog");
  dialog.replaceChildren(
    element("h1", {}, "Keys and gestures"),
    element("dl", {}, ...KEYS.flatMap(([key, what]) => [element("dt", {}, key), element("dd", {}, what)])),
    element("button", { onclick: () => dialog.close() }, "close"),
  );
  dialog.showModal();
}

function showSave() {
  const dialog = byId("dialog"),
    name = `${runs[0].header.algorithm}-${runs[0].header.task}-${state.view}`.replace(/[^\w.-]+/g, "-");
  dialog.replaceChildren(
    element("h1", {}, "Save this picture"),
    element("p", { class: "soft" }, "The map as it is now. The address of this page holds the whole view."),
    element(
      "p",
      {},
      element(
        "button",
        { onclick: () => download(new Blob([makeSvg()], { type: "image/svg+xml" }), `${name}.svg`) },
        "SVG",
      ),
      element("button", { onclick: async () => download(await makePng(), `${name}.png`) }, "PNG"),
      element(
        "button",
        {
          onclick: (/** @type {Event} */ event) =>
            copy(location.href, /** @type {HTMLElement} */ (event.currentTarget)),
        },
        "copy the address",
      ),
      element("button", { onclick: () => dialog.close() }, "close"),
    ),
  );
  dialog.showModal();
}

async function start() {
  applyTheme();
  runs = await Promise.all(
    HEADER.runs.map((/** @type {any} */ header, /** @type {number} */ index) =>
      new Run(header, index).load(),
    ),
  );
  START.axes = Array.from({ length: Math.min(4, Math.max(2, runs[0].dims)) }, (_, axis) =>
    Math.min(axis, runs[0].dims - 1),
  );
  Object.assign(state, readHash(location.hash.slice(1), runs));
  applyTheme();
  drawHeader();
  views = runs.map((run) => new MapView(byId("maps"), run, currentScale, runs.length > 1));
  listeners.push(redraw);
  writeHash = () => {
    const hash = hashOf(runs);
    try {
      history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
    } catch {
      location.replace(`#${hash}`);
    }
  };
  redraw(new Set(Object.keys(state)));
  byId("colours").addEventListener("change", (/** @type {any} */ event) =>
    change({ colour: event.target.value }),
  );
  byId("layouts").addEventListener("change", (/** @type {any} */ event) =>
    change({ layout: event.target.value === listLayouts(runs[0].dims)[0] ? "" : event.target.value }),
  );
  byId("moment").addEventListener("input", (/** @type {any} */ event) => {
    const value = Number(event.target.value);
    change({ moment: value >= lastMoment(runs) ? null : value });
  });
  byId("play").addEventListener("click", togglePlay);
  byId("theme").addEventListener("click", () => change({ theme: dark() ? "light" : "dark" }));
  byId("help").addEventListener("click", showHelp);
  byId("save").addEventListener("click", showSave);
  byId("filter-by").addEventListener("change", (/** @type {any} */ event) => addFilter(event.target.value));
  byId("search").addEventListener("change", (/** @type {any} */ event) => search(event.target.value));
  byId("search").addEventListener(
    "keydown",
    (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && search(byId("search").value),
  );
  addEventListener("keydown", onKey);
  addEventListener("hashchange", () => change(readHash(location.hash.slice(1), runs)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => change({ theme: state.theme }));
  runClock();
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  byId("note").hidden = false;
  byId("note").textContent =
    `This page could not be shown: ${error instanceof Error ? error.message : error}. A current browser is needed.`;
  throw error;
});
