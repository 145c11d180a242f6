// The report: what is drawn of the runs, and what the slider, the legend, the table's heads and the theme button do.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const hidden = new Set();
const byId = (id) => document.getElementById(id);
const shown = (entries) => entries.filter(({ codec }) => !hidden.has(codec));
const named = (codec) => data.codecs[codec];
let rate = data.rate;

// Seconds at the chosen speed: every byte over the link, and all else as recorded; nothing overlaps.
const travel = (bytes) => bytes * 8 / rate;
const times = (curve) => curve.base.map((base, k) => base + travel(curve.bytes[k]));

const kinds = {
  steps: (curve) => [curve.step, "steps", formats.plain],
  bytes: (curve) => [curve.bytes, "sent by one worker", formats.bytes],
  time: (curve) => [times(curve), `time at ${formats.rate(rate)}`, formats.seconds],
};
function drawCurves(what, kind) {
  const host = byId(`${what}-${kind}`);
  if (!host) return;
  const curves = shown(data[what].curves);
  const [, xName, xFormat] = kinds[kind]({ step: [], bytes: [], base: [] });
  lineChart(host, {
    series: curves.map((curve) => ({ x: kinds[kind](curve)[0], y: curve.y, colour: named(curve.codec).colour,
      thin: curve.thin, label: named(curve.codec).name })),
    xName, xFormat, xLog: kind === "bytes" && data.wide, yName: data[what].axis, yLog: data[what].log, cut: data[what].cut,
  });
}

function drawStages() {
  const rows = shown(data.codecs.map((one, codec) => ({ ...one, codec }))).map((one) => {
    const values = { ...one.stages, travel: travel(one.bytes_per_step) };
    const parts = Object.keys(data.stages).filter((name) => values[name] !== undefined)
      .map((name) => ({ name, value: values[name], colour: data.stages[name] }));
    return { name: one.name, parts, text: formats.seconds(parts.reduce((sum, { value }) => sum + value, 0)) };
  });
  stackChart(byId("stages"), { rows, xName: `one step at ${formats.rate(rate)}`, format: formats.seconds });
}

function drawHistory() {
  if (!byId("history")) return;
  const entry = data.history[byId("history-codec").value];
  const series = Object.entries(entry.stages).map(([name, values]) => ({ x: entry.step,
    y: values.map((value) => 1e3 * value), colour: data.stages[name], label: name }));
  lineChart(byId("history"), { series, xName: "steps", yName: "milliseconds a step", xFormat: formats.plain });
}

function drawLayers() {
  if (!byId("layer-errors")) return;
  const rowsOf = (value) => data.layers.map(({ name, of }) => ({ name, dots: shown(of)
    .filter((entry) => entry[value] !== null)
    .map((entry) => ({ value: entry[value], colour: named(entry.codec).colour, label: named(entry.codec).name })) }));
  dotChart(byId("layer-errors"), { rows: rowsOf("error"), xName: "relative error", format: formats.plain });
  dotChart(byId("layer-bytes"), { rows: rowsOf("bytes"), xName: "bytes a step", format: formats.bytes, log: true });
}

function drawStrengths() {
  if (!byId("levels")) return;
  const series = shown(data.levels.curves).map((curve) => ({ ...curve, colour: named(curve.codec).colour,
    label: named(curve.codec).name }));
  lineChart(byId("levels"), { series, xName: "steps", yName: data.levels.axis, xFormat: formats.plain });
}

function drawHistograms() {
  if (!byId("histograms")) return;
  const entry = data.histograms[byId("histogram-codec").value];
  const layer = byId("histogram-layer");
  const kept = layer.value;
  layer.replaceChildren(...entry.layers.map((one, k) => new Option(one.name, k)));
  if (kept && kept < entry.layers.length) layer.value = kept;
  const looks = entry.layers[layer.value || 0].looks;
  byId("histograms").replaceChildren(...looks.map(() => Object.assign(document.createElement("div"), { className: "plot" })));
  looks.forEach((look, k) => histogramChart(byId("histograms").children[k],
    { ...look, title: `step ${look.step}`, colour: named(entry.codec).colour }));
}

// The time of a whole run, in the table's last column.
function fillTimes() {
  for (const cell of document.querySelectorAll("td[data-codec]")) {
    const one = named(cell.dataset.codec);
    const seconds = one.steps * (Object.values(one.stages).reduce((a, b) => a + b, 0) + travel(one.bytes_per_step));
    cell.dataset.value = seconds;
    cell.textContent = formats.seconds(seconds);
  }
}

function drawTimes() {
  byId("rate-text").textContent = formats.rate(rate);
  for (const what of ["score", "loss"]) drawCurves(what, "time");
  drawStages();
  fillTimes();
}
function drawAll() {
  for (const what of ["score", "loss"]) for (const kind of ["steps", "bytes"]) drawCurves(what, kind);
  for (const draw of [drawTimes, drawLayers, drawStrengths, drawHistory, drawHistograms]) draw();
}

function listen() {
  byId("rate").value = Math.log10(rate);
  byId("rate").addEventListener("input", (event) => {
    rate = Number((10 ** Number(event.target.value)).toPrecision(1));
    drawTimes();
  });
  for (const button of document.querySelectorAll(".legend button"))
    button.addEventListener("click", () => {
      const codec = Number(button.dataset.codec);
      if (!hidden.delete(codec)) hidden.add(codec);
      button.setAttribute("aria-pressed", !hidden.has(codec));
      drawAll();
    });
  for (const head of document.querySelectorAll("th[aria-sort]")) {
    head.tabIndex = 0;
    head.addEventListener("click", () => sortBy(head));
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sortBy(head); });
  }
  for (const id of ["histogram-codec", "histogram-layer"])
    if (byId(id)) byId(id).addEventListener("change", drawHistograms);
  if (byId("history-codec")) byId("history-codec").addEventListener("change", drawHistory);
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  let width = window.innerWidth;
  window.addEventListener("resize", () => { if (width !== window.innerWidth) { width = window.innerWidth; drawAll(); } });
}

function sortBy(head) {
  const table = head.closest("table"), column = head.cellIndex;
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of head.parentNode.cells) if (other.ariaSort) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const key = (row) => row.cells[column].dataset.value;
  const order = (a, b) => (isNaN(key(a)) || isNaN(key(b)) ? key(a).localeCompare(key(b)) : key(a) - key(b)) * (up ? 1 : -1);
  table.tBodies[0].append(...[...table.tBodies[0].rows].sort(order));
}

listen();
drawAll();
