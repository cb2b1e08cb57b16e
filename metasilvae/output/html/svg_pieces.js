// Elements of drawings, and texts that fit into them.
"use strict";
const svgPieces = (() => {
  const LONGEST = 60;
  // Classes with colours of their own in the style.
  const DISTINCT = 10;

  function make(tag, attributes = {}, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  const pen = document.createElement("canvas").getContext("2d");
  const family = getComputedStyle(document.body).fontFamily;

  function widthOf(text, font) {
    pen.font = `${font} ${family}`;
    return pen.measureText(text).width;
  }

  // The text, or its beginning and end with dots between them, as wide as there is room.
  function shorten(text, room, font) {
    if (text.length <= LONGEST && widthOf(text, font) <= room) return text;
    const letters = Array.from(text);
    for (let kept = Math.min(letters.length - 1, LONGEST); kept > 2; kept--) {
      const tail = Math.floor(kept / 3);
      const shown = letters.slice(0, kept - tail).join("") + "…" + letters.slice(letters.length - tail).join("");
      if (widthOf(shown, font) <= room) return shown;
    }
    return "…";
  }

  // Letters that are written from right to left must not turn around what stands beside them.
  const RIGHT_TO_LEFT = /[\u0590-\u08ff\u200f\u202b\u202e\ufb1d-\ufdff\ufe70-\ufefc]|[\ud802\ud803\ud83a\ud83b]/;
  const isolate = (name) => RIGHT_TO_LEFT.test(name) ? `\u2068${name}\u2069` : name;

  // The colour of a class, for the element and all inside it; beyond the first ones hues that lie far apart.
  function paint(element, which) {
    element.classList.add(which < DISTINCT ? `class-${which}` : `class-more-${which % 3}`);
    if (which >= DISTINCT) element.style.setProperty("--hue", (which * 137.508 % 360).toFixed(1));
    return element;
  }

  return { make, widthOf, shorten, isolate, paint, DISTINCT };
})();
