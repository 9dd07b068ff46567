// The robot in 3-D: capsules and spheres on a chequered floor, by WebGL 2 or, without it, on a plain canvas.
"use strict";

/**
 * @typedef {{body: number, radius: number, start: number[], end: number[], foot: number}} Shape
 * @typedef {{frames: number, bodies: number, positions: Float32Array, rotations: Float32Array, contacts: Uint8Array,
 *   target: Float32Array, rate: number, fell: boolean}} Gait
 * @typedef {{centre: number[], axis: number[], radius: number, half: number, colour: number[], alpha: number}} Limb
 */

const FIELD = Math.tan((22 * Math.PI) / 180); // half the vertical field of view
const SUN = [0.36, -0.5, 0.79];
const ROUND = 18,
  RINGS = 6; // of a capsule's mesh
const LIMB = [0.88, 0.45, 0.17],
  FOOT = [0.22, 0.33, 0.55],
  TOUCHING = [1.0, 0.82, 0.26],
  GHOST = [0.5, 0.53, 0.6];
const NEAR = 0.95; // factor on the distance of the robot's own view

/** One clock for all stages, so that robots walk in step. */
const clock = { time: 0, speed: 1, playing: true, last: 0, ghosts: true };
/** @type {Set<Stage>} */
const stages = new Set();
/** @type {Map<string, Promise<Gait | null>>} */
const gaits = new Map();

/** The movement of an elite; null if the page has none. @param {Run} run @param {number} elite @param {number} which 0 is the
 * episode in which it was found, others are replications @returns {Promise<Gait | null>} */
function gaitOf(run, elite, which = 0) {
  const key = `${run.index}.${elite}.${which}`,
    known = gaits.get(key);
  if (known) return known;
  const described = run.header.gaits?.elites[elite]?.[which];
  const made = described ? decodeGait(run.header.gaits, described) : Promise.resolve(null);
  gaits.set(key, made);
  return made;
}

/** @type {Map<string, Promise<string>>} */
const clips = new Map();

/** The address of an elite's clip. @param {Run} run @param {number} elite @returns {Promise<string>} */
function clipOf(run, elite) {
  const key = `${run.index}.${elite}`;
  let made = clips.get(key);
  if (!made) {
    made = inflate(run.header.clips[elite]).then((raw) =>
      URL.createObjectURL(new Blob([raw], { type: "image/webp" })),
    );
    clips.set(key, made);
  }
  return made;
}

/** The elite nearest to one in descriptor space, or itself, of those that move in the page; -1 if none does.
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
  const target = new Float32Array(2 * frames); // what the camera looks at follows without the robot's jolts
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
    rate: all.rate,
    fell: one.fell,
  };
}

/** @param {number[]} q w, x, y, z @param {number[]} v @returns {number[]} */
function rotated(q, v) {
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
    const offset = rotated(turn, middle),
      half = Math.hypot(...along),
      axis = half > 1e-6 ? rotated(turn, along).map((part) => part / half) : [0, 0, 1];
    const touches = shape.foot >= 0 && Boolean((gait.contacts[first] >> shape.foot) & 1);
    return {
      centre: place.map((value, index) => value + offset[index]),
      axis,
      radius: shape.radius * (shape.foot >= 0 ? 1.015 : 1), // else it would flicker where it meets the leg
      half,
      colour: ghost ? GHOST : touches ? TOUCHING : shape.foot >= 0 ? FOOT : LIMB,
      alpha: ghost ? 0.3 : 1,
    };
  });
}

/** A camera's axes and place. @param {number} yaw @param {number} pitch @param {number} distance @param {number[]} target */
function cameraAt(yaw, pitch, distance, target) {
  const forward = [-Math.sin(yaw) * Math.cos(pitch), Math.cos(yaw) * Math.cos(pitch), Math.sin(pitch)];
  const right = [Math.cos(yaw), Math.sin(yaw), 0];
  const up = [
    right[1] * forward[2] - right[2] * forward[1],
    right[2] * forward[0] - right[0] * forward[2],
    right[0] * forward[1] - right[1] * forward[0],
  ];
  return { forward, right, up, eye: target.map((value, axis) => value - distance * forward[axis]) };
}

