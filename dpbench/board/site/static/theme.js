// The theme that was chosen here before, set ahead of the first paint.
"use strict";
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("dpbench-theme");
  } catch {
    // Storage is refused: the system's theme it is.
  }
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
})();
