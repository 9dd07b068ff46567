// Gestures of the mouse and of fingers on a map.
"use strict";

/** @param {MapView} view */
function addGestures(view) {
  const { box } = view;
  /** @type {Map<number, [number, number]>} */
  const fingers = new Map();
  let travelled = 0;
  const at = (/** @type {PointerEvent | WheelEvent | MouseEvent} */ event) => {
    const { left, top } = box.getBoundingClientRect();
    return /** @type {[number, number]} */ ([event.clientX - left, event.clientY - top]);
  };
  box.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      view.zoomAt(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), ...at(event));
    },
    { passive: false },
  );
  box.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, at(event));
    travelled = 0;
    try {
      box.setPointerCapture(event.pointerId);
    } catch {
      /* the pointer is gone already */
    }
  });
  box.addEventListener("pointermove", (event) => {
    const place = at(event),
      before = fingers.get(event.pointerId);
    if (!before) {
      change({ hover: view.pick(...place) });
      return;
    }
    const others = [...fingers].filter(([id]) => id !== event.pointerId).map(([, other]) => other);
    fingers.set(event.pointerId, place);
    travelled += Math.hypot(place[0] - before[0], place[1] - before[1]);
    if (others.length) {
      const apart = (/** @type {number[]} */ one) =>
        Math.hypot(one[0] - others[0][0], one[1] - others[0][1]) || 1;
      view.zoomAt(apart(place) / apart(before), (place[0] + others[0][0]) / 2, (place[1] + others[0][1]) / 2);
    }
    if (travelled > 4) {
      const [zoom, cx, cy] = state.zoom,
        share = others.length ? 0.5 : 1;
      setZoom(
        zoom,
        cx - (share * (place[0] - before[0])) / view.plot.w / zoom,
        cy + (share * (place[1] - before[1])) / view.plot.h / zoom,
      );
    }
  });
  const end = (/** @type {PointerEvent} */ event) => {
    const down = fingers.delete(event.pointerId);
    if (!down || fingers.size || travelled > 4 || event.type === "pointercancel") return;
    const picked = view.pick(...at(event));
    if (picked && picked.elite >= 0) {
      change({ chosen: { run: view.run.index, elite: picked.elite } });
      if (event.shiftKey) togglePin({ run: view.run.index, elite: picked.elite });
    }
  };
  box.addEventListener("pointerup", end);
  box.addEventListener("pointercancel", end);
  box.addEventListener("pointerleave", () => change({ hover: null }));
  box.addEventListener("dblclick", (event) => {
    event.preventDefault();
    setZoom(1, 0.5, 0.5);
  });
  box.addEventListener(
    "focus",
    () => state.chosen.run !== view.run.index && change({ chosen: { run: view.run.index, elite: 0 } }),
  );
}
