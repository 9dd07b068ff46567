// The panel of one elite.
"use strict";

/** @type {Stage | null} */
let mainStage = null;

let factsTimer = 0;

/** Shows an elite: its movement at once, and its facts at once or, while the pointer moves, when it rests.
 * @param {HTMLElement} parent @param {Run} run @param {number} elite @param {boolean} resting */
function drawElite(parent, run, elite, resting = false) {
  if (!mainStage) {
    mainStage = new Stage(parent, true);
    parent.append(element("div", { id: "facts", style: { display: "contents" } }));
  }
  mainStage.show(run, elite);
  clearTimeout(factsTimer);
  if (resting) factsTimer = setTimeout(() => drawFacts(run, elite), 40);
  else drawFacts(run, elite);
}

/** @param {Run} run @param {number} elite */
function drawFacts(run, elite) {
  const { elites, corrected, header } = run,
    recorded = elites.fitness[elite];
  const operator = HEADER.operators[elites.operator[elite]];
  const pinned = state.pins.findIndex((pin) => pin.run === run.index && pin.elite === elite);
  const heading = element("p", { class: "big" }, element("small", {}, "fitness "), short(recorded));
  if (corrected)
    heading.append(
      " → ",
      short(corrected.mean[elite]),
      element("small", {}, ` ± ${formatSpread(corrected.spread[elite])}`),
    );
  /** @type {[string, string | Node][]} */
  const facts = header.names.map((/** @type {string} */ _, /** @type {number} */ axis) => [
    header.labels[axis],
    short(run.descriptor(elite)[axis]) + (corrected ? ` → ${short(run.descriptor(elite, true)[axis])}` : ""),
  ]);
  facts.push([
    "cell",
    fixed(elites.cell[elite]) +
      (corrected ? ` → ${corrected.cell[elite] < 0 ? "none" : fixed(corrected.cell[elite])}` : ""),
  ]);
  if (corrected) facts.push(["stays in its cell", percent(corrected.stays[elite])]);
  facts.push(
    [
      "found by",
      element(
        "span",
        {},
        element("span", { class: "dot", style: { background: operator.colour } }),
        operator.name,
      ),
    ],
    [
      "found in evaluation",
      `${fixed(elites.evaluation[elite])}, generation ${fixed(elites.generation[elite])}`,
    ],
    [
      "episode seed",
      `${elites.seed[elite]}${elites.episodes > 1 ? `, the first of ${elites.episodes}` : ""}`,
    ],
  );
  const samples = element("div", { class: "pair" });
  const body = [
    element(
      "div",
      { class: "bar" },
      heading,
      element("span", { class: "space" }),
      element(
        "button",
        {
          "aria-pressed": pinned >= 0,
          title: "Pin it to compare (p)",
          onclick: () => togglePin({ run: run.index, elite }),
        },
        pinned >= 0 ? `pinned ${LETTERS[pinned]}` : "pin",
      ),
    ),
    element(
      "dl",
      { class: "facts" },
      ...facts.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]),
    ),
    samples,
    element("div", {}, element("h2", {}, "lineage"), lineage(run, elite)),
    ...(HEADER.served ? [drawReevaluation(run, elite)] : []),
    ...commands(run, elite),
  ];
  byId("facts").replaceChildren(...body);
  if (!corrected) {
    samples.replaceWith(element("p", { class: "soft" }, header.uncorrected_reason));
    return;
  }
  Promise.all([run.samples(elite), run.cloud(elite)]).then(([fitness, cloud]) => {
    samples.replaceChildren(
      element(
        "div",
        {},
        element("h2", {}, `fitness of ${corrected.replications} replications`),
        histogram(fitness, recorded, corrected.mean[elite]),
      ),
      element("div", {}, element("h2", {}, "their descriptors"), cloudChart(run, elite, cloud)),
    );
  });
}

/** @type {Map<string, string[]>} */
const evaluated = new Map(); // results of evaluating elites again

