// Copies commands and shows the data. The page can be read without it.
(() => {
  "use strict";

  async function copy(text, from) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // not allowed from a file, or in an old browser; the selection is
      const range = document.createRange();
      range.selectNodeContents(from);
      const selection = getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      const done = document.execCommand("copy");
      if (done) selection.removeAllRanges();
      return done;
    }
  }

  for (const box of document.querySelectorAll(".cmd")) {
    const button = box.querySelector("button"), text = box.querySelector("pre");
    button.hidden = false;
    button.addEventListener("click", async () => {
      const done = await copy(text.textContent, text);
      button.textContent = done ? "Copied" : "Press Ctrl-C";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  const data = document.getElementById("data"), raw = document.querySelector(".raw-json");
  raw.addEventListener("toggle", () => {
    const pre = raw.querySelector("pre");
    if (raw.open && !pre.textContent) {
      pre.textContent = JSON.stringify(JSON.parse(data.textContent), null, 1);
    }
  });

  // Paper shows what the screen folds.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open]):not(.raw-json)")];
    for (const one of folded) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of folded) one.open = false;
  });
})();