/** @param {number[]} one @param {number[]} other */
const dot = (one, other) => one[0] * other[0] + one[1] * other[1] + one[2] * other[2];

class Stage {
  /** @type {ReturnType<typeof painterOf> | undefined} */ painter;

  /** @param {HTMLElement} parent @param {boolean} controls */
  constructor(parent, controls) {
    this.canvas = /** @type {HTMLCanvasElement} */ (
      element("canvas", { role: "img", "aria-label": "The robot" })
    );
    this.message = element("div", { class: "empty", hidden: true });
    this.letter = element("span", { class: "letter" });
    this.caption = element("span", { class: "caption" });
    this.clip = /** @type {HTMLImageElement} */ (element("img", { alt: "The episode", hidden: true }));
    this.box = element(
      "div",
      { class: "stage" },
      this.canvas,
      this.clip,
      this.message,
      this.letter,
      this.caption,
    );
    if (controls) this.box.append(stageControls());
    parent.append(this.box);
    /** @type {{gait: Gait, ghost: boolean}[]} */
    this.shown = [];
    /** @type {any} */
    this.robot = null;
    this.orbit = [0, 0, 1]; // added to yaw and pitch, factor on the distance
    this.wanted = "";
    this.listen();
    stages.add(this);
  }

  /** Shows an elite, and its replications as ghosts. If the page has no movement of it, that of the nearest elite is shown, and
   * said to be. @param {Run} run @param {number} elite */
  async show(run, elite) {
    const key = `${run.index}.${elite}`;
    if (this.wanted === key) return;
    this.wanted = key;
    this.robot = run.header.gaits;
    const all = this.robot?.elites ?? run.header.clips ?? {};
    const moving = nearestMoving(run, elite, all);
    const count = this.robot ? (all[moving]?.length ?? 0) : 0;
    const found = await Promise.all(Array.from({ length: count }, (_, which) => gaitOf(run, moving, which)));
    const clip = run.header.clips && moving >= 0 ? await clipOf(run, moving) : "";
    if (this.wanted !== key) return; // another was wanted meanwhile
    this.shown = found.filter((gait) => gait !== null).map((gait, which) => ({ gait, ghost: which > 0 }));
    if (clip) this.clip.src = clip;
    this.clip.hidden = !clip;
    this.message.textContent = run.header.still;
    this.message.hidden = Boolean(count || clip);
    this.box.classList.toggle("still", !count && !clip);
    this.canvas.style.visibility = count ? "visible" : "hidden";
    const parts = [];
    if (moving >= 0 && moving !== elite)
      parts.push(`cell ${fixed(run.elites.cell[moving])}, the nearest that moves in this page`);
    if (count > 1)
      parts.push(`orange: as it was found, grey: ${count - 1} replication${count > 2 ? "s" : ""}`);
    this.caption.textContent = parts.join("; ");
    for (const node of this.box.querySelectorAll(".controls"))
      /** @type {HTMLElement} */ (node).style.display = count ? "" : "none";
    this.draw();
  }

  /** Adds a further episode of what is shown, as a ghost. @param {any} movement @param {string} block */
  async add(movement, block) {
    if (!this.robot) return;
    const gait = await decodeGait(this.robot, movement, block);
    this.shown.push({ gait, ghost: true });
    this.draw();
  }

  remove() {
    stages.delete(this);
    this.box.remove();
  }

