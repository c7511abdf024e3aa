// The rows that passed along one line of the network in each of the newest epochs: a chart that goes on until it is left.

import { json } from "./api.js";
import { lines } from "./chart.js";
import { count, element, problem, renew, repeat } from "./dom.js";

const EVERY = 2000;

// `ends` are the names of two boxes and `titles` their words; `asked` is what the picture was asked for.
export function lineHistory(asked, ends, titles, signal) {
  const chart = lines(`Rows of each epoch from ${titles[0]} to ${titles[1]}`, ["rows"], { x: "epoch", height: 150 });
  const words = element("p", { class: "soft", role: "status" }), failed = element("div");
  repeat(signal, async () => {
    try {
      const { epochs } = await json(`/v1/network/line?${new URLSearchParams({ ...Object.fromEntries(asked), source: ends[0], target: ends[1] })}`, { signal });
      const rows = epochs.map((one) => one.rows), total = rows.reduce((sum, one) => sum + one, 0);
      chart.set([epochs.map((one) => one.epoch), rows]);
      const said = rows.length ? `${count(total)} rows in the last ${count(rows.length)} epochs, at most ${count(Math.max(...rows))} in one` : "Nothing is measured yet.";
      if (words.textContent !== said) words.textContent = said;
      renew(failed);
    } catch (error) { if (!signal.aborted) renew(failed, problem(error)); }
  }, EVERY);
  return element("div", { class: "line-history" }, element("h3", {}, `${titles[0]} → ${titles[1]}`), words, chart.holder, failed);
}
