// Draws a robot in 3-D: capsules and spheres on a chequered floor, by WebGL 2 or, without it, on a plain canvas.
"use strict";

const FIELD = Math.tan((22 * Math.PI) / 180); // half the vertical field of view
const SUN = [0.36, -0.5, 0.79];
const ROUND = 18,
  RINGS = 6; // of a capsule's mesh

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

/** Draws with WebGL 2 if the browser has it. @param {HTMLCanvasElement} canvas
 * @returns {(limbs: Limb[], camera: ReturnType<typeof cameraAt>, aspect: number, target: number[]) => void} */
function makePainter(canvas) {
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

/** @param {WebGL2RenderingContext} gl @returns {ReturnType<typeof makePainter>} */
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
    // the equator occurs twice, once for each half
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
 * @returns {ReturnType<typeof makePainter>} */
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
