// Text: formatted numbers, and elements without markup.
"use strict";

const THIN = "\u202f"; // separates thousands

/** A number with `digits` digits after the point, and separated thousands. @param {number} value @param {number} digits */
function fixed(value, digits = 0) {
  if (!Number.isFinite(value)) return "–";
  const [whole, part] = Math.abs(value).toFixed(digits).split(".");
  const grouped = whole.length > 4 ? whole.replace(/\B(?=(\d{3})+$)/g, THIN) : whole;
  const zero = !/[1-9]/.test(whole + (part ?? ""));
  return (value < 0 && !zero ? "−" : "") + grouped + (part ? `.${part}` : "");
}

/** A number with about four significant digits. @param {number} value */
function short(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e9 || size < 1e-4)) return value.toExponential(2).replace("-", "−");
  return fixed(value, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 3);
}

/** A spread: two significant digits. @param {number} value */
function formatSpread(value) {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  return fixed(
    Number(value.toPrecision(2)),
    Math.max(0, Math.min(6, 1 - Math.floor(Math.log10(Math.abs(value))))),
  );
}

/** @param {number} value */
const percent = (value) => (Number.isFinite(value) ? `${fixed(100 * value)}${THIN}%` : "–");

/** Round numbers from low to high, about `count`. @param {number} low @param {number} high @param {number} count */
function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  const values = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at++) values.push(at * step);
  return values;
}

/** A tick's text, as short as the step between ticks allows. @param {number} value @param {number[]} all */
function tickText(value, all) {
  const step = all.length > 1 ? Math.abs(all[1] - all[0]) : Math.abs(value) || 1;
  const largest = Math.max(...all.map(Math.abs), Math.abs(value));
  if (largest >= 1e9 || step < 1e-6) return value === 0 ? "0" : value.toExponential(1).replace("-", "−");
  if (largest >= 1e6 && step >= 1e4)
    return value === 0 ? "0" : `${Number((value / 1e6).toFixed(2))}${THIN}M`.replace("-", "−");
  return fixed(value, Math.max(0, Math.min(6, -Math.floor(Math.log10(step) + 1e-9))));
}

/** An element. Text is never markup. @param {string} name @param {Record<string, any>} attributes
 * @param {...(Node | string | null)} children @returns {HTMLElement} */
function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  fill(node, attributes, children);
  return node;
}

/** An element of a drawing. @param {string} name @param {Record<string, any>} attributes @param {...(Node | string | null)} children
 * @returns {SVGElement} */
function svgElement(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  fill(node, attributes, children);
  return node;
}

/** @param {any} node @param {Record<string, any>} attributes @param {(Node | string | null)[]} children */
function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(node.style, value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null));
}

/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);
