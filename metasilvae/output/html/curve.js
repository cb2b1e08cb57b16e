// The value of the stability curves at a chosen epsilon: by a number, a slider, the mouse or a finger.
"use strict";
(() => {
  const source = document.getElementById("curve-data");
  if (!source) return;
  const { start, end, log, sets } = JSON.parse(source.textContent);
  const number = document.getElementById("epsilon");
  const range = document.getElementById("epsilon-range");
  const readout = document.getElementById("readout");
  const plot = document.querySelector("#chart .plot");
  const cursor = plot.querySelector(".cursor");
  const STEPS = Number(range.max);

  // From 0 to 1 along the axis, and back.
  function placeOf(value) {
    if (!log) return Math.min(value / end, 1);
    return value <= start ? 0 : Math.min(Math.log(value / start) / Math.log(end / start), 1);
  }
  const valueAt = (place) => log ? start * Math.pow(end / start, place) : place * end;

  // The counts hold up to and with each epsilon; null stands for all numbers.
  function countsAt({ epsilon, stable, robust }, value) {
    let low = 0, high = epsilon.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (epsilon[middle] !== null && epsilon[middle] < value) low = middle + 1; else high = middle;
    }
    return low < epsilon.length ? [stable[low], robust[low]] : [0, 0];
  }

  function cell(tag, text, attributes = {}) {
    const made = document.createElement(tag);
    made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  for (const [title, style] of [["data", ""], ["stability", "number"], ["robust accuracy", "number"]])
    head.append(cell("th", title, { scope: "col", class: style }));
  const body = table.createTBody();
  const rows = sets.map((set) => {
    const row = body.insertRow();
    row.append(cell("th", set.name, { scope: "row", class: "name" }));
    return [row.appendChild(cell("td", "", { class: "number" })), row.appendChild(cell("td", "", { class: "number" }))];
  });
  readout.append(table);

  function show(value) {
    sets.forEach((set, place) => countsAt(set, value).forEach((count, column) => {
      rows[place][column].textContent = `${(100 * count / set.rows).toFixed(2)} % (${count} of ${set.rows})`;
    }));
    const across = placeOf(value) * 1000;
    cursor.setAttribute("x1", across);
    cursor.setAttribute("x2", across);
    cursor.style.visibility = "visible";
    range.value = Math.round(placeOf(value) * STEPS);
    range.setAttribute("aria-valuetext", String(value));
  }

  // Few digits, so that a place on the screen reads as a round number.
  function preview(value) {
    const rounded = Number(Math.max(value, 0).toPrecision(3));
    number.value = rounded;
    show(rounded);
  }

  // What was typed or chosen; a mouse that passes over the chart only looks elsewhere.
  let chosen = number.value;
  function choose(value) {
    preview(value);
    chosen = number.value;
  }

  number.addEventListener("input", () => {
    if (number.value === "" || !(number.valueAsNumber >= 0)) return;
    chosen = number.value;
    show(number.valueAsNumber);
  });
  range.addEventListener("input", () => choose(valueAt(Number(range.value) / STEPS)));
  function follow(event) {
    const frame = plot.getBoundingClientRect();
    const value = valueAt(Math.min(Math.max((event.clientX - frame.left) / frame.width, 0), 1));
    if (event.buttons) choose(value); else preview(value);
  }
  plot.addEventListener("pointermove", follow);
  plot.addEventListener("pointerdown", follow);
  plot.addEventListener("pointerleave", () => {
    number.value = chosen;
    show(Number(chosen));
  });
  document.querySelector(".reader").hidden = false;
  show(number.valueAsNumber);
})();
