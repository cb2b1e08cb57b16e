// Elements of drawings, and texts that fit into them.
"use strict";
const svgPieces = (() => {
  const LONGEST = 60;

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

  return { make, widthOf, shorten };
})();