  draw() {
    if (!this.shown.length || !this.robot) return;
    const { clientWidth: width, clientHeight: height } = this.canvas,
      ratio = window.devicePixelRatio || 1;
    if (!width || !height) return;
    if (this.canvas.width !== Math.round(width * ratio)) this.canvas.width = Math.round(width * ratio);
    if (this.canvas.height !== Math.round(height * ratio)) this.canvas.height = Math.round(height * ratio);
    this.painter ??= painterOf(this.canvas);
    const time = clock.time % (this.robot.seconds + 0.5),
      lead = this.shown[0].gait; // a pause at the end
    const frame = Math.min(lead.frames - 1, Math.floor(time * lead.rate));
    const [yaw, pitch, distance, high] = this.robot.camera,
      target = [lead.target[2 * frame], lead.target[2 * frame + 1], high];
    const tilt = Math.max(-1.5, Math.min(-0.02, pitch + this.orbit[1]));
    const camera = cameraAt(yaw + this.orbit[0], tilt, NEAR * distance * this.orbit[2], target);
    const limbs = this.shown
      .filter(({ ghost }) => clock.ghosts || !ghost)
      .flatMap(({ gait, ghost }) => limbsAt(this.robot.limbs, gait, time, ghost));
    this.painter(limbs, camera, width / height, target);
  }

  listen() {
    /** @type {number[] | null} */
    let last = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      last = [event.clientX, event.clientY];
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!last) return;
      this.orbit[0] -= (event.clientX - last[0]) * 0.008;
      this.orbit[1] -= (event.clientY - last[1]) * 0.006;
      last = [event.clientX, event.clientY];
      this.draw();
    });
    this.canvas.addEventListener("pointerup", () => {
      last = null;
    });
    this.canvas.addEventListener("dblclick", () => {
      this.orbit = [0, 0, 1];
      this.draw();
    });
    this.canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.orbit[2] = Math.max(0.3, Math.min(4, this.orbit[2] * Math.exp(event.deltaY * 0.001)));
        this.draw();
      },
      { passive: false },
    );
  }
}

function stageControls() {
  const play = element(
    "button",
    { "aria-label": "Pause or go on", onclick: () => setPlaying(!clock.playing) },
    clock.playing ? "❚❚" : "▶",
  );
  const setPlaying = (/** @type {boolean} */ playing) => {
    clock.playing = playing;
    play.textContent = playing ? "❚❚" : "▶";
  };
  const speed = element(
    "button",
    {
      title: "Slow motion",
      onclick: () => {
        clock.speed = clock.speed === 1 ? 0.5 : clock.speed === 0.5 ? 0.2 : 1;
        speed.textContent = clock.speed === 1 ? "1×" : clock.speed === 0.5 ? "½×" : "⅕×";
      },
    },
    "1×",
  );
  const ghosts = element(
    "button",
    {
      "aria-pressed": "true",
      title: "Replications as ghosts",
      onclick: () => {
        clock.ghosts = !clock.ghosts;
        ghosts.setAttribute("aria-pressed", String(clock.ghosts));
        stages.forEach((stage) => stage.draw());
      },
    },
    "ghosts",
  );
  if (still.matches) setPlaying(false);
  const haunted = runs.some((run) =>
    Object.values(run.header.gaits?.elites ?? {}).some((/** @type {any[]} */ all) => all.length > 1),
  );
  return element("div", { class: "controls" }, play, speed, haunted ? ghosts : null);
}

