// The drawing of a tree: from left to right, folded and unfolded node by node, moved and zoomed.
"use strict";
(() => {
  const { make, widthOf, shorten } = svgPieces;
  const data = JSON.parse(document.getElementById("tree-data").textContent);
  const frame = document.getElementById("drawing");
  const details = document.getElementById("node-details");
  const extent = document.getElementById("tree-extent");
  const choice = document.getElementById("tree-choice");
  const WIDTH = 188, HEIGHT = 46, ACROSS = 248, DOWN = 60, MARGIN = 28;
  const SHOWN_AT_FIRST = frame.clientWidth < 600 ? 9 : 31;
  const ROOM = WIDTH - 24;
  const MIN_SCALE = 0.02, MAX_SCALE = 4, LEGIBLE = 0.74;

  const view = make("g", { class: "view", role: "none" });
  const svg = make("svg", { role: "tree", "aria-label": "Decision tree" }, view);
  frame.append(svg);
  let nodes = [], open = [], parents = [], levels = [], places = [], drawn = new Map();
  let order = [], current = 0, scale = 1, left = 0, top = 0;

  const isSplit = (node) => nodes[node].feature !== undefined;
  const children = (node) => nodes[node].left === undefined ? [] : [nodes[node].left, nodes[node].right];
  const label = (number) => data.labels[number];
  const answer = (node) => nodes[node].answer.map(label).join(" or ") + (nodes[node].more ? ` or ${nodes[node].more} more` : "");
  const test = (node) => `${data.features[nodes[node].feature]} ≤ ${nodes[node].threshold}`;
  const opposite = (node) => `${data.features[nodes[node].feature]} > ${nodes[node].threshold}`;
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  const leaves = (count) => `${count} ${count === 1 ? "leaf" : "leaves"}`;

  function shortTest(node) {
    const end = ` ≤ ${Number(Number(nodes[node].threshold).toPrecision(5))}`;
    return shorten(data.features[nodes[node].feature], ROOM - widthOf(end, "13px"), "13px") + end;
  }

  function subtitle(node) {
    const { rows, values } = nodes[node];
    if (isSplit(node)) return rows === undefined ? leaves(nodes[node].leaves) : plural(rows, "row");
    if (rows === undefined) return values.map(([which, value]) => `${label(which)} ${Number(value.toPrecision(4))}`).join(", ");
    return `${values.length ? values[0][1] : 0} of ${plural(rows, "row")}`;
  }

  function crossings(node) {
    const counts = nodes[node].crossed || [];
    return counts.map((count, place) => [data.sets[place], count]).filter(([, count]) => count);
  }

  function describe(node) {
    const words = isSplit(node)
      ? [`test ${test(node)}`, leaves(nodes[node].leaves)]
      : [`answer ${answer(node)}`];
    if (nodes[node].rows !== undefined) words.push(plural(nodes[node].rows, "row"));
    if (parents[node] >= 0) words.unshift(nodes[parents[node]].left === node ? "yes" : "no");
    const crossed = crossings(node).reduce((sum, [, count]) => sum + count, 0);
    if (crossed) words.push(`crossed by ${plural(crossed, "unstable row")}`);
    return words.join(", ");
  }

  // Visible nodes from top to bottom, parents first.
  function listVisible() {
    const found = [], todo = [0];
    while (todo.length) {
      const node = todo.pop();
      found.push(node);
      if (open[node]) todo.push(...children(node).reverse());
    }
    return found;
  }

  function layOut() {
    order = listVisible();
    places = new Map();
    let line = 0;
    for (const node of order)
      if (!open[node] || !children(node).length) places.set(node, [levels[node] * ACROSS, DOWN * line++]);
    for (const node of [...order].reverse())
      if (!places.has(node)) {
        const [first, second] = children(node).map((child) => places.get(child)[1]);
        places.set(node, [levels[node] * ACROSS, (first + second) / 2]);
      }
  }

  function drawShares(node) {
    const { values, rows } = nodes[node];
    if (!rows) return [];
    const width = WIDTH - 22, pieces = [];
    let start = 8;
    for (const [which, value] of values) {
      const share = width * value / rows;
      pieces.push(make("rect", { x: start, y: HEIGHT - 9, width: share, height: 4, class: `c${which % 10}` }));
      start += share;
    }
    if (start < width + 7.5) pieces.push(make("rect", { x: start, y: HEIGHT - 9, width: width + 8 - start, height: 4, class: "rest" }));
    return pieces;
  }

  function drawNode(node) {
    const [x, y] = places.get(node);
    const split = isSplit(node);
    const color = split ? "" : ` leaf b${nodes[node].answer[0] % 10}`;
    const group = make("g", {
      class: "node" + color, role: "treeitem", transform: `translate(${x} ${y})`, tabindex: node === current ? 0 : -1,
      "aria-label": describe(node), "aria-level": levels[node] + 1, "data-node": node,
    });
    if (children(node).length) group.setAttribute("aria-expanded", String(open[node]));
    if (parents[node] >= 0) {
      const siblings = children(parents[node]);
      group.setAttribute("aria-setsize", 2);
      group.setAttribute("aria-posinset", siblings.indexOf(node) + 1);
    }
    group.append(
      make("title", {}, describe(node)),
      make("rect", { class: "halo", x: -4, y: -4, width: WIDTH + 8, height: HEIGHT + 8, rx: 10 }),
      make("rect", { class: "box", width: WIDTH, height: HEIGHT, rx: split ? 7 : 14 }),
      make("text", { x: 10, y: 18, class: split ? "" : "answer" }, split ? shortTest(node) : shorten(answer(node), ROOM, "bold 13px")),
      make("text", { x: 10, y: 32, class: "small" }, shorten(subtitle(node), isSplit(node) ? ROOM / 2 : ROOM, "11px")),
      ...drawShares(node));
    const crossed = crossings(node).reduce((sum, [, count]) => sum + count, 0);
    if (crossed) group.append(make("text", { x: WIDTH - 14, y: 32, class: "alarm", "text-anchor": "end" }, `▲ ${crossed}`));
    if (children(node).length) {
      group.append(make("circle", { class: "knob", cx: WIDTH, cy: HEIGHT / 2, r: 9 }),
        make("path", { class: "sign", d: `M${WIDTH - 4} ${HEIGHT / 2}h8` + (open[node] ? "" : `M${WIDTH} ${HEIGHT / 2 - 4}v8`) }));
    } else if (split) {
      group.append(make("text", { x: WIDTH + 6, y: HEIGHT / 2 + 4, class: "small" }, `… ${leaves(nodes[node].leaves)}`));
    }
    return group;
  }

  function drawEdges() {
    const edges = [];
    for (const node of order) {
      if (parents[node] < 0) continue;
      const [x0, y0] = places.get(parents[node]), [x1, y1] = places.get(node);
      const start = x0 + WIDTH, from = y0 + HEIGHT / 2, to = y1 + HEIGHT / 2, bend = (start + x1) / 2;
      const yes = nodes[parents[node]].left === node;
      edges.push(make("path", { class: "edge", d: `M${start} ${from}C${bend} ${from} ${bend} ${to} ${x1} ${to}` }),
        make("text", { class: "edge-name", x: x1 - 5, y: to + (yes ? -6 : 14), "text-anchor": "end" }, yes ? "yes" : "no"));
    }
    return make("g", { "aria-hidden": "true" }, ...edges);
  }

  function draw() {
    layOut();
    drawn = new Map(order.map((node) => [node, drawNode(node)]));
    view.replaceChildren(drawEdges(), ...drawn.values());
  }

  function place(glides = false) {
    view.classList.toggle("glide", glides);
    view.style.transform = `translate(${left}px, ${top}px) scale(${scale})`;
  }

  function bounds() {
    let right = WIDTH, bottom = HEIGHT;
    for (const [x, y] of places.values()) {
      right = Math.max(right, x + WIDTH);
      bottom = Math.max(bottom, y + HEIGHT);
    }
    return [right, bottom];
  }

  // High enough for the drawing, but not higher than the window.
  function heightFor(bottom, factor) {
    const most = Math.max(260, Math.min(0.65 * window.innerHeight, 620));
    return Math.min(Math.max(bottom * factor + 2 * MARGIN, 220), most);
  }

  // The whole tree, or as much of it as can be read, around its root.
  function fit(isWhole) {
    const [right, bottom] = bounds();
    const width = frame.clientWidth;
    const legible = isWhole ? MIN_SCALE : LEGIBLE;
    const across = Math.min((width - 2 * MARGIN) / right, 1.15);
    const height = heightFor(bottom, Math.max(across, legible));
    svg.setAttribute("height", height);
    scale = Math.max(Math.min(across, (height - 2 * MARGIN) / bottom), legible);
    left = Math.max(right * scale > width ? 12 : MARGIN, (width - right * scale) / 2);
    top = (height - bottom * scale) / 2;
    if (top < 0) top = height / 2 - (places.get(0)[1] + HEIGHT / 2) * scale;
    place(true);
  }

  function zoom(factor, x = frame.clientWidth / 2, y = svg.clientHeight / 2, glides = false) {
    const next = Math.min(Math.max(scale * factor, MIN_SCALE), MAX_SCALE);
    left = x - (x - left) * next / scale;
    top = y - (y - top) * next / scale;
    scale = next;
    place(glides);
  }

  function reveal(node) {
    const [x, y] = places.get(node);
    const box = [left + x * scale, top + y * scale, WIDTH * scale, HEIGHT * scale];
    const before = [left, top];
    if (box[0] + box[2] > frame.clientWidth - 12) left -= box[0] + box[2] - frame.clientWidth + 24;
    if (box[0] < 12 || box[0] > frame.clientWidth) left += 12 - Math.min(box[0], 12);
    if (box[1] + box[3] > svg.clientHeight - 8) top -= box[1] + box[3] - svg.clientHeight + 16;
    if (box[1] < 8) top += 16 - box[1];
    if (before[0] !== left || before[1] !== top) place(true);
  }

  function item(text) {
    const made = document.createElement("li");
    made.textContent = text;
    return made;
  }

  function paragraph(text) {
    const made = document.createElement("p");
    made.textContent = text;
    return made;
  }

  function explain(node) {
    const path = [];
    for (let below = node, above = parents[node]; above >= 0; below = above, above = parents[above])
      path.unshift(nodes[above].left === below ? test(above) : opposite(above));
    const list = document.createElement("ol");
    list.append(...path.map(item), item(isSplit(node) ? `test ${test(node)}` : `answer ${answer(node)}`));
    const { values, rows } = nodes[node];
    const parts = [];
    if (values && values.length) {
      const missing = rows === undefined ? 0 : rows - values.reduce((sum, [, value]) => sum + value, 0);
      parts.push(values.map(([which, value]) => `${label(which)}: ${value}`).join(", ") + (missing ? `, others: ${missing}` : ""));
    }
    if (rows !== undefined) parts.push(`${plural(rows, "training row")}`);
    if (isSplit(node)) parts.push(`${leaves(nodes[node].leaves)} below`);
    for (const [name, count] of crossings(node)) parts.push(`crossed by ${plural(count, "unstable row")} of ${name}`);
    details.replaceChildren(list, paragraph(parts.join("; ")));
  }

  function select(node, takesFocus = true) {
    drawn.get(current)?.setAttribute("tabindex", -1);
    current = node;
    const group = drawn.get(node);
    group.setAttribute("tabindex", 0);
    if (takesFocus) group.focus({ preventScroll: true });
    reveal(node);
    explain(node);
  }

  function toggle(node, wanted = !open[node]) {
    if (!children(node).length || open[node] === wanted) return;
    const [, before] = places.get(node);
    open[node] = wanted;
    draw();
    const grown = Math.max(heightFor(bounds()[1], scale) - svg.clientHeight, 0);
    svg.setAttribute("height", svg.clientHeight + grown);
    top += (before - places.get(node)[1]) * scale + grown / 2;
    place();
  }

  function setAll(wanted) {
    const focused = frame.contains(document.activeElement);
    open = open.map((_, node) => wanted && children(node).length > 0);
    current = 0;
    draw();
    fit(false);
    select(0, focused);
  }

  // From the root on, level by level, until enough is visible.
  function unfoldFirst() {
    open = nodes.map(() => false);
    let visible = 1;
    const todo = [0];
    for (let place = 0; place < todo.length; place++) {
      const below = children(todo[place]);
      if (!below.length) continue;
      if (visible + 2 > SHOWN_AT_FIRST) return;
      open[todo[place]] = true;
      visible += 2;
      todo.push(...below);
    }
  }

  function choose(number) {
    const tree = data.trees[number];
    nodes = tree.nodes;
    parents = nodes.map(() => -1);
    levels = nodes.map(() => 0);
    nodes.forEach((_, node) => children(node).forEach((child) => {
      parents[child] = node;
      levels[child] = levels[node] + 1;
    }));
    current = 0;
    unfoldFirst();
    draw();
    fit(false);
    explain(0);
    const cut = tree.total > nodes.length ? ` Only the first ${nodes.length} nodes are drawn, level by level.` : "";
    extent.textContent = `${plural(tree.total, "node")}, depth ${tree.depth}.${cut} ▲ counts unstable rows whose counterexample decides the test the other way.`;
  }

  function step(node, key) {
    const at = order.indexOf(node);
    switch (key) {
      case "ArrowDown": return order[Math.min(at + 1, order.length - 1)];
      case "ArrowUp": return order[Math.max(at - 1, 0)];
      case "Home": return order[0];
      case "End": return order[order.length - 1];
      case "ArrowRight":
        if (children(node).length && !open[node]) { toggle(node, true); return node; }
        return open[node] ? children(node)[0] : node;
      case "ArrowLeft":
        if (open[node]) { toggle(node, false); return node; }
        return parents[node] >= 0 ? parents[node] : node;
      default: return null;
    }
  }

  svg.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") { toggle(current); select(current); }
    else if (event.key === "+" || event.key === "=") zoom(1.25, undefined, undefined, true);
    else if (event.key === "-") zoom(0.8, undefined, undefined, true);
    else if (event.key === "0") fit(true);
    else {
      const next = step(current, event.key);
      if (next === null) return;
      select(next);
    }
    event.preventDefault();
  });
  // Not on the drawing itself: an SVG element that listens to the focus takes it, too.
  frame.addEventListener("focusin", (event) => {
    const group = event.target.closest(".node");
    if (group && Number(group.dataset.node) !== current) select(Number(group.dataset.node));
  });

  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && !svg.contains(document.activeElement)) return;
    event.preventDefault();
    const corner = svg.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.clientX - corner.left, event.clientY - corner.top);
  }, { passive: false });

  // One pointer moves the drawing, two zoom it; a press that does not move selects and folds a node.
  const pointers = new Map();
  let travelled = 0, pressed = null;
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    pressed = event.target.closest(".node");
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
    if (event.type === "pointerup" && travelled <= 4 && pressed) {
      const node = Number(pressed.dataset.node);
      toggle(node);
      select(node);
    }
    pressed = null;
  }
  svg.addEventListener("pointerup", release);
  svg.addEventListener("pointercancel", release);
  // The press itself must not take the focus from the node that is chosen at its end.
  svg.addEventListener("mousedown", (event) => event.preventDefault());

  const ACTIONS = {
    fit: () => fit(true), in: () => zoom(1.25, undefined, undefined, true), out: () => zoom(0.8, undefined, undefined, true),
    unfold: () => setAll(true), fold: () => setAll(false),
  };
  for (const button of document.querySelectorAll("[data-action]"))
    button.addEventListener("click", ACTIONS[button.dataset.action]);
  choice?.addEventListener("change", () => choose(Number(choice.value)));
  let width = frame.clientWidth;
  window.addEventListener("resize", () => {
    if (width !== frame.clientWidth) { width = frame.clientWidth; fit(false); }
  });
  choose(0);
})();
