"use strict";
// Progressive enhancement: zooms, reads out and saves charts, hides lines by their keys, switches
// the theme. The charts are complete without it; only the ticks of a zoomed view are drawn here.
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
    const xs = [], ys = [], starts = new Set();
    let x = 0, y = 0;
    for (const [, kind, a, b] of d.matchAll(/([Ml])(-?\d+) (-?\d+)/g)) {
      x = kind === "M" ? +a : x + +a;
      y = kind === "M" ? +b : y + +b;
      if (kind === "M") starts.add(xs.length);
      xs.push(x);
      ys.push(y);
    }
    return { xs, ys, starts };
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

  const escapeCell = text => /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const csvOf = rows => rows.map(row => row.map(cell => escapeCell(String(cell))).join(",") + "\n").join("");
  // Decimals that tell `parts` steps of a range apart.
  const decimals = (range, parts) => Math.max(0, Math.ceil(-Math.log10(range / parts)));

  // A value with its unit; times of a second and more are in seconds.
  function withUnit(value, digits, unit) {
    if (unit === "ms" && Math.abs(value) >= 1000) return `${(value / 1e3).toFixed(2)} s`;
    return value.toFixed(digits) + (unit && ` ${unit}`);
  }

  // A computed colour as every renderer reads it: mixtures are `color(srgb 0.1 0.2 0.3)`.
  function plainColour(text) {
    const mixed = text.match(/^color\(srgb ([\d.e-]+) ([\d.e-]+) ([\d.e-]+)/);
    return mixed ? `rgb(${mixed.slice(1).map(part => Math.round(part * 255)).join(", ")})` : text;
  }

  const STROKE = ["stroke-width", "stroke-dasharray", "stroke-linejoin"];
  const TEXT = ["font-size", "font-weight"];
  const LETTER = 6.6, KEY_ROW = 18;

  const cross = (a, b, x) => [x, a[1] + (b[1] - a[1]) * (x - a[0]) / (b[0] - a[0])];

  // Parts of a line between two horizontal positions.
  function clipLine(points, left, right) {
    const parts = [[]];
    const inside = (a, b) => a[0] < left ? cross(a, b, left) : a[0] > right ? cross(a, b, right) : a;
    points.forEach((b, n) => {
      const a = points[n - 1], part = parts[parts.length - 1];
      if (!a) {
        if (b[0] >= left && b[0] <= right) part.push(b);
        return;
      }
      if (Math.max(a[0], b[0]) < left || Math.min(a[0], b[0]) > right) return;
      if (!part.length) part.push(inside(a, b));
      const end = inside(b, a);
      part.push(end);
      if (end !== b) parts.push([]);
    });
    return parts;
  }

  // Part of a polygon between two horizontal positions (Sutherland and Hodgman, 1974).
  function clipArea(points, left, right) {
    for (const [edge, inside] of [[left, x => x >= left], [right, x => x <= right]]) {
      points = points.flatMap((b, n) => {
        const a = points[(n || points.length) - 1], out = [];
        if (inside(a[0]) !== inside(b[0])) out.push(cross(a, b, edge));
        if (inside(b[0])) out.push(b);
        return out;
      });
    }
    return points;
  }

  // Returns a chart as displayed, in the current theme, as an SVG file that needs no style sheet:
  // presentation attributes, paths in user units, and a key of the visible lines.
  function drawing(svg) {
    const copy = svg.cloneNode(true), [here, there] = [svg, copy].map(one => [one, ...one.querySelectorAll("*")]);
    here.forEach((element, n) => {
      const style = getComputedStyle(element), to = there[n], tag = element.tagName;
      const classes = element.getAttribute("class");
      for (const name of ["class", "style", "tabindex", "aria-describedby", "aria-keyshortcuts"]) to.removeAttribute(name);
      for (const name of Object.keys(to.dataset)) delete to.dataset[name];
      if (style.display === "none" || style.visibility === "hidden") return to.setAttribute("display", "none");
      if (["svg", "g", "title"].includes(tag)) return;
      const keep = name => to.setAttribute(name, plainColour(style.getPropertyValue(name)).replaceAll("px", ""));
      keep("fill");
      if (style.stroke !== "none") ["stroke", ...STROKE].forEach(keep);
      if (style.opacity !== "1") keep("opacity");
      if (tag !== "text") return;
      TEXT.forEach(keep);
      if (!classes?.includes("halo")) return;
      // Not every renderer paints strokes first.
      to.before(to.cloneNode(true));
      ["stroke", ...STROKE].forEach(name => to.removeAttribute(name));
    });
    copy.querySelectorAll("[display=none]").forEach(element => element.remove());
    const { width, height } = svg.viewBox.baseVal;
    let tall = height;
    const plot = svg.querySelector(".plot"), nested = copy.querySelector("svg");
    if (plot) {
      const [left, top, wide, high] = ["x", "y", "width", "height"].map(name => +plot.getAttribute(name));
      const [from, , across, down] = numbers(plot.getAttribute("viewBox"));
      const group = put(copy, "g", {});
      for (const path of nested.querySelectorAll("path")) {
        const { xs, ys, starts } = places(path.getAttribute("d")), runs = [];
        xs.forEach((x, n) => {
          if (starts.has(n)) runs.push([]);
          runs[runs.length - 1].push([left + (x - from) * wide / across, top + ys[n] * high / down]);
        });
        const closed = path.getAttribute("d").endsWith("z");
        const parts = runs.flatMap(run => closed ? [clipArea(run, left, left + wide)] : clipLine(run, left, left + wide));
        const text = part => "M" + part.map(at => at.map(value => +value.toFixed(2)).join(" ")).join("L") + (closed ? "Z" : "");
        path.setAttribute("d", parts.filter(part => part.length).map(text).join(""));
        if (path.getAttribute("d")) group.append(path);
      }
      nested.replaceWith(group);
      const named = new Map();
      for (const path of plot.querySelectorAll("path.line:not([hidden])")) {
        if (path.dataset.name && !named.has(path.dataset.name)) named.set(path.dataset.name, getComputedStyle(path));
      }
      let x = left + 22;
      if (named.size) tall += KEY_ROW;
      for (const [name, style] of named) {
        const room = name.length * LETTER + 34;
        if (x > left + 22 && x - 22 + room > width) {
          x = left + 22;
          tall += KEY_ROW;
        }
        put(copy, "line", { x1: x - 22, x2: x - 5, y1: tall - 14, y2: tall - 14, stroke: plainColour(style.stroke),
          "stroke-width": 1.6, "stroke-dasharray": style.strokeDasharray.replaceAll("px", "") });
        put(copy, "text", { x, y: tall - 10, fill: getComputedStyle(document.body).color, "font-size": 12 }, name);
        x += room;
      }
    }
    for (const [name, value] of Object.entries({ width, height: tall, viewBox: `0 0 ${width} ${tall}`, "font-family": "sans-serif" })) {
      copy.setAttribute(name, value);
    }
    copy.querySelector("title").after(put(copy, "rect", { width, height: tall, fill: getComputedStyle(document.body).backgroundColor }));
    return { text: new XMLSerializer().serializeToString(copy), width, height: tall };
  }

  // Name of the run, evaluation or comparison: the page's folder, or the page's own name.
  function runName() {
    const parts = decodeURIComponent(location.pathname).split("/"), page = parts.pop().replace(/\.html?$/, "");
    return ["report", "evaluation", "index", ""].includes(page) ? parts.pop() || page : page;
  }

  function download(box, kind, file) {
    const link = document.createElement("a");
    link.download = [runName(), box.dataset.file].filter(Boolean).join("-").replace(/[^\w.+-]+/g, "-") + `.${kind}`;
    link.href = URL.createObjectURL(file);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // Twice the size of the drawing, for sharp text.
  function savePng(box, svg) {
    const { text, width, height } = drawing(svg), image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [2 * width, 2 * height];
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob(blob => download(box, "png", blob), "image/png");
    };
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
  }

  // Adds the buttons that save a chart and its values.
  function addSaves(box, svg, csv) {
    const saves = document.createElement("div");
    saves.className = "saves";
    const kinds = {
      SVG: () => download(box, "svg", new Blob([drawing(svg).text], { type: "image/svg+xml" })),
      PNG: () => savePng(box, svg),
      CSV: () => download(box, "csv", new Blob([csv()], { type: "text/csv" })),
    };
    for (const [kind, save] of Object.entries(kinds)) {
      const button = saves.appendChild(document.createElement("button"));
      button.type = "button";
      button.textContent = kind;
      button.setAttribute("aria-label", `Save chart as ${kind}`);
      button.onclick = save;
    }
    box.append(saves);
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
    const marks = [...svg.querySelectorAll(".beyond")];
    const title = svg.querySelector(".title").textContent;
    svg.setAttribute("tabindex", 0);
    svg.setAttribute("aria-keyshortcuts", "ArrowLeft ArrowRight Home End + - Escape");
    reading.setAttribute("aria-live", "polite");
    let view = [from, to], value = null, read;

    // The visible lines as CSV, as exact as they are drawn: a line, its points inside the view. An
    // event has no vertical value.
    function csv() {
      read ??= paths.map(path => places(path.getAttribute("d")));
      const rows = [["line", box.dataset.label, title]];
      const [digitsAlong, digitsUp] = [decimals(to - from, inside), decimals(high - low, tall)];
      paths.forEach((path, n) => {
        if (path.hasAttribute("hidden")) return;
        const isEvents = "events" in path.dataset;
        read[n].xs.forEach((x, at) => {
          if (isEvents && !read[n].starts.has(at)) return;
          const along = from + x / inside * (to - from), up = high - read[n].ys[at] / tall * (high - low);
          if (along < view[0] || along > view[1]) return;
          rows.push([path.dataset.name, +along.toFixed(digitsAlong), isEvents ? "" : +up.toFixed(digitsUp)]);
        });
      });
      return csvOf(rows);
    }
    addSaves(box, svg, csv);
    const values = box.appendChild(document.createElement("details"));
    values.className = "values";
    values.innerHTML = "<summary>Values</summary><pre tabindex=0></pre>";
    values.ontoggle = () => { if (values.open) values.lastChild.textContent = csv(); };

    // Value under the pointer; null outside the plot.
    const valueAt = event => {
      const { left: start, width: across } = svg.getBoundingClientRect();
      const share = ((event.clientX - start) * svg.viewBox.baseVal.width / across - left) / width;
      return share < -0.02 || share > 1.02 ? null : view[0] + Math.min(1, Math.max(0, share)) * (view[1] - view[0]);
    };
    const placeOf = value => left + (value - view[0]) / (view[1] - view[0]) * width;

    function show([a, b]) {
      view = [a, b];
      if (values.open) values.lastChild.textContent = csv();
      for (const mark of marks) {
        const at = from + mark.dataset.at * (to - from);
        // Keys use `hidden`.
        mark.toggleAttribute("data-outside", at < a || at > b);
        mark.setAttribute("transform", mark.getAttribute("transform").replace(/translate\([^ ]+/, `translate(${placeOf(at).toFixed(1)}`));
      }
      const scale = inside / (to - from);
      plot.setAttribute("viewBox", `${(a - from) * scale} 0 ${(b - a) * scale} ${tall}`);
      along.replaceChildren();
      for (const [at, text] of ticks(a, b)) {
        const x = placeOf(at);
        put(along, "line", { class: "grid", x1: x, x2: x, y1: top, y2: top + height });
        put(along, "text", { class: "soft", x, y: top + height + 14, "text-anchor": "middle" }, text);
      }
    }

    function point(next) {
      value = next;
      reading.replaceChildren();
      cursor.setAttribute("visibility", value == null ? "hidden" : "visible");
      if (value == null) return;
      const x = placeOf(value);
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      read ??= paths.map(path => places(path.getAttribute("d")));
      reading.append(withUnit(value, digitsX, unitX));
      const fine = (value - from) / (to - from) * inside;
      const isRead = (path, { xs }) => !path.hasAttribute("hidden") && !("events" in path.dataset) && xs.length;
      const shown = paths.map((path, n) => [path, read[n]]).filter(one => isRead(...one));
      for (const [path, { xs, ys }] of shown.slice(0, NAMED)) {
        const n = nearest(xs, fine);
        // No value beyond the ends of the line.
        const far = fine < xs[0] - inside / 50 || fine > xs[xs.length - 1] + inside / 50;
        const name = document.createElement("b");
        name.style.color = getComputedStyle(path).stroke;
        name.textContent = path.dataset.name;
        const text = far ? "–" : withUnit(high - ys[n] / tall * (high - low), digitsY, unitY);
        reading.append("  ·  ", name, " ", text);
      }
    }

    function select(a, b) {
      selection.setAttribute("visibility", a == null ? "hidden" : "visible");
      if (a == null) return;
      selection.setAttribute("x", placeOf(Math.min(a, b)));
      selection.setAttribute("width", Math.abs(placeOf(a) - placeOf(b)));
    }

    // The view after a key, and the value under the cursor; null for keys without a meaning.
    function afterKey(event) {
      const [a, b] = view, at = value ?? (a + b) / 2, step = (b - a) / (event.shiftKey ? 10 : 100);
      const inView = moved => ({ view, value: Math.min(b, Math.max(a, moved)) });
      const zoomed = times => {
        const half = Math.max((to - from) / 1e4, (b - a) * times / 2);
        const begin = Math.max(from, Math.min(at - half, to - 2 * half));
        return { view: [begin, Math.min(to, begin + 2 * half)], value: at };
      };
      switch (event.key) {
        case "ArrowLeft": return inView(at - step);
        case "ArrowRight": return inView(at + step);
        case "Home": return inView(a);
        case "End": return inView(b);
        case "+": case "=": return zoomed(0.5);
        case "-": return zoomed(2);
        case "Escape": return { view: [from, to], value: null };
        default: return null;
      }
    }

    return { box, svg, valueAt, placeOf, show, point, select, afterKey, whole: () => show([from, to]), along: box.dataset.along };
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
    one.svg.addEventListener("keydown", event => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const next = one.afterKey(event);
      if (!next) return;
      event.preventDefault();
      all("show", next.view);
      all("point", next.value);
    });
    one.svg.addEventListener("blur", () => all("point", null));
  }

  // Still charts have their values as text.
  for (const box of document.querySelectorAll("figure.still")) {
    addSaves(box, box.querySelector("svg"), () => box.querySelector(".values pre").textContent);
  }

  const keys = [...document.querySelectorAll(".keys button")];
  keys.forEach((key, n) => {
    key.onclick = () => {
      const hidden = key.getAttribute("aria-pressed") === "true";
      key.setAttribute("aria-pressed", !hidden);
      document.querySelectorAll(`.live [data-of="${n}"]`).forEach(line => line.toggleAttribute("hidden", hidden));
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
