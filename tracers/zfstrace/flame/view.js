// Zoom, search and keys of a flame graph. Without scripting the page is complete, but static.
(() => {
  "use strict";
  const XHTML = "http://www.w3.org/1999/xhtml";
  const SVG = "http://www.w3.org/2000/svg";
  const ROW = 18, SIDE = 12, PAD = 4, CHAR = 7.25, NEAR = 1e-4;

  const script = document.currentScript;
  const root = (script && script.closest("svg.zfstune-flame"))
    || document.querySelector("svg.zfstune-flame");
  const details = root.querySelector(".details");
  const resting = details.textContent;
  root.setAttribute("width", "100%");

  // Each frame precedes those above it, so the frames above frame i are i + 1 to end - 1.
  function readFrames(panel) {
    const frames = [], path = [];
    for (const g of panel.children) {
      const title = g.firstChild.textContent, rect = g.children[1];
      const cut = title.lastIndexOf(" (");
      const frame = {
        g, rect, title, text: g.children[2] || null, name: title.slice(0, cut),
        x: parseFloat(rect.getAttribute("x")), w: parseFloat(rect.getAttribute("width")),
        row: parseFloat(rect.getAttribute("y")) / ROW, depth: 0,
        index: frames.length, end: 0, parent: null, hidden: false, past: false, hit: false,
      };
      frame.nowX = frame.x;
      frame.nowW = frame.w;
      frames.push(frame);
    }
    const base = frames[0].row;
    for (const frame of frames) {
      frame.depth = Math.abs(frame.row - base);
      while (path.length > frame.depth) path.pop().end = frame.index;
      frame.parent = path[path.length - 1] || null;
      path.push(frame);
    }
    for (const frame of path) frame.end = frames.length;
    return frames;
  }

  const panels = Array.from(root.querySelectorAll("svg.frames"), (svg) => ({
    svg, frames: readFrames(svg), inverted: svg.dataset.inverted === "1", zoom: 0, current: 0,
  }));
  const owner = new Map();
  for (const panel of panels) for (const frame of panel.frames) owner.set(frame.g, { panel, frame });

  // A graph may have 100,000 frames: touch only what changes.
  function place(frame, x, w, width) {
    if (frame.nowX !== x) frame.rect.setAttribute("x", (frame.nowX = x) + "%");
    if (frame.nowW !== w) frame.rect.setAttribute("width", (frame.nowW = w) + "%");
    fit(frame, x, w, width);
  }

  function show(frame, hidden, past) {
    if (frame.hidden !== hidden) frame.g.style.display = (frame.hidden = hidden) ? "none" : "";
    if (frame.past !== past) frame.g.classList.toggle("past", frame.past = past);
  }

  function fit(frame, x, w, width) {
    const room = Math.floor((w / 100 * width - 2 * PAD) / CHAR);
    if (room < 3) {
      if (frame.text && frame.text.firstChild) frame.text.textContent = "";
      return;
    }
    if (!frame.text) {
      frame.text = document.createElementNS(SVG, "text");
      frame.text.setAttribute("y", frame.row * ROW + 13);
      frame.text.setAttribute("dx", PAD);
      frame.g.append(frame.text);
    }
    frame.text.setAttribute("x", x + "%");
    const letters = Array.from(frame.name);
    frame.text.textContent =
      letters.length <= room ? frame.name : letters.slice(0, room - 1).join("") + "…";
  }

  // Places all frames for the current zoom and width of the window.
  function draw(panel) {
    const width = Math.max(100, root.getBoundingClientRect().width - 2 * SIDE);
    panel.svg.setAttribute("width", width);
    const top = panel.frames[panel.zoom], scale = 100 / top.w;
    for (const frame of panel.frames) {
      const above = frame.index >= top.index && frame.index < top.end;
      const below = frame.index < top.index && frame.end > top.index;
      show(frame, !above && !below, below);
      if (below) place(frame, 0, 100, width);
      else if (above) place(frame, (frame.x - top.x) * scale, frame.w * scale, width);
    }
  }

  function zoom(panel, frame) {
    panel.zoom = frame.index;
    draw(panel);
    makeCurrent(panel, frame);
    back.hidden = panels.every((one) => !one.zoom);
  }

  function makeCurrent(panel, frame) {
    // A frame that loses its tabindex loses the focus, too.
    if (panel.current !== frame.index) panel.frames[panel.current].g.removeAttribute("tabindex");
    panel.current = frame.index;
    frame.g.setAttribute("tabindex", "0");
    frame.g.setAttribute("role", "treeitem");
    frame.g.setAttribute("aria-level", frame.depth + 1);
    frame.g.setAttribute("aria-label", frame.title);
  }

  function focus(panel, frame) {
    if (!frame) return;
    makeCurrent(panel, frame);
    frame.g.focus();
  }


  function beside(panel, frame, step) {
    for (let i = frame.index + step; panel.frames[i]; i += step) {
      if (panel.frames[i].depth === frame.depth && !panel.frames[i].hidden) return panel.frames[i];
    }
    return null;
  }

  // The widest: going up follows most of the time.
  function child(panel, frame) {
    let best = null;
    for (let i = frame.index + 1; i < frame.end; i = panel.frames[i].end) {
      if (!panel.frames[i].hidden && (!best || panel.frames[i].w > best.w)) best = panel.frames[i];
    }
    return best;
  }

  function onKey(event) {
    const found = owner.get(event.target);
    if (!found || event.ctrlKey || event.altKey || event.metaKey) return;
    const { panel, frame } = found;
    const outward = panel.inverted ? "ArrowDown" : "ArrowUp";
    const inward = panel.inverted ? "ArrowUp" : "ArrowDown";
    if (event.key === "Enter" || event.key === " ") {
      zoom(panel, frame);
      frame.g.focus();
    } else if (event.key === outward) focus(panel, child(panel, frame));
    else if (event.key === inward) focus(panel, frame.parent);
    else if (event.key === "ArrowLeft") focus(panel, beside(panel, frame, -1));
    else if (event.key === "ArrowRight") focus(panel, beside(panel, frame, 1));
    else if (event.key === "Home") focus(panel, panel.frames[0]);
    else return;
    event.preventDefault();
  }

  // A regular expression, or plain text if it is not valid.
  function matcher(text) {
    try {
      return new RegExp(text, "i");
    } catch {
      return new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
    }
  }

  function search(text) {
    const pattern = text ? matcher(text) : null;
    const totals = panels.map((panel) => {
      let total = 0, until = -1;
      for (const frame of panel.frames) {
        const hit = pattern !== null && pattern.test(frame.name);
        if (frame.hit !== hit) frame.g.classList.toggle("hit", frame.hit = hit);
        // the width of a match includes matches above it
        if (hit && frame.index >= until) {
          total += frame.w;
          until = frame.end;
        }
      }
      return total;
    });
    result.textContent = pattern ? "matched " + totals.map(share).join(" / ") : "";
  }

  const share = (value) => value.toFixed(value >= 9.995 ? 1 : 2) + " %";

  function reset() {
    input.value = "";
    search("");
    showAll();
  }

  function showAll() {
    for (const panel of panels) {
      panel.zoom = 0;
      draw(panel);
    }
    back.hidden = true;
  }

  function say(event) {
    const found = owner.get(event.target.closest(".frames g"));
    details.textContent = found ? found.frame.title : resting;
  }

  function element(name, attributes) {
    const made = document.createElementNS(XHTML, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    return made;
  }

  const holder = document.createElementNS(SVG, "foreignObject");
  for (const [key, value] of Object.entries({
    x: "100%", y: 4, width: 520, height: 36, transform: `translate(${4 - 520 - SIDE} 0)`,
  })) holder.setAttribute(key, value);
  const bar = element("div", { class: "bar", role: "search" });
  const result = element("output", { "aria-live": "polite" });
  const back = element("button", { type: "button", hidden: "" });
  back.textContent = "Reset zoom";
  const input = element("input", {
    type: "search", placeholder: "Search, press /", "aria-label": "Search frames", spellcheck: "false",
  });
  bar.append(result, back, input);
  holder.append(bar);
  root.insertBefore(holder, panels[0].svg);

  input.addEventListener("input", () => search(input.value));
  back.addEventListener("click", () => {
    showAll();
    focus(panels[0], panels[0].frames[panels[0].current]);
  });
  root.addEventListener("click", (event) => {
    const found = owner.get(event.target.closest(".frames g"));
    if (!found) return;
    zoom(found.panel, found.frame);
    found.frame.g.focus({ preventScroll: true });
  });
  root.addEventListener("mouseover", say);
  root.addEventListener("focusin", say);
  root.addEventListener("mouseleave", () => { details.textContent = resting; });
  root.addEventListener("keydown", onKey);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      reset();
      if (document.activeElement === input) focus(panels[0], panels[0].frames[panels[0].current]);
    } else if (event.key === "/" && event.target !== input && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      input.focus();
      input.select();
    }
  });
  window.addEventListener("resize", () => panels.forEach(draw));
  for (const panel of panels) {
    draw(panel);
    makeCurrent(panel, panel.frames[0]);
  }
})();
