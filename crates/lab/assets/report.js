"use strict";
// Everything is drawn from the JSON in #data: { setup, contenders: [{ label, algorithm, native, cwnd, throughput, … }] }.
const data = JSON.parse(document.getElementById("data").textContent);

// One hue an algorithm (Okabe and Ito's set, which the colour-blind can tell apart); ccplane's lines are solid and
// heavy, native ones beside them dashed and in the hue's other shade, so that they differ in grey print too.
const HUES = [
  { light: ["#0072b2", "#3aa0dd"], dark: ["#4db2f0", "#9cd3f7"] },
  { light: ["#c04a00", "#f08a45"], dark: ["#ff8f4a", "#ffc29c"] },
  { light: ["#00805c", "#37b892"], dark: ["#2fcf9f", "#9be5cd"] },
  { light: ["#a3427a", "#d98bb8"], dark: ["#ee8fc6", "#f6c4e1"] },
  { light: ["#6b5b00", "#b39a1c"], dark: ["#dcc437", "#efe08e"] },
  { light: ["#444b52", "#8b949e"], dark: ["#c2cad2", "#8b949e"] },
];
const families = [...new Set(data.contenders.map(c => c.algorithm))];
const shown = data.contenders.map(() => true);
const theme = () => document.documentElement.dataset.theme === "dark" ? "dark" : "light";
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A second variant of the same kind (same algorithm with other parameters) is told apart by its dashes.
const VARIANTS = [[], [2, 3], [9, 3, 2, 3]];
const NATIVE_VARIANTS = [[7, 4], [4, 3], [7, 3, 2, 3]];
const mixed = data.contenders.some(c => c.native) && data.contenders.some(c => !c.native);
function look(contender) {
  const hue = HUES[families.indexOf(contender.algorithm) % HUES.length][theme()];
  const kin = data.contenders.filter(c => c.algorithm === contender.algorithm && c.native === contender.native);
  const second = mixed && contender.native;
  const dashes = second ? NATIVE_VARIANTS : VARIANTS;
  return { stroke: hue[second ? 1 : 0], width: second ? 1.6 : 1.8, dash: dashes[kin.indexOf(contender) % 3] };
}

function swatch(contender) {
  const { stroke, width, dash } = look(contender);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  for (const [k, v] of Object.entries({ width: 30, height: 10, "aria-hidden": true })) svg.setAttribute(k, v);
  const shape = { x1: 1, x2: 29, y1: 5, y2: 5, stroke, "stroke-width": width + 1, "stroke-dasharray": dash.join(" ") };
  for (const [k, v] of Object.entries(shape)) line.setAttribute(k, v);
  svg.append(line);
  return svg;
}

const max = values => values.reduce((most, v) => (v > most ? v : most), 0);
const format = (v, digits) => (v == null ? "–" : v.toFixed(digits));
const charts = [];

