"use strict";
// Progressive enhancement: zooms and reads out charts, hides lines by their keys, switches the
// theme. The charts are complete without it; only the ticks of a zoomed view are drawn here.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  // Maximum number of lines in the readout; more do not fit.
  const NAMED = 8;
  // Drags shorter than this, in SVG units, are clicks.
  const DRAG = 6;
  const numbers = text => text.split(" ").map(Number);
  const put = (parent, tag, attributes, text) => {
    const element = parent.appendChild(document.createElementNS(SVG, tag));
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text != null) element.textContent = text;
    return element;
  };

  // Round values in a range and their labels; the step is 1, 2 or 5 times a power of ten.
  function ticks(from, to) {
    const raw = (to - from) / 5, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find(times => raw / power <= times + 1e-9);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const found = [];
    for (let n = Math.ceil(from / step - 1e-9); n * step <= to + step * 1e-9 && found.length < 20; n++) found.push(n * step);
    const short = v => v >= 9.99e3 ? +(v / 1e3).toFixed(6) + "k" : v.toFixed(digits);
    return found.map(at => [at, step >= 1 ? short(at) : at.toFixed(digits)]);
  }

  // Absolute coordinates of a path of moves and relative steps: M x y, l dx dy.
  function places(d) {
    const xs = [], ys = [];
    let x = 0, y = 0;
    for (const [, kind, a, b] of d.matchAll(/([Ml])(-?\d+) (-?\d+)/g)) {
      x = kind === "M" ? +a : x + +a;
      y = kind === "M" ? +b : y + +b;
      xs.push(x);
      ys.push(y);
    }
    return { xs, ys };
  }

  // Index of the value nearest to `at`; `values` ascend.
  function nearest(values, at) {
    let low = 0, high = values.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (values[middle] < at) low = middle; else high = middle;
    }
    return Math.abs(values[low] - at) <= Math.abs(values[high] - at) ? low : high;
  }

  // Computed properties copied into a saved file, which has no style sheet.
  const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "paint-order", "vector-effect", "opacity",
    "visibility", "display", "font-family", "font-size", "font-weight"];

  // Saves a chart as displayed, in the current theme.
  function save(svg) {
    const copy = svg.cloneNode(true), [here, there] = [svg, copy].map(one => [one, ...one.querySelectorAll("*")]);
    here.forEach((element, n) => {
      const style = getComputedStyle(element);
      there[n].setAttribute("style", KEPT.map(name => `${name}: ${style.getPropertyValue(name)}`).join("; "));
    });
    const { width, height } = svg.viewBox.baseVal;
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    const paper = put(copy, "rect", { width, height, fill: getComputedStyle(document.body).backgroundColor });
    copy.prepend(paper);
    const link = document.createElement("a"), title = svg.querySelector("title").textContent;
    const file = new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
    link.download = title.split(":")[0].replace(/[^\w]+/g, "-").toLowerCase() + ".svg";
    link.href = URL.createObjectURL(file);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href));
  }

  function picture(box) {
    const svg = box.querySelector("svg"), plot = svg.querySelector(".plot"), along = svg.querySelector(".along");
    const reading = box.querySelector(".reading");
    const [from, to] = numbers(box.dataset.x), [low, high] = numbers(box.dataset.y);
    const [digitsX, digitsY] = numbers(box.dataset.digits), [unitX, unitY] = box.dataset.units.split(",");
    const [, , inside, tall] = numbers(plot.getAttribute("viewBox"));
    const [left, top, width, height] = ["x", "y", "width", "height"].map(name => +plot.getAttribute(name));
    const paths = [...plot.querySelectorAll("path.line")];
    const cursor = put(svg, "line", { class: "cursor", y1: top, y2: top + height, visibility: "hidden" });
    const selection = put(svg, "rect", { class: "selection", y: top, height, visibility: "hidden" });
    const saves = box.appendChild(document.createElement("button"));
    saves.className = "save";
    saves.textContent = "Save SVG";
    saves.onclick = () => save(svg);
    let view = [from, to], read;

    // Value under the pointer; null outside the plot.
    const valueAt = event => {
      const { left: start, width: across } = svg.getBoundingClientRect();
      const share = ((event.clientX - start) * svg.viewBox.baseVal.width / across - left) / width;
      return share < -0.02 || share > 1.02 ? null : view[0] + Math.min(1, Math.max(0, share)) * (view[1] - view[0]);
    };
    const placeOf = value => left + (value - view[0]) / (view[1] - view[0]) * width;

    function show([a, b]) {
      view = [a, b];
      const scale = inside / (to - from);
      plot.setAttribute("viewBox", `${(a - from) * scale} 0 ${(b - a) * scale} ${tall}`);
      along.replaceChildren();
      for (const [at, text] of ticks(a, b)) {
        const x = placeOf(at);
        put(along, "line", { class: "grid", x1: x, x2: x, y1: top, y2: top + height });
        put(along, "text", { class: "soft", x, y: top + height + 14, "text-anchor": "middle" }, text);
      }
    }

    function point(value) {
      reading.replaceChildren();
      cursor.setAttribute("visibility", value == null ? "hidden" : "visible");
      if (value == null) return;
      const x = placeOf(value);
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      read ??= paths.map(path => places(path.getAttribute("d")));
      reading.append(`${value.toFixed(digitsX)} ${unitX}`);
      const fine = (value - from) / (to - from) * inside;
      const shown = paths.map((path, n) => [path, read[n]]).filter(([path, { xs }]) => !path.hasAttribute("hidden") && xs.length);
      for (const [path, { xs, ys }] of shown.slice(0, NAMED)) {
        const n = nearest(xs, fine);
        // No value beyond the ends of the line.
        const far = fine < xs[0] - inside / 50 || fine > xs[xs.length - 1] + inside / 50;
        const name = document.createElement("b");
        name.style.color = getComputedStyle(path).stroke;
        name.textContent = path.dataset.name;
        const text = far ? "–" : (high - ys[n] / tall * (high - low)).toFixed(digitsY) + (unitY && ` ${unitY}`);
        reading.append("  ·  ", name, " ", text);
      }
    }

    function select(a, b) {
      selection.setAttribute("visibility", a == null ? "hidden" : "visible");
      if (a == null) return;
      selection.setAttribute("x", placeOf(Math.min(a, b)));
      selection.setAttribute("width", Math.abs(placeOf(a) - placeOf(b)));
    }

    return { box, svg, valueAt, placeOf, show, point, select, whole: () => show([from, to]), along: box.dataset.along };
  }

  const pictures = [...document.querySelectorAll(".live")].map(picture);
  for (const one of pictures) {
    const together = one.along ? pictures.filter(other => other.along === one.along) : [one];
    const all = (what, ...values) => together.forEach(other => other[what](...values));
    let begun = null;
    one.svg.addEventListener("pointermove", event => {
      const value = one.valueAt(event);
      all("point", value);
      if (begun != null && value != null) all("select", begun, value);
    });
    one.svg.addEventListener("pointerleave", () => { if (begun == null) all("point", null); });
    one.svg.addEventListener("pointerdown", event => {
      if (event.button !== 0) return;
      begun = one.valueAt(event);
      if (begun != null) one.svg.setPointerCapture(event.pointerId);
    });
    one.svg.addEventListener("pointerup", event => {
      const [a, b] = [begun, one.valueAt(event)];
      begun = null;
      all("select", null);
      if (a == null || b == null || Math.abs(one.placeOf(a) - one.placeOf(b)) < DRAG) return;
      all("show", [Math.min(a, b), Math.max(a, b)]);
    });
    one.svg.addEventListener("pointercancel", () => { begun = null; all("select", null); });
    one.svg.addEventListener("dblclick", () => all("whole"));
  }

  // Static charts only get a button to save them.
  for (const svg of document.querySelectorAll("svg.chart")) {
    if (svg.closest(".live")) continue;
    const box = document.createElement("div"), saves = document.createElement("button");
    box.className = "still";
    saves.className = "save";
    saves.textContent = "Save SVG";
    saves.onclick = () => save(svg);
    svg.replaceWith(box);
    box.append(svg, saves);
  }

  const keys = [...document.querySelectorAll(".keys button")];
  keys.forEach((key, n) => {
    key.onclick = () => {
      const hidden = key.getAttribute("aria-pressed") === "true";
      key.setAttribute("aria-pressed", !hidden);
      document.querySelectorAll(`.plot [data-of="${n}"]`).forEach(line => line.toggleAttribute("hidden", hidden));
    };
  });
  document.querySelectorAll(".keyed td:first-child").forEach((cell, n) => {
    const swatch = keys[n]?.querySelector("svg");
    if (swatch) cell.prepend(swatch.cloneNode(true));
  });

  const button = document.querySelector(".theme"), root = document.documentElement;
  if (button) {
    const wear = name => {
      root.dataset.theme = name;
      button.textContent = name === "dark" ? "Light" : "Dark";
    };
    button.hidden = false;
    button.onclick = () => wear(root.dataset.theme === "dark" ? "light" : "dark");
    wear(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  }
})();
