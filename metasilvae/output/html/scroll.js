// Only frames whose table does not fit are stops for the Tab key.
"use strict";
(() => {
  function update() {
    for (const frame of document.querySelectorAll(".scroll"))
      if (frame.scrollWidth > frame.clientWidth) frame.setAttribute("tabindex", 0);
      else frame.removeAttribute("tabindex");
  }
  window.addEventListener("resize", update);
  document.addEventListener("toggle", update, true);
  update();
})();