// A chart of `lines` [{ contender, label, values, thin }] over the shared `x`, under the same y range as its siblings.
function draw(parent, { title, xs, lines, unitX, unitY, digits, guides = [], yMax, sync, share = false }) {
  const box = parent.appendChild(document.createElement("div"));
  box.className = "chart";
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", `${unitY} over ${unitX}: ${lines.map(l => l.label).join(", ")}`);
  box.appendChild(document.createElement("h3")).textContent = title;
  const reading = document.createElement("div"), onPaper = document.documentElement.classList.contains("paper");
  const axis = { stroke: css("--muted"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--line"), width: 1, size: 5 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 20 };
  const options = {
    width: Math.max(280, box.clientWidth), height: onPaper ? 150 : share ? 300 : 270, legend: { show: false },
    cursor: { y: false, points: { size: 6 }, sync: sync ? { key: sync, setSeries: false } : undefined },
    padding: [10, 12, 0, 0],
    scales: { x: { time: false }, y: { range: [0, yMax] } },
    axes: [
      { ...axis, label: unitX, size: 34 },
      { ...axis, label: unitY, size: 52, values: share ? (_, v) => v.map(n => Math.round(n * 100) + " %") : undefined },
    ],
    series: [{}, ...lines.map(line => {
      const style = { ...look(line.contender), ...line.style };
      return { ...style, label: line.label, width: line.thin ? 1 : style.width, alpha: line.thin ? 0.75 : 1, points: { show: false }, spanGaps: true, show: shown[data.contenders.indexOf(line.contender)] };
    })],
    hooks: {
      draw: [u => {
        const { ctx, bbox } = u, ratio = devicePixelRatio;
        ctx.save();
        ctx.font = `${11.5 * ratio}px system-ui, sans-serif`;
        ctx.textAlign = "right";
        for (const guide of guides.filter(g => g.at > 0 && g.at <= yMax)) {
          const y = Math.round(u.valToPos(guide.at, "y", true));
          ctx.strokeStyle = ctx.fillStyle = css("--guide");
          ctx.lineWidth = ratio;
          ctx.setLineDash([2 * ratio, 3 * ratio]);
          ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
          ctx.setLineDash([]);
          ctx.lineWidth = 4 * ratio;
          ctx.strokeStyle = css("--page");
          ctx.strokeText(guide.label, bbox.left + bbox.width - 3 * ratio, y - 4 * ratio);
          ctx.fillText(guide.label, bbox.left + bbox.width - 3 * ratio, y - 4 * ratio);
        }
        ctx.restore();
      }],
      setCursor: [u => {
        const i = u.cursor.idx;
        reading.replaceChildren();
        if (i == null) return;
        reading.append(`${format(xs[i], share ? digits : 2)} ${unitX.replace(/^[^(]*\(|\)$/g, "")}`);
        lines.slice(0, 8).forEach((line, n) => {
          if (!u.series[n + 1].show) return;
          const value = line.values[i];
          const name = document.createElement("b");
          name.style.color = look(line.contender).stroke;
          name.textContent = line.label;
          reading.append("  ·  ", name, " ", share ? format(value * 100, 1) + " %" : format(value, digits));
        });
      }],
    },
  };
  const plot = new uPlot(options, [xs, ...lines.map(l => l.values)], box);
  reading.className = "reading";
  box.append(reading);
  charts.push({ plot, box, lines });
}

const places = name => document.querySelector(`[data-chart="${name}"]`);
// Contenders side by side by algorithm, when an algorithm has more than one of them; else all in one.
const byAlgorithm = families.map(f => ({ title: f, members: data.contenders.filter(c => c.algorithm === f) }));
const facets = data.contenders.length > families.length ? byAlgorithm : [{ title: families.join(", "), members: data.contenders }];
// Lines of many flows on top of each other would hide one another: these are always side by side.
const flowFacets = data.flow_s.length ? byAlgorithm : facets;
const head = values => max(values) * 1.08 || 1;

// The share of bins at or below each x, from the values at evenly spaced shares, ascending.
function shares(values, grid) {
  let n = 0;
  return grid.map(x => { while (n < values.length && values[n] <= x) n++; return values.length ? n / values.length : null; });
}

function drawAll() {
  charts.splice(0).forEach(({ plot, box }) => { plot.destroy(); box.remove(); });
  const { setup } = data, all = data.contenders;
  for (const name of ["cdf", "fct"]) places(name)?.style.setProperty("--columns", 2);
  for (const name of ["cwnd", "flows", "throughput", "delay"]) {
    const of = name === "cwnd" || name === "flows" ? flowFacets : facets;
    places(name)?.style.setProperty("--columns", Math.min(of.length, 2));
  }
  const holds = all.map(c => max(c.cwnd.map(max)));
  const cwndGuides = [{ at: setup.bdp_segments, label: "BDP" }];
  if (setup.full_segments) cwndGuides.push({ at: setup.full_segments, label: "BDP + queue" });
  const fullDelay = setup.full_delay_ms;
  const each = (members, key) => members.flatMap(c => c[key].map((values, i) => {
    const several = c[key].length > 1;
    return { contender: c, values, thin: several, label: several ? `${c.label} ${i + 1}` : c.label };
  }));
  for (const { title, members } of flowFacets) {
    draw(places("cwnd"), {
      title, xs: data.sample_s, unitX: "time (s)", unitY: "cwnd (segments)", digits: 0, guides: cwndGuides, yMax: head([...holds.filter(Number.isFinite), setup.bdp_segments]), sync: "time", lines: each(members, "cwnd"),
    });
    if (data.flow_s.length) draw(places("flows"), {
      title, xs: data.flow_s, unitX: "time (s)", unitY: "goodput (Mbit/s)", digits: 2, guides: [{ at: setup.rate_mbit / setup.flows, label: "fair share" }], yMax: head(all.map(c => max(c.goodput.map(max)))), sync: "time", lines: each(members, "goodput"),
    });
  }
  for (const { title, members } of facets) {
    const line = key => members.map(c => ({ contender: c, label: c.label, values: c[key] }));
    draw(places("throughput"), {
      title, xs: data.bin_s, unitX: "time (s)", unitY: "Mbit/s", digits: 2, guides: [{ at: setup.rate_mbit, label: "link" }], yMax: head([...all.map(c => max(c.smoothed)), setup.rate_mbit]), sync: "time", lines: line("smoothed"),
    });
    draw(places("delay"), {
      title, xs: data.bin_s, unitX: "time (s)", unitY: "ms", digits: 2, guides: fullDelay ? [{ at: fullDelay, label: "full queue" }] : [], yMax: head([...all.map(c => max(c.delay)), fullDelay && fullDelay < 2 * max(all.map(c => max(c.delay))) ? fullDelay : 0]), sync: "time", lines: line("delay"),
    });
  }
  const distribution = (title, key, unitX, digits, { place = "cdf", what = "share of bins", upTo = 1 } = {}) => {
    const sorted = all.map(c => c[key]);
    const top = max(sorted.map(s => s[Math.ceil(s.length * upTo) - 1] ?? 0)) * 1.02 || 1;
    const low = Math.min(...sorted.map(s => s[Math.floor(s.length / 50)] ?? 0));
    const from = low > top / 2 ? low * 0.98 : 0;
    const grid = Array.from({ length: 501 }, (_, i) => from + (top - from) * i / 500);
    draw(places(place), {
      title, xs: grid, unitX, unitY: what, digits, yMax: 1, share: true,
      lines: all.map((c, i) => ({ contender: c, label: c.label, values: shares(sorted[i], grid) })),
    });
  };
  distribution("Throughput", "throughput_ecdf", "throughput (Mbit/s)", 1);
  distribution("Queueing delay", "delay_ecdf", "queueing delay (ms)", 2);
  for (const c of places("stamps") ? all.filter(c => c.stamped.s.length) : []) {
    const { s, stamps, link } = c.stamped;
    draw(places("stamps"), {
      title: c.label, xs: s, unitX: "time (s)", unitY: "ms", digits: 3, yMax: head([...stamps, ...link]), sync: "time",
      lines: [
        { contender: c, label: "the link's log", values: link, style: { stroke: css("--guide"), width: 1, dash: [] } },
        { contender: c, label: "time stamps", values: stamps, thin: true },
      ],
    });
  }
  if (places("fct")) {
    // The longest flows would press all others against the left edge.
    const flows = { place: "fct", what: "share of flows", upTo: 0.99 };
    distribution("Completion time", "fct_ecdf", "completion time (ms)", 3, flows);
    distribution("Slowdown", "slowdown_ecdf", "slowdown (times alone)", 2, flows);
  }
}

function drawKeys() {
  const keys = document.querySelector(".keys");
  keys.replaceChildren();
  data.contenders.forEach((c, i) => {
    const key = keys.appendChild(document.createElement("button"));
    key.type = "button";
    key.setAttribute("aria-pressed", shown[i]);
    key.append(swatch(c), c.label);
    key.onclick = () => {
      shown[i] = !shown[i];
      key.setAttribute("aria-pressed", shown[i]);
      charts.forEach(({ plot, lines }) => lines.forEach((l, n) => l.contender === c && plot.setSeries(n + 1, { show: shown[i] })));
    };
  });
  document.querySelectorAll("#contenders td:first-child").forEach((cell, i) => {
    cell.querySelector("svg")?.remove();
    cell.prepend(swatch(data.contenders[i]));
  });
}

function wear(name) {
  document.documentElement.dataset.theme = name;
  document.querySelector(".theme").textContent = name === "dark" ? "Light" : "Dark";
  drawKeys();
  drawAll();
}
document.querySelector(".theme").onclick = () => wear(theme() === "dark" ? "light" : "dark");
let waiting;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(drawAll, 150); });
// Paper is white, and as wide as a sheet of A4 between its margins, whatever the window is.
let before = "light";
function paper(on) {
  document.documentElement.classList.toggle("paper", on);
  wear(on ? "light" : before);
}
addEventListener("beforeprint", () => { before = theme(); paper(true); });
addEventListener("afterprint", () => paper(false));
wear(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
