// One query: its text and what can be done with it, its answer now, its rows as epochs commit them, its past, its cost over
// time, and the work it shares.

import { follow, json, text } from "../api.js";
import { lines } from "../chart.js";
import { announce, badge, button, card, count, duration, element, field, percent, problem, renew, repeat, rowsTable, shown } from "../dom.js";
import { networkView } from "../network-view.js";
import { past } from "./past.js";

const RECENT = 8, POINTS = 300, SERIES = 6;

export async function query(main, signal, name) {
  const path = `/v1/queries/${encodeURIComponent(name)}`;
  main.append(element("h1", {}, name));
  const facts = element("div");
  main.append(facts);
  const described = await json(path, { signal });
  const show = () => renew(facts, head(described, act));
  async function act(verb) {
    try {
      await json(verb === "drop" ? path : `${path}/${verb}`, { method: verb === "drop" ? "DELETE" : "POST" });
      announce(`${name}: ${verb} done`);
      if (verb === "drop") { location.hash = "#/queries"; return; }
      Object.assign(described, await json(path, { signal }));
      show();
    } catch (error) { facts.append(problem(error)); }
  }
  show();
  main.append(element("div", { class: "grid wide" }, answerNow(path, signal), live(name, described, signal)), past(path, described, signal),
    costs(path, signal), card("What it shares", networkView({ query: name }, signal, { height: 420 })), planInWords(path));
}

function head(described, act) {
  const facts = [described.owner ? `owner ${described.owner}` : "", described.tags.length ? `tags ${described.tags.join(", ")}` : "",
    ...described.actions, described.columns.map((column) => `${column.name} ${column.type}`).join(", ")].filter(Boolean).join(" · ");
  const alter = `#/editor?text=${encodeURIComponent(`ALTER QUERY ${quoted(described.name)} AS\n${described.text};`)}`;
  return card(null, element("div", { class: "bar" }, badge(described), element("span", { class: "soft" }, facts)), element("pre", { tabindex: "0", role: "region", "aria-label": "Text of the query" }, described.text),
    described.failure ? element("p", { class: "failed" }, described.failure) : null,
    element("div", { class: "bar foot" }, described.paused || described.failure ? button("Resume", () => act("resume")) : button("Pause", () => act("pause")),
      element("a", { class: "button", href: alter }, "Alter"), button("Drop", () => confirm(`Drop the query ${described.name}?`) && act("drop"))));
}

export const quoted = (name) => /^[A-Za-z_]\w*$/.test(name) ? name : `\`${name.replaceAll("`", "``")}\``;

function answerNow(path, signal) {
  const answer = element("div");
  repeat(signal, async () => {
    try {
      const now = await json(`${path}/answer`, { signal });
      renew(answer, now.warning ? element("p", { class: "paused" }, now.warning) : null, rowsTable("The current answer", now.rows));
    } catch (error) { if (!signal.aborted) renew(answer, problem(error)); }
  });
  return card("Answer now", answer);
}

// A chart of one column over the epochs: a line for each value of the first other column (at most six), where epochs have several rows.
function live(name, described, signal) {
  const numbers = described.columns.filter((column) => /INT|DOUBLE|FLOAT|DECIMAL/.test(column.type)).map((column) => column.name);
  const column = element("select", {}, numbers.map((one) => element("option", {}, one))), picture = element("div");
  const newest = element("div", {}, element("p", { class: "soft" }, "Rows of the next epochs appear here."));
  let recent = [], points = [], chart = null, keys = [];
  column.value = numbers.at(-1) ?? "";
  const keyOf = (row) => { const by = described.columns.find((one) => one.name !== column.value && one.name in row); return by ? shown(row[by.name]) : ""; };
  function draw(all) {
    const wanted = points.some((point) => point.rows.length > 1) ? [...new Set(points.flatMap((point) => point.rows.map(keyOf)))].sort().slice(0, SERIES) : [""];
    const isSame = chart && !all && wanted.join("\n") === keys.join("\n");
    keys = wanted;
    const values = (point) => keys.map((key) => point.rows.findLast((row) => keys.length === 1 || keyOf(row) === key)?.[column.value] ?? null);
    if (isSame) { chart.add(points.at(-1).at, values(points.at(-1))); return; }
    chart = lines(`${column.value} of each epoch`, keys.map((key) => key || column.value), { format: shown });
    chart.set([points.map((point) => point.at), ...keys.map((_, index) => points.map((point) => values(point)[index]))]);
    picture.replaceChildren(chart.holder);
  }
  column.addEventListener("change", () => { if (points.length) draw(true); });
  follow(name, null, (event) => {
    recent = [...event.rows.slice(-RECENT).reverse().map((row) => ({ epoch: event.epoch, ...row })), ...recent].slice(0, RECENT);
    renew(newest, rowsTable("The newest rows", recent));
    points = [...points, { at: Date.now() / 1000, rows: event.rows.slice(-RECENT) }].slice(-POINTS);
    if (numbers.length) draw(false);
  }, signal).catch((error) => { if (!signal.aborted) renew(newest, problem(error)); });
  return card("As epochs commit", numbers.length > 1 ? field("Column", column) : null, picture, newest);
}

function costs(path, signal) {
  const time = lines("Cost of each epoch", ["time"], { format: (value) => duration(value), x: "epoch" });
  const keeps = lines("Rows kept, results and rows of state of each epoch", ["kept", "results", "state"], { x: "epoch" });
  const words = element("p", { class: "soft" });
  repeat(signal, async () => {
    const { epochs } = await json(`${path}/costs?epochs=200`, { signal });
    const at = epochs.map((one) => one.epoch);
    time.set([at, epochs.map((one) => one.nanoseconds)]);
    keeps.set([at, epochs.map((one) => one.rows_kept), epochs.map((one) => one.results), epochs.map((one) => one.state_rows)]);
    const sum = (key) => epochs.reduce((total, one) => total + one[key], 0);
    words.textContent = epochs.length ? `${duration(sum("nanoseconds") / epochs.length)} an epoch in the last ${epochs.length}; of ${count(sum("rows_in"))} rows it kept ${percent(sum("rows_in") ? sum("rows_kept") / sum("rows_in") : null)}.` : "Nothing is measured yet.";
  }, 2000);
  return card("Cost and selectivity over time", words, element("div", { class: "grid wide" }, time.holder, keeps.holder));
}

function planInWords(path) {
  const words = element("pre", { tabindex: "0", role: "region", "aria-label": "Plan in words" });
  const whole = element("details", { class: "card" }, element("summary", {}, "Plan in words"), words);
  whole.addEventListener("toggle", () => { if (whole.open) text(`${path}/explain`).then((plan) => { words.textContent = plan; }, (error) => whole.append(problem(error))); });
  return whole;
}
