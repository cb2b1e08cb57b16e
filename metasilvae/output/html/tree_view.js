// Where the drawing of a tree is in its frame: fitted, moved and zoomed, but never lost out of sight.
"use strict";
const treeView = (() => {
  const MARGIN = 28, SMALL_MARGIN = 12, MAX_SCALE = 4;
  // Smallest scales at which nodes can be read: on a screen, on a phone, and that at which their texts are left out.
  const LEGIBLE = 0.74, LEGIBLE_IF_NARROW = 0.95, TEXTLESS = 0.2;
  const NARROW = 600;
  // What stays visible of some node at least, in pixels.
  const KEPT = [60, 30];
  // More nodes than these move at once: painting them again and again takes too long.
  const MOST_GLIDING = 150;

  // `size` is that of a node; `onPress` is called with what was pressed, unless the press moved the drawing.
  return (frame, svg, view, size, onPress) => {
    let scale = 1, left = 0, top = 0;
    // Places of visible nodes, the first of them that of the root, and where they end.
    let places = [], right = size[0], bottom = size[1];

    const isNarrow = () => frame.clientWidth < NARROW;
    const legible = () => isNarrow() ? LEGIBLE_IF_NARROW : LEGIBLE;

    function setPlaces(found) {
      places = found;
      right = size[0] + places.reduce((most, [x]) => Math.max(most, x), 0);
      bottom = size[1] + places.reduce((most, [, y]) => Math.max(most, y), 0);
    }

    // How far a stretch must go so that enough of it is between 0 and the end.
    function missing(start, length, kept, end) {
      const wanted = Math.min(length, kept);
      return start > end - wanted ? end - wanted - start : Math.max(wanted - start - length, 0);
    }

    function keepInSight() {
      let nearest = null;
      for (const [x, y] of places) {
        const dx = missing(left + x * scale, size[0] * scale, KEPT[0], frame.clientWidth);
        const dy = missing(top + y * scale, size[1] * scale, KEPT[1], svg.clientHeight);
        if (!nearest || Math.abs(dx) + Math.abs(dy) < Math.abs(nearest[0]) + Math.abs(nearest[1])) nearest = [dx, dy];
        if (!dx && !dy) return;
      }
      left += nearest[0];
      top += nearest[1];
    }

    function place(glides = false) {
      keepInSight();
      view.classList.toggle("glide", glides && places.length <= MOST_GLIDING);
      view.classList.toggle("textless", scale < TEXTLESS);
      view.style.transform = `translate(${left}px, ${top}px) scale(${scale})`;
    }

    // High enough for the drawing, but not higher than the window.
    function heightFor(factor) {
      const most = Math.max(260, Math.min(0.65 * window.innerHeight, 620));
      return Math.min(Math.max(bottom * factor + 2 * MARGIN, 220), most);
    }

    // How much of the frame the drawing may take, and the scale at which all of it does.
    function wholeScale(height) {
      const margin = isNarrow() ? SMALL_MARGIN : MARGIN;
      return Math.min((frame.clientWidth - 2 * margin) / right, (height - 2 * margin) / bottom, 1.15);
    }

    // The whole tree, or as much of it as can be read, around its root.
    function fit(isWhole) {
      const width = frame.clientWidth;
      const across = wholeScale(Infinity);
      const height = heightFor(isWhole ? across : Math.max(across, legible()));
      svg.setAttribute("height", height);
      scale = isWhole ? wholeScale(height) : Math.max(wholeScale(height), legible());
      left = Math.max(right * scale > width ? SMALL_MARGIN : 0, (width - right * scale) / 2);
      top = (height - bottom * scale) / 2;
      if (top < 0) top = Math.min(height / 2 - (places[0][1] + size[1] / 2) * scale, SMALL_MARGIN);
      place(true);
    }

    function zoom(factor, x = frame.clientWidth / 2, y = svg.clientHeight / 2, glides = false) {
      const least = Math.min(wholeScale(svg.clientHeight), LEGIBLE / 4);
      const next = Math.min(Math.max(scale * factor, least), MAX_SCALE);
      left = x - (x - left) * next / scale;
      top = y - (y - top) * next / scale;
      scale = next;
      place(glides);
    }

    function reveal([x, y]) {
      const box = [left + x * scale, top + y * scale, size[0] * scale, size[1] * scale];
      const before = [left, top];
      if (box[0] + box[2] > frame.clientWidth - 12) left -= box[0] + box[2] - frame.clientWidth + 24;
      if (box[0] < 12 || box[0] > frame.clientWidth) left += 12 - Math.min(box[0], 12);
      if (box[1] + box[3] > svg.clientHeight - 8) top -= box[1] + box[3] - svg.clientHeight + 16;
      if (box[1] < 8) top += 16 - box[1];
      if (before[0] !== left || before[1] !== top) place(true);
    }

    // After nodes were folded or unfolded: the frame grows, and the node at `before` stays where it is.
    function keep(before, now) {
      const grown = Math.max(heightFor(scale) - svg.clientHeight, 0);
      svg.setAttribute("height", svg.clientHeight + grown);
      left += (before[0] - now[0]) * scale;
      top += (before[1] - now[1]) * scale + grown / 2;
      place();
    }

    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && !svg.contains(document.activeElement)) return;
      event.preventDefault();
      const corner = svg.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.clientX - corner.left, event.clientY - corner.top);
    }, { passive: false });

    // One pointer moves the drawing, two zoom it.
    const pointers = new Map();
    let travelled = 0, pressed = null;
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      pressed = event.target;
      if (!pointers.size) travelled = 0;
      pointers.set(event.pointerId, [event.clientX, event.clientY]);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      const now = [event.clientX, event.clientY];
      const dx = now[0] - before[0], dy = now[1] - before[1];
      travelled += Math.hypot(dx, dy);
      if (travelled > 4) svg.classList.add("dragged");
      const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
      pointers.set(event.pointerId, now);
      if (travelled <= 4) return;
      left += other ? dx / 2 : dx;
      top += other ? dy / 2 : dy;
      if (other) {
        const corner = svg.getBoundingClientRect();
        const apart = (point) => Math.max(Math.hypot(point[0] - other[0], point[1] - other[1]), 1);
        zoom(apart(now) / apart(before), (now[0] + other[0]) / 2 - corner.left, (now[1] + other[1]) / 2 - corner.top);
      } else place();
    });
    function release(event) {
      if (!pointers.delete(event.pointerId)) return;
      svg.classList.remove("dragged");
      if (event.type === "pointerup" && travelled <= 4 && pressed) onPress(pressed);
      pressed = null;
    }
    svg.addEventListener("pointerup", release);
    svg.addEventListener("pointercancel", release);
    // The press itself must not take the focus from the node that is chosen at its end.
    svg.addEventListener("mousedown", (event) => event.preventDefault());

    return { isNarrow, setPlaces, fit, zoom, reveal, keep };
  };
})();
