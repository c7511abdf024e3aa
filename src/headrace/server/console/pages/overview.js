// The overview: figures, rates, and each stream with its totals, its watermark and what waits.

import { json } from "../api.js";
import { lines } from "../chart.js";
import { behind, bytes, card, count, element, figure, instant, rate, renew, repeat, table } from "../dom.js";

const TOTALS = ["rows", "late", "rejected"];

export function overview(main, signal) {
  const figures = Object.fromEntries(["epoch", "standing queries", "rows in all", "state", "late rows", "rejected rows"].map((label) => [label, figure(label)]));
  const streams = element("div"), troubles = element("p", { class: "failed" });
  const rows = lines("Rows a second", TOTALS), times = lines("Milliseconds an epoch", ["execute", "publish"], { format: (value) => value.toFixed(1) });
  main.append(element("h1", {}, "Overview"), troubles, element("div", { class: "grid" }, Object.values(figures).map((one) => one.holder)),
    element("div", { class: "grid wide" }, card("Rows a second", rows.holder), card("Milliseconds an epoch", times.holder)), card("Streams", streams));
  let before = null, epoch = -1, current = null;
  function second(one) { // the epochs of one second are one point
    const at = Math.floor(one.at / 1e6);
    if (current && current.at !== at) {
      rows.add(current.at, TOTALS.map((key) => current[key]));
      if (at > current.at + 1) rows.add(current.at + 1, [0, 0, 0]);
      if (at > current.at + 2) rows.add(at - 1, [0, 0, 0]);
    }
    if (current?.at !== at) current = { at, rows: 0, late: 0, rejected: 0 };
    for (const key of TOTALS) current[key] += one[key];
  }
  repeat(signal, async () => {
    const [now, epochs] = await Promise.all([json("/v1/summary", { signal }), json(`/v1/epochs?after=${epoch}&limit=300`, { signal })]);
    const at = Date.now() / 1000, total = (key) => Object.values(now.streams).reduce((sum, stream) => sum + (stream[key] ?? 0), 0);
    figures.epoch.set(count(now.epoch));
    figures["standing queries"].set(count(now.queries.live + now.queries.paused + now.queries.failed));
    figures["rows in all"].set(count(total("rows")));
    figures.state.set(bytes(now.state_bytes));
    figures["late rows"].set(count(total("late")));
    figures["rejected rows"].set(count(total("rejected")));
    const failed = [now.queries.failed ? `${count(now.queries.failed)} queries failed` : "", now.failures ? `${count(now.failures)} attempts at epochs failed` : ""];
    renew(troubles, ...(now.queries.failed ? [element("a", { href: "#/queries?state=failed" }, failed[0])] : []), now.queries.failed && now.failures ? "; " : "", failed[1]);
    const rateOf = (name, key) => before ? Math.max(0, ((now.streams[name]?.[key] ?? 0) - (before.streams[name]?.[key] ?? 0)) / (at - before.at)) : 0;
    renew(streams, Object.keys(now.streams).length ? table("Streams", [
      ["stream", ([name]) => name], ["rows a second", ([name]) => rate(Math.round(rateOf(name, "rows"))), "number"], ["waiting", ([, stream]) => count(stream.waiting), "number"],
      ["rows", ([, stream]) => count(stream.rows), "number"], ["late", ([, stream]) => count(stream.late), "number"],
      ["rejected", ([, stream]) => count(stream.rejected), "number"], ["shed", ([, stream]) => count(stream.shed), "number"],
      ["watermark", ([, stream]) => instant(stream.punctuation)], ["behind the clock", ([, stream]) => behind(stream.punctuation), "number"],
      ["note", ([name]) => now.sources[name] ?? "", "text"]], Object.entries(now.streams))
      : element("p", { class: "soft" }, "No streams yet. ", element("a", { href: "#/editor" }, "Create one in the editor"), "."));
    for (const one of epochs.epochs) {
      second(one);
      times.add(one.at / 1e6, [1000 * (one.seconds.execute ?? 0), 1000 * (one.seconds.publish ?? 0)]);
      epoch = one.epoch;
    }
    before = { at, streams: now.streams };
  });
}
