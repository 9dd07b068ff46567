// The movements of robots: poses in the page become limbs in space.
"use strict";

/**
 * @typedef {{body: number, radius: number, start: number[], end: number[], foot: number}} Shape
 * @typedef {{frames: number, bodies: number, positions: Float32Array, rotations: Float32Array, contacts: Uint8Array,
 *   target: Float32Array, rate: number, fell: boolean}} Gait
 * @typedef {{centre: number[], axis: number[], radius: number, half: number, colour: number[], alpha: number}} Limb
 */

const LIMB = [0.88, 0.45, 0.17],
  FOOT = [0.22, 0.33, 0.55],
  TOUCHING = [1.0, 0.82, 0.26],
  GHOST = [0.5, 0.53, 0.6];

/** @type {Map<string, Promise<Gait | null>>} */
const gaits = new Map();

/** The movement of an elite; null if the page has none. @param {Run} run @param {number} elite @param {number} which 0 is the
 * episode in which it was found, others are replications @returns {Promise<Gait | null>} */
function loadGait(run, elite, which = 0) {
  const key = `${run.index}.${elite}.${which}`,
    known = gaits.get(key);
  if (known) return known;
  const described = run.header.gaits?.elites[elite]?.[which];
  const gait = described ? decodeGait(run.header.gaits, described) : Promise.resolve(null);
  gaits.set(key, gait);
  return gait;
}

/** @type {Map<string, Promise<string>>} */
const clips = new Map();

/** The address of an elite's clip. @param {Run} run @param {number} elite @returns {Promise<string>} */
function loadClip(run, elite) {
  const key = `${run.index}.${elite}`;
  let clip = clips.get(key);
  if (!clip) {
    clip = inflate(run.header.clips[elite]).then((raw) =>
      URL.createObjectURL(new Blob([raw], { type: "image/webp" })),
    );
    clips.set(key, clip);
  }
  return clip;
}

/** The elite nearest to an elite in descriptor space, or itself, among those with a movement; -1 if there is none.
 * @param {Run} run @param {number} elite @param {Record<string, any>} all those that move */
function nearestMoving(run, elite, all) {
  if (all[elite]) return elite;
  const place = run.descriptor(elite).map((value, axis) => run.unit(value, axis));
  let best = -1,
    least = Infinity;
  for (const key of Object.keys(all)) {
    const distance = run
      .descriptor(Number(key))
      .reduce((sum, value, axis) => sum + (run.unit(value, axis) - place[axis]) ** 2, 0);
    if (distance < least) [best, least] = [Number(key), distance];
  }
  return best;
}

/** @param {any} all @param {any} one @param {string} blocks @returns {Promise<Gait>} */
async function decodeGait(all, one, blocks = BLOCKS) {
  const bytes = new Uint8Array(await inflate(one.at, blocks)),
    { frames } = one,
    { bodies } = all,
    channels = 7 * bodies;
  const codes = new Int32Array(channels * frames),
    count = channels * frames;
  for (let channel = 0; channel < channels; channel++) {
    // differences of differences, modulo 2 ** 16
    let value = 0,
      slope = 0;
    for (let frame = 0; frame < frames; frame++) {
      const at = channel * frames + frame;
      slope = (slope + bytes[at] * 256 + bytes[count + at]) & 65535;
      value = (value + slope) & 65535;
      codes[at] = value;
    }
  }
  const positions = new Float32Array(3 * bodies * frames),
    rotations = new Float32Array(4 * bodies * frames);
  for (let body = 0; body < bodies; body++) {
    for (let frame = 0; frame < frames; frame++) {
      for (let axis = 0; axis < 7; axis++) {
        const code = codes[(7 * body + axis) * frames + frame],
          at = frame * bodies + body;
        if (axis < 3) positions[3 * at + axis] = one.low[axis] + (one.span[axis] * code) / 65535;
        else rotations[4 * at + axis - 3] = (code > 32767 ? code - 65536 : code) / 32767;
      }
    }
  }
  const target = new Float32Array(2 * frames); // the camera's target follows the robot smoothly
  for (let frame = 0; frame < frames; frame++) {
    for (let axis = 0; axis < 2; axis++) {
      const now = positions[3 * frame * bodies + axis];
      target[2 * frame + axis] = frame
        ? target[2 * frame - 2 + axis] + 0.2 * (now - target[2 * frame - 2 + axis])
        : now;
    }
  }
  return {
    frames,
    bodies,
    positions,
    rotations,
    contacts: bytes.slice(2 * count),
    target,
    rate: all.rate / (one.coarser ?? 1),
    fell: one.fell,
  };
}

/** @param {number[]} q w, x, y, z @param {number[]} v @returns {number[]} */
function rotate(q, v) {
  const [w, x, y, z] = q;
  const tx = 2 * (y * v[2] - z * v[1]),
    ty = 2 * (z * v[0] - x * v[2]),
    tz = 2 * (x * v[1] - y * v[0]);
  return [v[0] + w * tx + y * tz - z * ty, v[1] + w * ty + z * tx - x * tz, v[2] + w * tz + x * ty - y * tx];
}

/** The limbs of a robot at a time. @param {Shape[]} shapes @param {Gait} gait @param {number} seconds @param {boolean} ghost
 * @returns {Limb[]} */
function limbsAt(shapes, gait, seconds, ghost) {
  const at = Math.max(0, Math.min(gait.frames - 1, seconds * gait.rate)),
    first = Math.floor(at),
    next = Math.min(gait.frames - 1, first + 1),
    share = at - first;
  return shapes.map((shape) => {
    const one = first * gait.bodies + shape.body,
      other = next * gait.bodies + shape.body;
    const mix = (/** @type {Float32Array} */ values, /** @type {number} */ size) =>
      Array.from(
        { length: size },
        (_, axis) => values[one * size + axis] * (1 - share) + values[other * size + axis] * share,
      );
    const place = mix(gait.positions, 3),
      raw = mix(gait.rotations, 4),
      length = Math.hypot(...raw) || 1,
      turn = raw.map((part) => part / length);
    const middle = shape.start.map((value, axis) => (value + shape.end[axis]) / 2),
      along = shape.end.map((value, axis) => (value - shape.start[axis]) / 2);
    const offset = rotate(turn, middle),
      half = Math.hypot(...along),
      axis = half > 1e-6 ? rotate(turn, along).map((part) => part / half) : [0, 0, 1];
    const touches = shape.foot >= 0 && Boolean((gait.contacts[first] >> shape.foot) & 1);
    return {
      centre: place.map((value, index) => value + offset[index]),
      axis,
      radius: shape.radius * (shape.foot >= 0 ? 1.015 : 1), // otherwise it would flicker where it meets the leg
      half,
      colour: ghost ? GHOST : touches ? TOUCHING : shape.foot >= 0 ? FOOT : LIMB,
      alpha: ghost ? 0.3 : 1,
    };
  });
}