/** Asks the server of this page to evaluate an elite again. @param {Run} run @param {number} elite */
function drawReevaluation(run, elite) {
  const key = `${run.index}.${elite}`,
    lines = evaluated.get(key) ?? [];
  const list = element("ol", { class: "lineage" }, ...lines.map((line) => element("li", {}, line)));
  const seed = /** @type {HTMLInputElement} */ (
    element("input", {
      type: "number",
      min: 0,
      max: 4294967295,
      value: 1 + lines.length,
      "aria-label": "seed",
    })
  );
  const button = element("button", { id: "again", onclick: ask }, "evaluate");
  async function ask() {
    if (!seed.value || !seed.checkValidity()) return note("A seed is a whole number from 0 to 4294967295.");
    note("");
    button.setAttribute("disabled", "");
    const body = JSON.stringify({ run: run.index, elite, seed: Number(seed.value) });
    const answer = await fetch("evaluate", { method: "POST", body })
      .then((response) => response.json())
      .catch((error) => ({ error: `The server does not answer: ${error}` }));
    button.removeAttribute("disabled");
    const line = answer.error ?? answerText(run, answer);
    lines.push(line);
    evaluated.set(key, lines);
    list.append(element("li", {}, line));
    seed.value = String(Number(seed.value) + 1);
    if (answer.movement && mainStage?.wanted === key) mainStage.add(answer.movement, answer.block);
  }
  const controls = element("div", { class: "bar" }, seed, button);
  return element("div", {}, element("h2", {}, "evaluate again with a seed"), controls, list);
}

/** @param {Run} run @param {{seed: number, fitness: number, descriptor: number[], length: number}} answer */
function answerText(run, answer) {
  return `seed ${answer.seed}: fitness ${short(answer.fitness)}, ${run.placeText(answer.descriptor)}, ${fixed(answer.length)} steps`;
}

/** The known ancestors of an elite, following the first known parent of each. @param {Run} run @param {number} elite */
function lineage(run, elite) {
  const list = element("ol", { class: "lineage" }),
    { elites, ancestors } = run;
  const width = run.count ? elites.parents.length / run.count : 0;
  const known = (/** @type {number} */ evaluation) => {
    const row = run.byEvaluation.get(evaluation);
    if (row !== undefined) return { all: elites, row, living: row };
    const old = run.ancestorRows.get(evaluation);
    return old === undefined ? null : { all: ancestors, row: old, living: -1 };
  };
  let now = { all: elites, row: elite, living: elite };
  for (let depth = 0; ; depth++) {
    const { all, row, living } = now,
      operator = HEADER.operators[all.operator[row]];
    const parents = Array.from(new Set(all.parents.slice(row * width, (row + 1) * width))).filter(
      (parent) => parent >= 0,
    );
    const [next, other] = parents.map(known).filter((parent) => parent !== null);
    list.append(
      element(
        "li",
        {},
        element("span", { class: "dot", style: { background: operator.colour } }),
        element("b", {}, operator.name),
        ` generation ${fixed(all.generation[row])}, cell ${fixed(all.cell[row])}, fitness ${short(all.fitness[row])}`,
        other
          ? `; other parent: cell ${fixed(other.all.cell[other.row])}, fitness ${short(other.all.fitness[other.row])}`
          : null,
        depth && living >= 0
          ? element(
              "button",
              { onclick: () => change({ chosen: { run: run.index, elite: living } }) },
              "show",
            )
          : null,
      ),
    );
    if (!parents.length) break;
    if (!next) {
      list.append(
        element(
          "li",
          {},
          `parents: evaluation${parents.length > 1 ? "s" : ""} ${parents.map((one) => fixed(one)).join(" and ")}, ${run.header.missing_parents_reason}`,
        ),
      );
      break;
    }
    if (next.all.evaluation[next.row] >= all.evaluation[row]) break; // a damaged file: parents are always earlier
    now = next;
  }
  return list;
}

/** Whether the page, or its server, has the parameters of an elite. @param {Run} run @param {number} elite */
const hasParameters = (run, elite) =>
  run.header.has_parameters && (HEADER.served || elite < (run.header.parameters?.shape[0] ?? 0));

