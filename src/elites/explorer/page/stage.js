// The stage on which a robot walks, with the clock and its controls.
"use strict";

const DISTANCE_FACTOR = 0.95; // factor on the distance of the robot's own view

/** One clock for all stages, so that robots walk in step. */
const clock = { time: 0, speed: 1, playing: true, last: 0, ghosts: true };
/** @type {Set<Stage>} */
const stages = new Set();

class Stage {
  /** @type {ReturnType<typeof makePainter> | undefined} */ painter;

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
    this.addGestures();
    stages.add(this);
  }

  /** Shows an elite, and its replications as ghosts. If the page has no movement of it, that of the nearest elite is
   * shown, with a message. @param {Run} run @param {number} elite */
  async show(run, elite) {
    const key = `${run.index}.${elite}`;
    if (this.wanted === key) return;
    this.wanted = key;
    this.robot = run.header.gaits;
    const all = this.robot?.elites ?? run.header.clips ?? {};
    const moving = nearestMoving(run, elite, all);
    const count = this.robot ? (all[moving]?.length ?? 0) : 0;
    const loaded = await Promise.all(
      Array.from({ length: count }, (_, which) => loadGait(run, moving, which)),
    );
    const clip = run.header.clips && moving >= 0 ? await loadClip(run, moving) : "";
    if (this.wanted !== key) return; // another elite was selected meanwhile
    this.shown = loaded.filter((gait) => gait !== null).map((gait, which) => ({ gait, ghost: which > 0 }));
    if (clip) this.clip.src = clip;
    this.clip.hidden = !clip;
    this.message.textContent = run.header.no_movement_reason;
    this.message.hidden = Boolean(count || clip);
    this.box.classList.toggle("still", !count && !clip);
    this.canvas.style.visibility = count ? "visible" : "hidden";
    const parts = [];
    if (moving >= 0 && moving !== elite)
      parts.push(`cell ${fixed(run.elites.cell[moving])}: the nearest elite with a movement`);
    if (count > 1)
      parts.push(`orange: recorded episode, grey: ${count - 1} replication${count > 2 ? "s" : ""}`);
    else if (count && run.corrected && hasReplications(run))
      parts.push("recorded episode; its replications are not in this page");
    this.caption.textContent = parts.join("; ");
    for (const node of this.box.querySelectorAll(".controls"))
      /** @type {HTMLElement} */ (node).style.display = count ? "" : "none";
    this.draw();
  }

  /** Adds another episode of the shown elite, as a ghost. @param {any} movement @param {string} block */
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
    this.painter ??= makePainter(this.canvas);
    const time = clock.time % (this.robot.seconds + 0.5),
      lead = this.shown[0].gait; // a pause at the end
    const frame = Math.min(lead.frames - 1, Math.floor(time * lead.rate));
    const [yaw, pitch, distance, high] = this.robot.camera,
      target = [lead.target[2 * frame], lead.target[2 * frame + 1], high];
    const tilt = Math.max(-1.5, Math.min(-0.02, pitch + this.orbit[1]));
    const camera = cameraAt(yaw + this.orbit[0], tilt, DISTANCE_FACTOR * distance * this.orbit[2], target);
    const limbs = this.shown
      .filter(({ ghost }) => clock.ghosts || !ghost)
      .flatMap(({ gait, ghost }) => limbsAt(this.robot.limbs, gait, time, ghost));
    this.painter(limbs, camera, width / height, target);
  }

  addGestures() {
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
  return element("div", { class: "controls" }, play, speed, runs.some(hasReplications) ? ghosts : null);
}

/** Whether the page has replications of any elite. @param {Run} run */
function hasReplications(run) {
  return Object.values(run.header.gaits?.elites ?? {}).some((/** @type {any[]} */ all) => all.length > 1);
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
