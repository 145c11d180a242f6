// Charts as SVG: lines, dots by row, stacked bars by row, histograms. Each draws into an element, as wide as it is.
"use strict";

function make(name, attributes, parent, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

// Three digits, and a unit that keeps the number short.
function digits(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(0).replace("e+", "e");
  return String(Number(value.toPrecision(size >= 1000 ? 4 : 3)));
}
function inUnits(value, units) {
  const [name, size] = units.find(([, least]) => Math.abs(value) >= least) || units[units.length - 1];
  return digits(value / size) + " " + name;
}
const formats = {
  plain: digits,
  bytes: (value) => value === 0 ? "0" : inUnits(value, [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]]),
  seconds: (value) => value === 0 ? "0" : inUnits(value, [["d", 86400], ["h", 3600], ["min", 60], ["s", 1], ["ms", 1e-3]]),
  rate: (value) => inUnits(value, [["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3]]),
};

// Round steps between two numbers: 1, 2 or 5 times a power of ten; of times, parts of minutes and hours.
function ticksOf(low, high, count, format) {
  const times = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 18000, 36000, 86400];
  const least = (high - low) / count;
  let step = 10 ** Math.floor(Math.log10(least));
  step *= [1, 2, 5, 10].find((factor) => factor * step >= least);
  if (format === formats.seconds && least > 1) step = times.find((time) => time >= least) || step;
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) ticks.push(k * step);
  return ticks;
}
function logTicks(low, high, count) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const factor of [1, 2, 5]) ticks.push(factor * 10 ** power);
  const inside = ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  if (inside.length <= count) return inside;
  const tens = inside.filter((tick) => Math.abs(Math.log10(tick) % 1) < 1e-6);
  const every = Math.ceil(tens.length / count);
  return tens.length < 2 ? inside.filter((_, k) => k % 2 === 0) : tens.filter((_, k) => k % every === 0);
}
function scaleOf(low, high, from, to, log) {
  const map = log ? Math.log : (value) => value;
  const [a, b] = [map(low), map(high)];
  const scale = (value) => from + (map(value) - a) / (b - a || 1) * (to - from);
  return Object.assign(scale, { low, high });
}

// A text as long as there is room for it.
function cut(text, width) {
  const most = Math.floor(width / 7.5);
  return text.length <= most ? text : text.slice(0, most - 1) + "\u2026";
}

function canvas(host, height, label) {
  host.replaceChildren();
  const width = Math.max(140, host.clientWidth);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label }, host);
  return { svg, width, height };
}

const tip = document.createElement("div");
tip.className = "tip";
function showTip(event, lines) {
  tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
  if (!tip.parentNode) document.body.appendChild(tip);
  const right = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 6);
  tip.style.left = Math.max(6, right) + "px";
  tip.style.top = Math.max(6, event.clientY - tip.offsetHeight - 12) + "px";
}
function hideTip() { tip.remove(); }