/** The parameters of an elite as a NumPy file. @param {Run} run @param {number} elite */
async function makeNpy(run, elite) {
  if (HEADER.served) {
    const body = JSON.stringify({ run: run.index, elite });
    const response = await fetch("parameters", { method: "POST", body });
    if (!response.ok) throw new Error((await response.json()).error);
    return response.blob();
  }
  const all = await numbers(run.header.parameters),
    size = run.header.parameters.shape[1];
  const about = `{'descr': '<f4', 'fortran_order': False, 'shape': (${size},), }`;
  const head = about.padEnd(64 * Math.ceil((about.length + 11) / 64) - 11) + "\n"; // data begins at a multiple of 64
  const start = Uint8Array.from([
    0x93,
    ...Array.from("NUMPY", (letter) => letter.charCodeAt(0)),
    1,
    0,
    head.length & 255,
    head.length >> 8,
  ]);
  return new Blob([start, head, Float32Array.from(all.slice(elite * size, (elite + 1) * size))]);
}

/** Commands that replay and load an elite. @param {Run} run @param {number} elite */
function commands(run, elite) {
  const { header, elites } = run,
    cell = elites.cell[elite],
    path = JSON.stringify(header.path);
  const load =
    `archive = elites.load_archive(${path})\n` +
    (header.controller ? `act = archive.policy(${elite})` : `vector = archive.parameters[${elite}]`);
  const shown = /** @type {[string, string][]} */ ([["load it in Python", load]]);
  if (header.replayable) shown.unshift(["replay", `elites replay ${header.shell_path} --cell ${cell}`]);
  const file = `cell-${cell}.npy`,
    save = () => makeNpy(run, elite).then((blob) => download(blob, file), (error) => note(error.message));
  const buttons = hasParameters(run, elite)
    ? [element("button", { onclick: save }, "download its parameters")]
    : [];
  if (header.has_parameters && !buttons.length)
    shown.push([
      "save its parameters",
      `numpy.save("${file}", elites.load_archive(${path}).parameters[${elite}])`,
    ]);
  const sections = shown.map(([name, text]) =>
    element(
      "div",
      {},
      element("h2", {}, name),
      element(
        "div",
        { class: "command" },
        element("code", {}, text),
        element(
          "button",
          {
            "aria-label": `Copy: ${name}`,
            onclick: (/** @type {Event} */ event) =>
              copy(text, /** @type {HTMLElement} */ (event.currentTarget)),
          },
          "copy",
        ),
      ),
    ),
  );
  return [...sections, ...buttons];
}

/** @param {string} text @param {HTMLElement} button */
async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // a page from disk may not use the clipboard everywhere
    const area = /** @type {HTMLTextAreaElement} */ (
      element("textarea", { style: { position: "fixed", opacity: 0 } })
    );
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "copied";
  setTimeout(() => {
    button.textContent = "copy";
  }, 1200);
}

/** The pinned elites side by side. @param {HTMLElement} parent */
function drawPins(parent) {
  for (const stage of [...stages]) if (stage !== mainStage) stage.remove();
  if (!state.pins.length) {
    parent.replaceChildren(
      element(
        "p",
        { class: "soft" },
        "Pin up to four elites to compare them: the button beside an elite, the key p, or shift and click on the map.",
      ),
    );
    return;
  }
  const row = element("div", { class: "pins" });
  parent.replaceChildren(row);
  state.pins.forEach(({ run: index, elite }, place) => {
    const run = runs[index],
      box = element("div");
    row.append(box);
    const corrected = run.corrected
      ? ` → ${short(run.corrected.mean[elite])} ± ${formatSpread(run.corrected.spread[elite])}`
      : "";
    if (run.header.gaits || run.header.clips) {
      const stage = new Stage(box, false);
      stage.letter.textContent = LETTERS[place];
      stage.show(run, elite);
      box.append(stage.caption); // below: there is no room beside the robot
    }
    box.append(
      element(
        "div",
        {},
        element("b", {}, `${LETTERS[place]} `),
        `fitness ${short(run.elites.fitness[elite])}${corrected}`,
        element(
          "button",
          {
            class: "unpin",
            "aria-label": `Unpin ${LETTERS[place]}`,
            onclick: () => togglePin({ run: index, elite }),
          },
          "×",
        ),
      ),
      element("div", { class: "soft" }, run.placeText(run.descriptor(elite))),
      ...(runs.length > 1 ? [element("div", { class: "soft" }, run.title)] : []),
    );
  });
}
