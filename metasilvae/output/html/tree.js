// The drawing of a tree: from left to right, folded and unfolded node by node, moved and zoomed.
"use strict";
(() => {
  const { make, widthOf, shorten, isolate, paint, DISTINCT } = svgPieces;
  const data = JSON.parse(document.getElementById("tree-data").textContent);
  const frame = document.getElementById("drawing");
  const details = document.getElementById("node-details");
  const extent = document.getElementById("tree-extent");
  const choice = document.getElementById("tree-choice");
  const legend = document.getElementById("class-colors");
  const WIDTH = 188, HEIGHT = 46, ACROSS = 248, DOWN = 60, INDENT = 42;
  const SHOWN_AT_FIRST = 31, SHOWN_IF_NARROW = 9;
  const ROOM = WIDTH - 24;

  const view = make("g", { class: "view", role: "none" });
  const svg = make("svg", { role: "tree", "aria-label": "Decision tree" }, view);
  frame.append(svg);
  let nodes = [], open = [], parents = [], levels = [], places = [], drawn = new Map();
  let order = [], current = 0, isIndented = false;
  // A press that does not move selects and folds a node.
  const { isNarrow, setPlaces, fit, zoom, reveal, keep } = treeView(frame, svg, view, [WIDTH, HEIGHT], (target) => {
    const pressed = target.closest(".node");
    if (!pressed) return;
    toggle(Number(pressed.dataset.node));
    select(Number(pressed.dataset.node));
  });

  const isSplit = (node) => nodes[node].feature !== undefined;
  const children = (node) => nodes[node].left === undefined ? [] : [nodes[node].left, nodes[node].right];
  const label = (number) => isolate(data.labels[number]);
  const feature = (node) => isolate(data.features[nodes[node].feature]);
  const prediction = (node) => nodes[node].prediction.map(label).join(" or ") + (nodes[node].more ? ` or ${nodes[node].more} more` : "");
  const words = (node, side) => nodes[node].words && isolate(nodes[node].words[side]);
  const rounded = (value) => String(Number(Number(value).toPrecision(6)));
  const threshold = (node) => rounded(nodes[node].threshold);
  const test = (node) => words(node, 0) || `${feature(node)} ≤ ${threshold(node)}`;
  const opposite = (node) => words(node, 1) || `${feature(node)} > ${threshold(node)}`;
  // Where missing values go is said of the branch that they take.
  const takesMissing = (above, below) => nodes[above].missing !== undefined && nodes[above][nodes[above].missing] === below;
  const branch = (above, below) => (nodes[above].left === below ? "yes" : "no") + (takesMissing(above, below) ? ", missing" : "");
  const condition = (above, below) => (nodes[above].left === below ? test(above) : opposite(above)) + (takesMissing(above, below) ? " or missing" : "");
  const unlisted = ({ rows, values }) => rows === undefined ? 0 : rows - values.reduce((sum, [, value]) => sum + value, 0);
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  const leaves = (count) => `${count} ${count === 1 ? "leaf" : "leaves"}`;

  function shortTest(node) {
    if (nodes[node].words) return isolate(shorten(nodes[node].words[0], ROOM, "13px"));
    const end = ` ≤ ${threshold(node)}`;
    return isolate(shorten(data.features[nodes[node].feature], ROOM - widthOf(end, "13px"), "13px")) + end;
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
      : [`prediction ${prediction(node)}`];
    if (nodes[node].rows !== undefined) words.push(plural(nodes[node].rows, "row"));
    if (parents[node] >= 0) words.unshift(branch(parents[node], node));
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

  // From left to right; in a narrow frame one below the other, each level further in.
  function layOut() {
    order = listVisible();
    isIndented = isNarrow();
    places = new Map(isIndented ? order.map((node, line) => [node, [levels[node] * INDENT, DOWN * line]]) : []);
    if (isIndented) return;
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
      pieces.push(paint(make("rect", { x: start, y: HEIGHT - 9, width: share, height: 4, class: "class-share" }), which));
      start += share;
    }
    if (start < width + 7.5) pieces.push(make("rect", { x: start, y: HEIGHT - 9, width: width + 8 - start, height: 4, class: "rest" }));
    return pieces;
  }

  function drawNode(node) {
    const [x, y] = places.get(node);
    const split = isSplit(node);
    const group = make("g", {
      class: split ? "node" : "node leaf", role: "treeitem", transform: `translate(${x} ${y})`, tabindex: node === current ? 0 : -1,
      "aria-label": describe(node), "aria-level": levels[node] + 1, "data-node": node,
    });
    if (!split) paint(group, nodes[node].prediction[0]);
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
      make("text", { x: 10, y: 18, class: split ? "" : "prediction" }, split ? shortTest(node) : shorten(prediction(node), ROOM, "bold 13px")),
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

  function shapeEdge([x0, y0], [x1, y1]) {
    const to = y1 + HEIGHT / 2;
    if (isIndented) return `M${x0 + 10} ${y0 + HEIGHT}V${to}H${x1}`;
    const start = x0 + WIDTH, from = y0 + HEIGHT / 2, bend = (start + x1) / 2;
    return `M${start} ${from}C${bend} ${from} ${bend} ${to} ${x1} ${to}`;
  }

  function drawEdges() {
    const edges = [];
    for (const node of order) {
      if (parents[node] < 0) continue;
      const [x1, y1] = places.get(node), to = y1 + HEIGHT / 2;
      const yes = nodes[parents[node]].left === node;
      edges.push(make("path", { class: "edge", d: shapeEdge(places.get(parents[node]), [x1, y1]) }),
        make("text", { class: "edge-name", x: x1 - 5, y: to + (yes || isIndented ? -6 : 14), "text-anchor": "end" }, branch(parents[node], node)));
    }
    return make("g", { "aria-hidden": "true" }, ...edges);
  }

  function draw() {
    layOut();
    drawn = new Map(order.map((node) => [node, drawNode(node)]));
    view.replaceChildren(drawEdges(), ...drawn.values());
    setPlaces(order.map((node) => places.get(node)));
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
      path.unshift(condition(above, below));
    const list = document.createElement("ol");
    list.append(...path.map(item), item(isSplit(node) ? `test ${test(node)}` : `prediction ${prediction(node)}`));
    const { values, rows } = nodes[node];
    const parts = [];
    if (values && values.length) {
      const missing = unlisted(nodes[node]);
      parts.push(values.map(([which, value]) => `${label(which)}: ${rows === undefined ? rounded(value) : value}`).join(", ") + (missing ? `, others: ${missing}` : ""));
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
    reveal(places.get(node));
    explain(node);
  }

  function toggle(node, wanted = !open[node]) {
    if (!children(node).length || open[node] === wanted) return;
    const before = places.get(node);
    open[node] = wanted;
    draw();
    keep(before, places.get(node));
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
    const most = isNarrow() ? SHOWN_IF_NARROW : SHOWN_AT_FIRST;
    open = nodes.map(() => false);
    let visible = 1;
    const todo = [0];
    for (let place = 0; place < todo.length; place++) {
      const below = children(todo[place]);
      if (!below.length) continue;
      if (visible + 2 > most) return;
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
    extent.textContent = `${plural(tree.total, "node")}, depth ${tree.depth}.${cut} ▲ unstable rows whose adversarial example flips this test.`;
  }

  // Which colour is which class; labels come in the order to show them in.
  function nameColors() {
    const square = (style) => make("rect", { width: "100%", height: "100%", class: style });
    const entry = (name, drawing) => {
      const made = item(name);
      made.prepend(make("svg", { class: "swatch", "aria-hidden": "true" }, drawing));
      return made;
    };
    const shown = data.legend.map((which) => entry(label(which), paint(square("class-share"), which)));
    const missing = Object.keys(data.labels).length - shown.length;
    if (missing) shown.push(item(`and ${missing} more`));
    if (data.trees.some((tree) => tree.nodes.some((node) => unlisted(node) > 0))) shown.push(entry("other classes", square("rest")));
    if (data.legend.length > DISTINCT) shown.push(item("some colours are similar because there are many classes; each leaf shows its label"));
    legend.replaceChildren(...shown);
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

  const ACTIONS = {
    fit: () => fit(true), in: () => zoom(1.25, undefined, undefined, true), out: () => zoom(0.8, undefined, undefined, true),
    unfold: () => setAll(true), fold: () => setAll(false),
  };
  for (const button of document.querySelectorAll("[data-action]"))
    button.addEventListener("click", ACTIONS[button.dataset.action]);
  choice?.addEventListener("change", () => choose(Number(choice.value)));
  let width = frame.clientWidth;
  window.addEventListener("resize", () => {
    if (width === frame.clientWidth) return;
    width = frame.clientWidth;
    if (isIndented !== isNarrow()) draw();
    fit(false);
  });
  nameColors();
  choose(data.first);
})();
