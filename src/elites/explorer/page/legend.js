// What the colours mean.
"use strict";

/** Fills the legend. @param {HTMLElement} parent @param {Scale} scale @param {string} label */
function drawLegend(parent, scale, label) {
  if (scale.key === "operator") parent.replaceChildren(...HEADER.operators.map(swatch));
  else parent.replaceChildren(scale.key === "certain" ? wedge(scale) : ramp(scale, label));
}

/** @param {{name: string, colour: string}} operator */
function swatch(operator) {
  const dot = element("span", { class: "dot", style: { background: operator.colour, marginLeft: "14px" } });
  return element("span", {}, dot, operator.name);
}

/** A bar from the least to the greatest value. @param {Scale} scale @param {string} label */
function ramp(scale, label) {
  const width = 230,
    picture = drawn("svg", { width: width + 40, height: 48, role: "img", "aria-label": label });
  const stops = scale.stops.map((colour, index) =>
    drawn("stop", { offset: index / (scale.stops.length - 1), "stop-color": css(colour) }),
  );
  const marks = scale.high > scale.low ? ticks(scale.low, scale.high, 4) : [scale.low];
  picture.append(
    drawn("defs", {}, drawn("linearGradient", { id: "ramp" }, ...stops)),
    drawn("text", { x: 20, y: 11 }, label),
    drawn("rect", { x: 20, y: 17, width, height: 10, rx: 5, fill: "url(#ramp)" }),
    ...marks.map((value) =>
      drawn(
        "text",
        { x: 20 + width * scale.share(value), y: 42, "text-anchor": "middle" },
        tickText(value, marks),
      ),
    ),
  );
  return picture;
}

/** The wedge of a value-suppressing palette: values from left to right, certainty outwards. @param {Scale} scale */
function wedge(scale) {
  const radius = 56,
    middle = 118,
    foot = 62,
    spread = 0.62; // rad, to each side of straight up
  const picture = drawn("svg", {
    width: 300,
    height: 66,
    role: "img",
    "aria-label": "fitness and its uncertainty",
  });
  for (let level = 0; level < LEVELS; level++) {
    const classes = 2 ** (LEVELS - 1 - level),
      outer = (radius * (LEVELS - level)) / LEVELS,
      inner = outer - radius / LEVELS;
    for (let part = 0; part < classes; part++) {
      const [from, to] = [part, part + 1].map((edge) => spread * ((2 * edge) / classes - 1));
      const at = (/** @type {number} */ r, /** @type {number} */ angle) =>
        `${(middle + r * Math.sin(angle)).toFixed(2)} ${(foot - r * Math.cos(angle)).toFixed(2)}`;
      picture.append(
        drawn("path", {
          d: `M${at(inner, from)}L${at(outer, from)}A${outer} ${outer} 0 0 1 ${at(outer, to)}L${at(inner, to)}A${inner} ${inner} 0 0 0 ${at(inner, from)}`,
          fill: css(scale.suppressed((part + 0.5) / classes, (level + 0.5) / LEVELS)),
          stroke: ink("paper"),
          "stroke-width": 0.7,
        }),
      );
    }
  }
  const edge = radius * Math.sin(spread) + 8;
  picture.append(
    drawn(
      "text",
      { x: middle - edge, y: 24, "text-anchor": "end" },
      tickText(scale.low, ticks(scale.low, scale.high, 3)),
    ),
    drawn("text", { x: middle + edge, y: 24 }, tickText(scale.high, ticks(scale.low, scale.high, 3))),
    drawn("text", { x: middle + edge - 14, y: 44 }, `inwards: spread up to ${two(scale.widest)}`),
    drawn("text", { x: middle - edge + 10, y: 44, "text-anchor": "end" }, "fitness"),
  );
  return picture;
}
