// The legend: the meaning of the colours.
"use strict";

/** Fills the legend. @param {HTMLElement} parent @param {Scale} scale @param {string} label */
function drawLegend(parent, scale, label) {
  if (scale.key === "operator") parent.replaceChildren(...HEADER.operators.map(swatch));
  else parent.replaceChildren(scale.key === "certain" ? drawWedge(scale) : drawRamp(scale, label));
}

/** @param {{name: string, colour: string}} operator */
function swatch(operator) {
  const dot = element("span", { class: "dot", style: { background: operator.colour, marginLeft: "14px" } });
  return element("span", {}, dot, operator.name);
}

/** A bar from the low to the high end of the scale. Where values lie beyond an end, it has a tip with the farthest
 * value next to it. @param {Scale} scale @param {string} label */
function drawRamp(scale, label) {
  const least = scale.least < scale.low ? short(scale.least) : "",
    most = scale.most > scale.high ? short(scale.most) : "";
  const width = 230,
    tip = 9,
    room = (/** @type {string} */ text) => (text ? tip + 10 + 6.4 * text.length : 20),
    left = room(least),
    right = left + width;
  const picture = svgElement("svg", {
    width: right + room(most),
    height: 48,
    role: "img",
    "aria-label": label,
  });
  const stops = scale.stops.map((colour, index) =>
    svgElement("stop", { offset: index / (scale.stops.length - 1), "stop-color": css(colour) }),
  );
  const marks = scale.high > scale.low ? ticks(scale.low, scale.high, 5) : [scale.low];
  const outline = [
    `M${left + 5} 17H${right - 5}`,
    most ? `h5l${tip} 5l${-tip} 5h-5` : "a5 5 0 0 1 0 10",
    `H${left + 5}`,
    least ? `h-5l${-tip} -5l${tip} -5h5` : "a5 5 0 0 1 0 -10",
    "Z",
  ];
  const note = [least && `lowest value ${least}`, most && `highest value ${most}`].filter(Boolean).join(", ");
  picture.append(
    ...(note ? [svgElement("title", {}, note)] : []),
    svgElement("defs", {}, svgElement("linearGradient", { id: "ramp" }, ...stops)),
    svgElement("text", { x: left, y: 11 }, label),
    svgElement("path", { d: outline.join(""), fill: "url(#ramp)" }),
    svgElement("text", { x: left - tip - 6, y: 26, "text-anchor": "end" }, least),
    svgElement("text", { x: right + tip + 6, y: 26 }, most),
    ...marks.map((value) =>
      svgElement(
        "text",
        { x: left + width * scale.share(value), y: 42, "text-anchor": "middle" },
        tickText(value, marks),
      ),
    ),
  );
  return picture;
}

/** The wedge of a value-suppressing palette: values from left to right, certainty outwards. @param {Scale} scale */
function drawWedge(scale) {
  const radius = 56,
    middle = 118,
    foot = 62,
    spread = 0.62; // rad, to each side of straight up
  const picture = svgElement("svg", {
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
        svgElement("path", {
          d: `M${at(inner, from)}L${at(outer, from)}A${outer} ${outer} 0 0 1 ${at(outer, to)}L${at(inner, to)}A${inner} ${inner} 0 0 0 ${at(inner, from)}`,
          fill: css(scale.suppressed((part + 0.5) / classes, (level + 0.5) / LEVELS)),
          stroke: ink("paper"),
          "stroke-width": 0.7,
        }),
      );
    }
  }
  const edge = radius * Math.sin(spread) + 8,
    [low, high] = [scale.low, scale.high].map((end) => tickText(end, ticks(scale.low, scale.high, 3)));
  picture.append(
    svgElement(
      "text",
      { x: middle - edge, y: 24, "text-anchor": "end" },
      scale.least < scale.low ? `≤ ${low}` : low,
    ),
    svgElement("text", { x: middle + edge, y: 24 }, scale.most > scale.high ? `≥ ${high}` : high),
    svgElement(
      "text",
      { x: middle + edge - 14, y: 44 },
      `inwards: spread up to ${formatSpread(scale.widest)}`,
    ),
    svgElement("text", { x: middle - edge + 10, y: 44, "text-anchor": "end" }, "fitness"),
  );
  return picture;
}
