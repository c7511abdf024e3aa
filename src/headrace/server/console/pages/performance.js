// The performance monitor: times, rows, state and lag of each epoch, the costliest queries, and epochs one at a time.

import { json } from "../api.js";
import { lines } from "../chart.js";
import { bytes, card, count, duration, element, figure, link, percent, rate, renew, repeat, table } from "../dom.js";
import { stepper } from "../stepper.js";

const STAGES = ["execute", "scan", "fold", "state", "write", "publish"], STREAMS = 6;

export function performance(main, signal) {
  const figures = Object.fromEntries(["epochs a second", "rows a second", "median epoch", "99 % of epochs below"].map((label) => [label, figure(label)]));
  const ms = (value) => `${value.toFixed(value < 10 ? 1 : 0)} ms`;
  const stages = lines("Milliseconds of each stage of an epoch", STAGES, { format: ms }), rows = lines("Rows of an epoch", ["rows"]), state = lines("State on disk", ["bytes"], { format: bytes });
  const lag = element("div"), costly = element("div"), steps = stepper(), recent = [];
  let epoch = -1, behind = null, names = [];
  main.append(element("h1", {}, "Performance"), card("Epochs", steps.holder), element("div", { class: "grid" }, Object.values(figures).map((one) => one.holder)),
    element("div", { class: "grid wide" }, card("Milliseconds of each stage", stages.holder), card("Rows of an epoch", rows.holder), card("State", state.holder), card("Seconds that the watermark is behind", lag)), card("Costliest queries", costly));
  function take(one) {
    const at = one.at / 1e6, total = 1000 * ((one.seconds.execute ?? 0) + (one.seconds.publish ?? 0));
    stages.add(at, STAGES.map((stage) => stage in one.seconds ? 1000 * one.seconds[stage] : null));
    rows.add(at, [one.rows]);
    state.add(at, [one.state_bytes]);
    const of = Object.keys(one.lag).filter((name) => one.lag[name] !== null);
    if (!behind && of.length) {
      names = of.slice(0, STREAMS);
      behind = lines("Seconds that the watermark is behind", names, { format: (value) => `${value.toFixed(1)} s` });
      lag.replaceChildren(behind.holder);
    }
    behind?.add(at, names.map((name) => Number.isFinite(one.lag[name]) ? one.lag[name] / 1e6 : null));
    recent.push({ at, total, rows: one.rows });
    epoch = one.epoch;
  }
  repeat(signal, async () => {
    const now = await json(`/v1/epochs?after=${epoch}&limit=300`, { signal });
    now.epochs.forEach(take);
    recent.splice(0, Math.max(0, recent.length - 300));
    steps.set(now.running, now.epoch);
    const last = recent.filter((one) => one.at > Date.now() / 1000 - 10), seconds = 10, sorted = recent.map((one) => one.total).sort((one, other) => one - other);
    figures["epochs a second"].set((last.length / seconds).toFixed(1));
    figures["rows a second"].set(rate(Math.round(last.reduce((sum, one) => sum + one.rows, 0) / seconds)));
    figures["median epoch"].set(sorted.length ? ms(sorted[sorted.length >> 1]) : "–");
    figures["99 % of epochs below"].set(sorted.length ? ms(sorted[Math.floor(0.99 * (sorted.length - 1))]) : "–");
  });
  repeat(signal, async () => {
    const { queries } = await json("/v1/queries?sort=nanoseconds&limit=10", { signal });
    renew(costly, table("Costliest queries", [["query", (one) => link(one.name)], ["cost an epoch", (one) => duration(one.nanoseconds), "number"], ["share", (one) => percent(one.share), "number"],
      ["keeps", (one) => percent(one.selectivity), "number"], ["rows of state", (one) => one.state_rows === undefined ? "" : count(one.state_rows), "number"], ["text", (one) => element("code", { class: "short", title: one.text }, one.text), "text"]], queries));
  }, 3000);
}
