// The current picture as a file.
"use strict";

/** The maps as one drawing. */
function makeSvg() {
  const gap = 18,
    sizes = views.map((view) => [view.box.clientWidth, view.box.clientHeight]);
  const width = sizes.reduce((sum, [wide]) => sum + wide + gap, -gap),
    height = Math.max(...sizes.map(([, high]) => high));
  const picture = svgElement("svg", {
    xmlns: "http://www.w3.org/2000/svg",
    width,
    height: height + 60,
    viewBox: `0 0 ${width} ${height + 60}`,
    "font-family": "system-ui, sans-serif",
    "font-size": 12,
  });
  picture.append(svgElement("rect", { width, height: height + 60, fill: ink("paper") }));
  let left = 0;
  views.forEach((view, index) => {
    picture.append(svgElement("g", { transform: `translate(${left} 0)` }, ...makeMapSvg(view)));
    left += sizes[index][0] + gap;
  });
  picture.append(svgElement("g", { transform: `translate(${MARGIN.left} ${height})` }, ...legendParts()));
  return new XMLSerializer().serializeToString(picture);
}

/** The legend as it is on the page. @returns {Node[]} */
function legendParts() {
  const style = { fill: ink("soft"), "font-size": 11 };
  if (currentScale().key === "operator") {
    return HEADER.operators.map(
      (/** @type {{name: string, colour: string}} */ { name, colour }, /** @type {number} */ at) =>
        svgElement(
          "g",
          { transform: `translate(${110 * at} 20)` },
          svgElement("circle", { r: 5, fill: colour }),
          svgElement("text", { x: 10, y: 4, ...style }, name),
        ),
    );
  }
  const legend = byId("legend").querySelector("svg").cloneNode(true);
  for (const text of legend.querySelectorAll("text"))
    for (const [name, value] of Object.entries(style)) text.setAttribute(name, value);
  return [legend];
}

/** @param {MapView} view @returns {SVGElement[]} */
function makeMapSvg(view) {
  const { layout, now, plot, run } = view,
    parts = [],
    clip = `plot-${run.index}`;
  const place = {
    x: (/** @type {number} */ x) => view.toScreen(x, 0)[0],
    y: (/** @type {number} */ y) => view.toScreen(0, y)[1],
  };
  for (let tile = now.rows.length - 1; tile >= 0; tile--) {
    const alpha = now.colour[4 * tile + 3];
    if (alpha < 0.01) continue;
    const fill = css(now.colour.slice(4 * tile, 4 * tile + 3).map(Math.round));
    const look = {
      fill,
      stroke: fill, // closes the seams between cells
      "stroke-width": 0.5,
      "stroke-opacity": alpha < 1 ? 0 : null,
      "fill-opacity": alpha < 1 ? alpha.toFixed(2) : null,
    };
    if (layout.kind === "dots") {
      const [cx, cy] = view.middle(tile);
      parts.push(
        svgElement("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r: view.radius().toFixed(1), ...look }),
      );
      continue;
    }
    let text = "";
    const pen = {
      moveTo: (/** @type {number} */ x, /** @type {number} */ y) => {
        text += `M${x.toFixed(1)} ${y.toFixed(1)}`;
      },
      lineTo: (/** @type {number} */ x, /** @type {number} */ y) => {
        text += `L${x.toFixed(1)} ${y.toFixed(1)}`;
      },
      closePath: () => {
        text += "Z";
      },
    };
    view.trace(pen, tile, place);
    parts.push(svgElement("path", { d: text, ...look }));
  }
  const context = svgPen();
  drawAxes(view, /** @type {any} */ (context));
  if (state.view === "difference") drawArrows(view, /** @type {any} */ (context));
  return [
    svgElement(
      "clipPath",
      { id: clip },
      svgElement("rect", { x: plot.x, y: plot.y, width: plot.w, height: plot.h }),
    ),
    svgElement("g", { "clip-path": `url(#${clip})` }, ...parts),
    ...context.parts,
    ...(view.named ? [svgElement("text", { x: plot.x, y: plot.y - 8, fill: ink("soft") }, run.title)] : []),
  ];
}

/** A context like that of a canvas that draws SVG elements: only the methods that axes and arrows need. */
function svgPen() {
  const measure = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  /** @type {string[]} */
  const moves = [];
  let path = "";
  const pen = {
    /** @type {SVGElement[]} */ parts: [],
    fillStyle: "",
    strokeStyle: "",
    lineWidth: 1,
    textAlign: "left",
    font: "12px system-ui, sans-serif",
    save: () => moves.push("|"),
    restore: () => {
      while (moves.length && moves.pop() !== "|");
    },
    translate: (/** @type {number} */ x, /** @type {number} */ y) => moves.push(`translate(${x} ${y})`),
    rotate: (/** @type {number} */ angle) => moves.push(`rotate(${(angle * 180) / Math.PI})`),
    beginPath: () => {
      path = "";
    },
    moveTo: (/** @type {number} */ x, /** @type {number} */ y) => {
      path += `M${x.toFixed(1)} ${y.toFixed(1)}`;
    },
    lineTo: (/** @type {number} */ x, /** @type {number} */ y) => {
      path += `L${x.toFixed(1)} ${y.toFixed(1)}`;
    },
    stroke: () => {
      pen.parts.push(
        svgElement("path", { d: path, fill: "none", stroke: pen.strokeStyle, "stroke-width": pen.lineWidth }),
      );
    },
    fill: () => {
      pen.parts.push(svgElement("path", { d: path, fill: pen.fillStyle }));
    },
    strokeRect: (
      /** @type {number} */ x,
      /** @type {number} */ y,
      /** @type {number} */ width,
      /** @type {number} */ height,
    ) => {
      pen.parts.push(svgElement("rect", { x, y, width, height, fill: "none", stroke: pen.strokeStyle }));
    },
    measureText: (/** @type {string} */ text) => {
      measure.font = pen.font;
      return measure.measureText(text);
    },
    fillText: (/** @type {string} */ text, /** @type {number} */ x, /** @type {number} */ y) => {
      const anchor = { left: "start", center: "middle", right: "end" }[pen.textAlign];
      const transform = moves.filter((move) => move !== "|").join(" ") || null;
      pen.parts.push(
        svgElement("text", { x, y, fill: pen.fillStyle, "text-anchor": anchor, transform }, text),
      );
    },
  };
  return pen;
}

/** The maps as pixels, twice as many as on the screen. @returns {Promise<Blob>} */
async function makePng() {
  const svg = makeSvg(),
    size = /width="([\d.]+)" height="([\d.]+)"/.exec(svg);
  const image = new Image(),
    canvas = document.createElement("canvas");
  const [width, height] = size ? [Number(size[1]), Number(size[2])] : [800, 600];
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  [canvas.width, canvas.height] = [2 * width, 2 * height];
  canvas.getContext("2d")?.drawImage(image, 0, 0, 2 * width, 2 * height);
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png"),
  );
}

/** @param {Blob} blob @param {string} name */
function download(blob, name) {
  const link = /** @type {HTMLAnchorElement} */ (element("a", { download: name }));
  link.href = URL.createObjectURL(blob);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 5000);
}
