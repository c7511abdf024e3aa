// Charts over time (uPlot): lines that keep their newest points, and bars of counts.

import { count, element } from "./dom.js";

const COLOURS = ["#0b8f8c", "#c9751e", "#7a68d8", "#d0507a", "#3d7ec9", "#7d9b2f"];
const ink = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(name);
const axis = { stroke: ink("--soft"), grid: { stroke: "rgba(128,128,128,.16)", width: 1 }, ticks: { show: false }, font: "12px system-ui" };

function plotted(title, options, data, height) {
  const holder = element("div", { role: "img", "aria-label": title, class: "chart" });
  const plot = new uPlot({ width: 520, height, cursor: { y: false, points: { size: 6 } }, ...options }, data, holder);
  new ResizeObserver(([entry]) => {
    const width = Math.max(240, Math.floor(entry.contentRect.width));
    if (width !== plot.width) plot.setSize({ width, height });
  }).observe(holder);
  return { holder, plot };
}

// `x` is "time" (seconds) or "number"; `add` appends a point, `set` replaces all.
export function lines(title, names, { most = 300, height = 190, format = count, x = "time" } = {}) {
  const data = [[], ...names.map(() => [])];
  const series = names.map((label, index) => ({
    label, stroke: COLOURS[index % COLOURS.length], width: 2, points: { show: false }, spanGaps: true,
    value: (_, value) => value === null || value === undefined ? "–" : format(value),
  }));
  const first = x === "time" ? { value: "{HH}:{mm}:{ss}", label: "time" } : { label: x };
  const { holder, plot } = plotted(title, {
    scales: { x: { time: x === "time", range: (_, low, high) => low === high ? [low - 5, high + 1] : [low, high] }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1] } },
    series: [first, ...series], legend: { live: true },
    axes: [{ ...axis, values: x === "time" ? "{HH}:{mm}:{ss}" : undefined, space: 80 }, { ...axis, size: 66, values: (_, ticks) => ticks.map(format) }],
  }, data, height);
  const draw = () => {
    plot.setData(data);
    const newest = names.map((name, index) => `${name} ${data[index + 1].length ? format(data[index + 1].at(-1) ?? 0) : "nothing yet"}`);
    holder.setAttribute("aria-label", `${title}: ${newest.join(", ")}`);
  };
  return {
    holder,
    add(at, values) {
      [at, ...values].forEach((value, index) => { data[index].push(value); if (data[index].length > most) data[index].shift(); });
      draw();
    },
    set(columns) { columns.forEach((column, index) => { data[index] = column.slice(-most); }); draw(); },
  };
}

// Counts over time as bars; `onpick(seconds)` when the reader clicks at a time.
export function bars(title, label, onpick, { height = 110 } = {}) {
  const { holder, plot } = plotted(title, {
    legend: { show: false }, cursor: { y: false, drag: { x: false, y: false } },
    scales: { x: { time: true, range: (_, low, high) => [low, high + ((high - low) / 100 || 1)] }, y: { range: (_, __, high) => [0, high || 1] } },
    series: [{}, { label, stroke: COLOURS[0], fill: "rgba(11,143,140,.55)", width: 0, paths: uPlot.paths.bars({ size: [0.9, 60], align: 1 }), points: { show: false } }],
    axes: [{ ...axis, space: 90 }, { ...axis, size: 66, values: (_, ticks) => ticks.map(count) }],
  }, [[], []], height);
  plot.over.addEventListener("click", () => { if (plot.cursor.left >= 0) onpick(plot.posToVal(plot.cursor.left, "x")); });
  return { holder, set: (times, values) => plot.setData([times, values]) };
}