/** Lets the clock run and draws all stages, as long as the page is seen. */
function runClock() {
  const tick = (/** @type {number} */ now) => {
    const passed = Math.min(0.1, (now - clock.last) / 1000);
    clock.last = now;
    if (clock.playing) {
      clock.time += passed * clock.speed;
      stages.forEach((stage) => stage.draw());
    }
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}

/** Draws with WebGL 2 if there is one. @param {HTMLCanvasElement} canvas
 * @returns {(limbs: Limb[], camera: ReturnType<typeof cameraAt>, aspect: number, target: number[]) => void} */
function painterOf(canvas) {
  const gl = canvas.getContext("webgl2", { antialias: true, stencil: true, alpha: false });
  return gl
    ? meshPainter(gl)
    : flatPainter(/** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")), canvas);
}

const COMMON = `#version 300 es
precision highp float;
uniform mat4 view; uniform vec3 eye; uniform vec3 sky; uniform vec3 target;`;
const LIMB_VERTEX = `${COMMON}
in vec4 corner; in vec3 centre; in vec3 axis; in vec2 size; in vec4 tint;
uniform vec3 sun; uniform float shadow;
out vec3 normal; out vec4 colour; out vec3 place;
void main() {
  vec3 side = normalize(abs(axis.z) < 0.9 ? cross(axis, vec3(0, 0, 1)) : cross(axis, vec3(1, 0, 0)));
  vec3 other = cross(axis, side);
  normal = corner.x * side + corner.y * other + corner.z * axis;
  place = centre + normal * size.x + axis * (corner.w * size.y);
  if (shadow > 0.5) place -= sun * (place.z - 0.004) / sun.z;
  colour = tint;
  gl_Position = view * vec4(place, 1);
}`;
const LIMB_FRAGMENT = `${COMMON}
in vec3 normal; in vec4 colour; in vec3 place;
uniform vec3 sun; uniform float shadow;
out vec4 pixel;
void main() {
  if (shadow > 0.5) { pixel = vec4(0, 0, 0, 0.26 * colour.a); return; }
  vec3 n = normalize(normal), towards = normalize(eye - place);
  float lit = 0.72 + 0.2 * n.z + 0.36 * max(0.0, dot(n, sun));
  float shine = pow(max(0.0, dot(reflect(-sun, n), towards)), 24.0) * 0.16;
  pixel = vec4(colour.rgb * lit + shine, colour.a);
}`;
const FLOOR_VERTEX = `${COMMON}
in vec2 corner; out vec2 place;
void main() { place = target.xy + corner * 40.0; gl_Position = view * vec4(place, 0, 1); }`;
const FLOOR_FRAGMENT = `${COMMON}
in vec2 place; uniform vec3 floorColour; out vec4 pixel;
void main() {
  vec2 soft = fwidth(place), wave = abs(fract(place * 0.5) - 0.5) * 2.0;
  vec2 edge = smoothstep(0.5 - soft, 0.5 + soft, wave);
  float check = mix(edge.x, 1.0 - edge.x, edge.y);
  float far = length(place - target.xy);
  vec3 tone = mix(sky, floorColour, 0.25 + 0.75 * check);
  pixel = vec4(mix(tone, sky, smoothstep(2.0, 14.0, far)), 1);
}`;

/** @param {WebGL2RenderingContext} gl @returns {ReturnType<typeof painterOf>} */
function meshPainter(gl) {
  const build = (/** @type {string} */ vertex, /** @type {string} */ fragment) => {
    const made = /** @type {WebGLProgram} */ (gl.createProgram());
    for (const [kind, source] of /** @type {[number, string][]} */ ([
      [gl.VERTEX_SHADER, vertex],
      [gl.FRAGMENT_SHADER, fragment],
    ])) {
      const shader = /** @type {WebGLShader} */ (gl.createShader(kind));
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS))
        throw new Error(gl.getShaderInfoLog(shader) ?? "shader");
      gl.attachShader(made, shader);
    }
    gl.linkProgram(made);
    return made;
  };
  const limbProgram = build(LIMB_VERTEX, LIMB_FRAGMENT),
    floorProgram = build(FLOOR_VERTEX, FLOOR_FRAGMENT);
  const mesh = capsuleMesh(),
    plane = new Float32Array([-1, -1, 1, -1, -1, 1, 1, 1]);
  const buffer = (/** @type {Float32Array} */ values) => {
    const made = gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, made);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
    return made;
  };
  const limbArray = gl.createVertexArray(),
    floorArray = gl.createVertexArray();
  gl.bindVertexArray(floorArray);
  buffer(plane);
  const at = gl.getAttribLocation(floorProgram, "corner");
  gl.enableVertexAttribArray(at);
  gl.vertexAttribPointer(at, 2, gl.FLOAT, false, 0, 0);
  gl.bindVertexArray(limbArray);
  buffer(mesh);
  const corner = gl.getAttribLocation(limbProgram, "corner");
  gl.enableVertexAttribArray(corner);
  gl.vertexAttribPointer(corner, 4, gl.FLOAT, false, 0, 0);
  const instances = buffer(new Float32Array(12));
  const parts = /** @type {[string, number, number][]} */ ([
    ["centre", 3, 0],
    ["axis", 3, 12],
    ["size", 2, 24],
    ["tint", 4, 32],
  ]);
  for (const [name, size, offset] of parts) {
    const location = gl.getAttribLocation(limbProgram, name);
    gl.enableVertexAttribArray(location);
    gl.vertexAttribPointer(location, size, gl.FLOAT, false, 48, offset);
    gl.vertexAttribDivisor(location, 1);
  }
  return (limbs, camera, aspect, target) => {
    const sky = rgb(ink("sky")).map((part) => part / 255),
      ground = rgb(ink("floor")).map((part) => part / 255);
    const matrix = viewMatrix(camera, aspect);
    gl.viewport(0, 0, gl.drawingBufferWidth, gl.drawingBufferHeight);
    gl.clearColor(sky[0], sky[1], sky[2], 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT | gl.STENCIL_BUFFER_BIT);
    gl.enable(gl.DEPTH_TEST);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    const use = (/** @type {WebGLProgram} */ program) => {
      gl.useProgram(program);
      gl.uniformMatrix4fv(gl.getUniformLocation(program, "view"), false, matrix);
      for (const [name, value] of /** @type {[string, number[]][]} */ ([
        ["eye", camera.eye],
        ["sky", sky],
        ["target", target],
        ["sun", SUN],
        ["floorColour", ground],
      ])) {
        const location = gl.getUniformLocation(program, name);
        if (location) gl.uniform3fv(location, value);
      }
    };
    use(floorProgram);
    gl.bindVertexArray(floorArray);
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
    use(limbProgram);
    gl.bindVertexArray(limbArray);
    gl.bindBuffer(gl.ARRAY_BUFFER, instances);
    gl.bufferData(
      gl.ARRAY_BUFFER,
      Float32Array.from(
        limbs.flatMap((limb) => [
          ...limb.centre,
          ...limb.axis,
          limb.radius,
          limb.half,
          ...limb.colour,
          limb.alpha,
        ]),
      ),
      gl.DYNAMIC_DRAW,
    );
    const shadow = gl.getUniformLocation(limbProgram, "shadow"),
      corners = mesh.length / 4;
    gl.enable(gl.STENCIL_TEST); // a shadow darkens the floor once
    gl.stencilFunc(gl.EQUAL, 0, 255);
    gl.stencilOp(gl.KEEP, gl.KEEP, gl.INCR);
    gl.depthMask(false);
    gl.uniform1f(shadow, 1);
    gl.drawArraysInstanced(gl.TRIANGLES, 0, corners, limbs.length);
    gl.disable(gl.STENCIL_TEST);
    gl.depthMask(true);
    gl.uniform1f(shadow, 0);
    gl.drawArraysInstanced(gl.TRIANGLES, 0, corners, limbs.length);
  };
}