// series: {x, y, colour, label, thin}; y may hold nulls, which are gaps. cut: part of each curve's start that may leave
// the plot, so that the end can be seen.
function lineChart(host, { series, xName, yName, xFormat, xLog, yLog, cut, height }) {
  const box = canvas(host, height || 250, `${yName} against ${xName}`);
  const seen = series.flatMap(({ y }) => y.filter((v, k) => v !== null && k >= (cut || 0) * y.length && (!yLog || v > 0)));
  const xs = series.flatMap(({ x }) => x).filter((value) => value > 0);
  if (!seen.length) return void make("text", { x: 10, y: 30 }, box.svg, "nothing to draw");
  let [low, high] = [seen.reduce((a, b) => Math.min(a, b)), seen.reduce((a, b) => Math.max(a, b))];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  if (!yLog) [low, high] = [low - room, high + room];
  else if (low === high) [low, high] = [low / 2, high * 2];
  const yTicks = yLog ? logTicks(low, high, 6) : ticksOf(low, high, 5, formats.plain);
  const left = 14 + 7 * Math.max(...yTicks.map((tick) => digits(tick).length), 2);
  const y = scaleOf(low, high, box.height - 40, 22, yLog);
  const end = xs.reduce((a, b) => Math.max(a, b), 0) || 1, start = xLog ? xs.reduce((a, b) => Math.min(a, b), end) : 0;
  const x = scaleOf(start, end, left, box.width - 14, xLog);
  const count = Math.max(2, Math.floor(box.width / 95));
  const xTicks = xLog ? logTicks(start, end, count) : ticksOf(0, end, count, xFormat);
  axes(box, x, y, xTicks, yTicks, xFormat, xName, yName, left);
  const clip = `clip${++lineChart.count}`;
  const hole = make("clipPath", { id: clip }, make("defs", {}, box.svg));
  make("rect", { x: left - 4, y: 18, width: box.width - left, height: box.height - 54 }, hole);
  const inside = make("g", { "clip-path": `url(#${clip})` }, box.svg);
  for (const one of series) {
    const path = pathOf(one, x, y, xLog, yLog);
    make("path", { d: path, fill: "none", stroke: one.colour, "stroke-width": one.thin ? 1 : 2.2,
      "stroke-opacity": one.thin ? 0.35 : 1, "stroke-linejoin": "round", class: "curve" }, inside);
  }
  const mark = make("circle", { r: 4, visibility: "hidden", stroke: "var(--paper)", "stroke-width": 1.5 }, box.svg);
  box.svg.addEventListener("pointerleave", () => { mark.setAttribute("visibility", "hidden"); hideTip(); });
  box.svg.addEventListener("pointermove", (event) => {
    const place = box.svg.getBoundingClientRect();
    const near = nearest(series, x, y, event.clientX - place.left, event.clientY - place.top);
    if (!near) return;
    const [one, k] = near;
    for (const [key, value] of [["cx", x(one.x[k])], ["cy", y(one.y[k])], ["fill", one.colour], ["visibility", "visible"]])
      mark.setAttribute(key, value);
    showTip(event, [one.label, `${xName}: ${xFormat(one.x[k])}`, `${yName}: ${Number(one.y[k].toPrecision(4))}`]);
  });
}
lineChart.count = 0;