/** From the world to the screen. @param {ReturnType<typeof cameraAt>} camera @param {number} aspect */
function viewMatrix({ right, up, forward, eye }, aspect) {
  const near = 0.05,
    far = 80,
    x = 1 / (FIELD * aspect),
    y = 1 / FIELD,
    a = (far + near) / (far - near),
    b = (-2 * far * near) / (far - near);
  const columns = [0, 1, 2].map((axis) => [x * right[axis], y * up[axis], a * forward[axis], forward[axis]]);
  return Float32Array.from([
    ...columns.flat(),
    -x * dot(right, eye),
    -y * dot(up, eye),
    -a * dot(forward, eye) + b,
    -dot(forward, eye),
  ]);
}

/** Triangles of a unit sphere, whose halves a capsule pulls apart: x, y, z, and the side of each corner. */
function capsuleMesh() {
  /** @type {number[]} */
  const corners = [];
  const rings = [];
  for (let ring = 0; ring <= 2 * RINGS + 1; ring++) {
    // the equator twice, once for each half
    const below = ring <= RINGS,
      angle = ((below ? ring : ring - 1) / (2 * RINGS) - 0.5) * Math.PI;
    rings.push([Math.cos(angle), Math.sin(angle), below ? -1 : 1]);
  }
  for (let ring = 0; ring < rings.length - 1; ring++) {
    for (let part = 0; part < ROUND; part++) {
      const at = (/** @type {number[]} */ [wide, high, side], /** @type {number} */ step) => {
        const angle = (2 * Math.PI * step) / ROUND;
        return [wide * Math.cos(angle), wide * Math.sin(angle), high, side];
      };
      const [a, b, c, d] = [
        at(rings[ring], part),
        at(rings[ring], part + 1),
        at(rings[ring + 1], part),
        at(rings[ring + 1], part + 1),
      ];
      corners.push(...a, ...b, ...d, ...a, ...d, ...c);
    }
  }
  return Float32Array.from(corners);
}