function pathOf({ x: xs, y: ys }, x, y, xLog, yLog) {
  let path = "", down = false;
  ys.forEach((value, k) => {
    const there = value !== null && (!xLog || xs[k] > 0) && (!yLog || value > 0);
    if (there) path += `${down ? "L" : "M"}${x(xs[k]).toFixed(1)} ${y(value).toFixed(1)}`;
    down = there;
  });
  return path;
}
function nearest(series, x, y, left, top) {
  let best = null, least = Infinity;
  for (const one of series)
    one.y.forEach((value, k) => {
      if (value === null || one.thin) return;
      const distance = (x(one.x[k]) - left) ** 2 + 0.4 * (y(value) - top) ** 2;
      if (distance < least) [best, least] = [[one, k], distance];
    });
  return best;
}
function axes(box, x, y, xTicks, yTicks, xFormat, xName, yName, left) {
  const bottom = box.height - 40;
  for (const tick of yTicks) {
    make("line", { x1: left, x2: box.width - 14, y1: y(tick), y2: y(tick), class: "grid" }, box.svg);
    make("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, box.svg, digits(tick));
  }
  xTicks.forEach((tick, k) => {
    const end = k > 0 && x(tick) > box.width - 30;
    make("text", { x: end ? box.width - 2 : x(tick), y: bottom + 16, "text-anchor": end ? "end" : "middle", class: "tick" },
      box.svg, xFormat(tick));
  });
  make("line", { x1: left, x2: box.width - 14, y1: bottom, y2: bottom, class: "axis" }, box.svg);
  make("text", { x: (left + box.width) / 2, y: box.height - 6, "text-anchor": "middle", class: "xname" }, box.svg, xName);
  make("text", { x: 2, y: 11 }, box.svg, yName);
}

// rows: {name, dots: [{value, colour, label}]}; the name stands above its line.
function dotChart(host, { rows, xName, format, log }) {
  const box = canvas(host, 34 * rows.length + 40, xName);
  const values = rows.flatMap(({ dots }) => dots.map(({ value }) => value)).filter((value) => value > 0);
  const high = values.reduce((a, b) => Math.max(a, b), 0) || 1;
  const low = log ? values.reduce((a, b) => Math.min(a, b), high) / 1.3 : 0;
  const x = scaleOf(low, log ? high * 1.3 : high * 1.04, 8, box.width - 12, log);
  const count = Math.max(2, Math.floor(box.width / 85));
  for (const tick of log ? logTicks(x.low, x.high, count) : ticksOf(0, x.high, count, format)) {
    make("line", { x1: x(tick), x2: x(tick), y1: 4, y2: 34 * rows.length + 4, class: "grid" }, box.svg);
    make("text", { x: x(tick), y: 34 * rows.length + 18, "text-anchor": "middle" }, box.svg, format(tick));
  }
  rows.forEach(({ name, dots }, k) => {
    const top = 34 * k;
    make("text", { x: 2, y: top + 13, class: "name" }, box.svg, cut(name, box.width));
    make("line", { x1: 8, x2: box.width - 12, y1: top + 25, y2: top + 25, class: "axis" }, box.svg);
    for (const { value, colour, label } of dots) {
      const dot = make("circle", { cx: x(log ? Math.max(value, x.low) : value), cy: top + 25, r: 5, fill: colour,
        stroke: "var(--paper)", class: "dot" }, box.svg);
      dot.addEventListener("pointerenter", (event) => showTip(event, [label, name, format(value)]));
      dot.addEventListener("pointerleave", hideTip);
    }
  });
  make("text", { x: box.width / 2, y: box.height - 4, "text-anchor": "middle" }, box.svg, xName);
}

// rows: {name, text, parts: [{name, value, colour}]}; parts follow each other.
function stackChart(host, { rows, xName, format }) {
  const box = canvas(host, 46 * rows.length + 40, xName);
  const total = ({ parts }) => parts.reduce((sum, { value }) => sum + value, 0);
  const x = scaleOf(0, rows.reduce((most, row) => Math.max(most, total(row)), 0) || 1, 2, box.width - 14);
  const bottom = 46 * rows.length;
  for (const tick of ticksOf(0, x.high, Math.max(2, Math.floor(box.width / 95)), format)) {
    make("line", { x1: x(tick), x2: x(tick), y1: 2, y2: bottom, class: "grid" }, box.svg);
    make("text", { x: x(tick), y: bottom + 16, "text-anchor": tick ? "middle" : "start", class: "tick" }, box.svg, format(tick));
  }
  rows.forEach((row, k) => {
    const top = 46 * k;
    make("text", { x: 2, y: top + 15, class: "name" }, box.svg,
      `${cut(row.name, box.width - 90)}: ${row.text}`);
    let sum = 0;
    for (const { name, value, colour } of row.parts) {
      const part = make("rect", { x: x(sum), y: top + 21, width: Math.max(0, x(sum + value) - x(sum)), height: 17,
        fill: colour, class: "part" }, box.svg);
      part.addEventListener("pointerenter", (event) => showTip(event, [row.name, `${name}: ${format(value)}`]));
      part.addEventListener("pointerleave", hideTip);
      sum += value;
    }
  });
  make("text", { x: box.width / 2, y: box.height - 4, "text-anchor": "middle" }, box.svg, xName);
}

// Two histograms over the same bins; heights are square roots, for most gradients lie near zero.
function histogramChart(host, { title, own, mean, limit, colour }) {
  const box = canvas(host, 120, title);
  const most = Math.sqrt(Math.max(...own, ...mean, 1));
  const x = scaleOf(0, own.length, 2, box.width - 2), y = scaleOf(0, most, 100, 18);
  make("text", { x: 2, y: 12, class: "name" }, box.svg, title);
  own.forEach((count, k) => make("rect", { x: x(k), width: x(1) - x(0), y: y(Math.sqrt(count)),
    height: 100 - y(Math.sqrt(count)), fill: "var(--quiet)", "fill-opacity": 0.35 }, box.svg));
  const steps = mean.map((count, k) => `${k ? "L" : "M"}${x(k)} ${y(Math.sqrt(count))}L${x(k + 1)} ${y(Math.sqrt(count))}`);
  make("path", { d: steps.join(""), fill: "none", stroke: colour, "stroke-width": 1.6 }, box.svg);
  make("line", { x1: 2, x2: box.width - 2, y1: 100, y2: 100, class: "axis" }, box.svg);
  make("text", { x: 2, y: 114 }, box.svg, digits(-limit));
  make("text", { x: box.width / 2, y: 114, "text-anchor": "middle" }, box.svg, "0");
  make("text", { x: box.width - 2, y: 114, "text-anchor": "end" }, box.svg, digits(limit));
}