/** Draws limbs as thick lines, the farthest first. @param {CanvasRenderingContext2D} context @param {HTMLCanvasElement} canvas
 * @returns {ReturnType<typeof painterOf>} */
function flatPainter(context, canvas) {
  return (limbs, camera, aspect, target) => {
    const { width, height } = canvas,
      focus = height / (2 * FIELD);
    const project = (/** @type {number[]} */ point) => {
      const from = point.map((value, axis) => value - camera.eye[axis]),
        depth = Math.max(0.05, dot(from, camera.forward));
      return [
        width / 2 + (focus * dot(from, camera.right)) / depth,
        height / 2 - (focus * dot(from, camera.up)) / depth,
        focus / depth,
      ];
    };
    context.fillStyle = ink("sky");
    context.fillRect(0, 0, width, height);
    context.fillStyle = ink("floor");
    for (let row = -8; row < 8; row++) {
      for (let column = -8; column < 8; column++) {
        const x = Math.floor(target[0]) + column,
          y = Math.floor(target[1]) + row;
        if ((x + y) % 2) continue;
        const corners = [
          [x, y, 0],
          [x + 1, y, 0],
          [x + 1, y + 1, 0],
          [x, y + 1, 0],
        ];
        if (
          corners.some(
            (corner) =>
              dot(
                corner.map((value, axis) => value - camera.eye[axis]),
                camera.forward,
              ) < 0.2,
          )
        )
          continue;
        context.beginPath();
        corners.map(project).forEach(([px, py]) => context.lineTo(px, py));
        context.fill();
      }
    }
    const ends = (/** @type {Limb} */ limb) =>
      [-1, 1].map((side) => limb.centre.map((value, axis) => value + side * limb.half * limb.axis[axis]));
    context.lineCap = "round";
    const stroke = (
      /** @type {number[][]} */ points,
      /** @type {number} */ radius,
      /** @type {string} */ style,
    ) => {
      const [[x0, y0, scale], [x1, y1]] = points.map(project);
      context.strokeStyle = style;
      context.lineWidth = 2 * radius * scale;
      context.beginPath();
      context.moveTo(x0, y0);
      context.lineTo(x1 + 0.01, y1);
      context.stroke();
    };
    for (const limb of limbs)
      stroke(
        ends(limb).map((end) => end.map((value, axis) => value - (SUN[axis] * end[2]) / SUN[2])),
        limb.radius * 0.8,
        "rgba(0,0,0,0.12)",
      );
    const order = [...limbs].sort(
      (one, other) => dot(other.centre, camera.forward) - dot(one.centre, camera.forward),
    );
    for (const limb of order)
      stroke(
        ends(limb),
        limb.radius,
        css(
          limb.colour.map((part) => Math.round(255 * part)),
          limb.alpha,
        ),
      );
  };
}
