// The pages: each is given the main element and a signal that aborts when it is left.

import { execute, follow, json, text } from "./api.js";
import { card, chart, count, element, figure, problem, rowsTable, shown, table } from "./dom.js";

const EVERY = 1000;
const state = (query) => query.failure ? "failed" : query.paused ? "paused" : "live";
const badge = (query) => element("span", { class: `state ${state(query)}`, title: query.failure ?? "" }, state(query));
const link = (name) => element("a", { href: `#/queries/${encodeURIComponent(name)}` }, name);

// Call `tick` now and every second until the page is left; a failure of one call does not end the others.
function repeat(signal, tick) {
  const next = async () => {
    try { await tick(); } catch (error) { if (!signal.aborted) console.warn(error); }
    if (!signal.aborted) setTimeout(next, EVERY);
  };
  next();
}

export function overview(main, signal) {
  const figures = element("div", { class: "grid" }), streams = element("div");
  const rows = chart("Rows a second", ["rows", "late", "rejected"]);
  const times = chart("Milliseconds an epoch", ["execute", "publish"], { format: (value) => value.toFixed(1) });
  main.append(element("h1", {}, "Overview"), figures, element("div", { class: "grid wide" }, card(null, rows.holder), card(null, times.holder)), card("Streams", streams));
  let before = null;
  repeat(signal, async () => {
    const status = await json("/v1/status", { signal });
    const at = Date.now() / 1000, totals = { rows: 0, late: 0, rejected: 0 };
    for (const stream of Object.values(status.streams)) for (const key in totals) totals[key] += stream[key] ?? 0;
    const names = Object.keys(status.queries);
    figures.replaceChildren(figure("epoch", count(status.epoch)), figure("standing queries", count(names.length)), figure("rows in all", count(totals.rows)),
      figure("bytes of state", count(status.state_bytes)), figure("late rows", count(totals.late)), figure("rejected rows", count(totals.rejected)));
    const rate = (name, key) => before ? Math.max(0, ((status.streams[name]?.[key] ?? 0) - (before.status.streams[name]?.[key] ?? 0)) / (at - before.at)) : 0;
    streams.replaceChildren(table("Streams", [
      ["stream", ([name]) => name], ["rows a second", ([name]) => count(Math.round(rate(name, "rows"))), "number"],
      ["rows", ([, stream]) => count(stream.rows), "number"], ["late", ([, stream]) => count(stream.late), "number"],
      ["rejected", ([, stream]) => count(stream.rejected), "number"], ["watermark", ([, stream]) => instant(stream.punctuation)],
      ["behind the clock", ([, stream]) => behind(stream.punctuation), "number"],
      ["note", ([name]) => status.sources[name] ?? "", "text"]], Object.entries(status.streams)));
    if (before) {
      rows.add(at, ["rows", "late", "rejected"].map((key) => Object.keys(status.streams).reduce((sum, name) => sum + rate(name, key), 0)));
      const seconds = status.last_epoch?.seconds ?? {};
      times.add(at, [1000 * (seconds.execute ?? 0), 1000 * (seconds.publish ?? 0)]);
    }
    before = { at, status };
  });
}

const LEAST = -9e15;
const instant = (micros) => micros === undefined || micros < LEAST ? "" : new Date(micros / 1000).toISOString().replace(".000Z", "Z");
function behind(micros) {
  if (micros === undefined || micros < LEAST) return "";
  const seconds = Date.now() / 1000 - micros / 1e6;
  return seconds < 120 ? `${seconds.toFixed(1)} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

export function queries(main, signal) {
  const search = element("input", { type: "search", placeholder: "part of a name", "aria-label": "Search queries by name" });
  const tag = element("input", { type: "search", placeholder: "tag", "aria-label": "Tag of the queries", size: 12 });
  const list = element("div", { "aria-live": "polite" });
  const more = element("button", { type: "button", onclick: () => load(next) }, "More");
  let next = null, shownQueries = [], turn = 0;
  async function load(after) {
    const wanted = new URLSearchParams({ limit: 100, after: after ?? "" });
    if (search.value) wanted.set("like", search.value);
    if (tag.value) wanted.set("tag", tag.value);
    const asked = ++turn;
    const page = await json(`/v1/queries?${wanted}`, { signal });
    if (asked !== turn) return; // the search has changed since
    shownQueries = after ? [...shownQueries, ...page.queries] : page.queries;
    next = page.next;
    list.replaceChildren(table("Standing queries", [
      ["query", (query) => link(query.name)], ["state", badge], ["owner", (query) => query.owner ?? ""], ["tags", (query) => query.tags.join(", ")],
      ["text", (query) => element("code", {}, query.text), "text"]], shownQueries));
    more.hidden = next === null;
  }
  for (const input of [search, tag]) input.addEventListener("input", () => load(null));
  main.append(element("h1", {}, "Queries"), element("div", { class: "bar" }, search, tag, element("a", { href: "#/editor" }, "Register another")), element("section", { class: "card" }, list, more));
  load(null);
}

export async function query(main, signal, name) {
  const path = `/v1/queries/${encodeURIComponent(name)}`;
  const title = element("h1", {}, name), facts = element("div"), answer = element("div", { "aria-live": "polite" }), live = element("div"), picture = element("div", { class: "picture" });
  main.append(title, facts);
  const described = await json(path, { signal });
  const act = (verb, method = "POST") => async () => {
    try {
      await json(verb ? `${path}/${verb}` : path, { method });
      if (verb) location.reload(); else location.hash = "#/queries";
    } catch (error) { facts.append(problem(error)); }
  };
  facts.append(card(null, element("div", { class: "bar" }, badge(described), element("span", { class: "soft" }, described.columns.map((column) => `${column.name} ${column.type}`).join(", "))),
    element("pre", {}, described.text), described.failure ? element("p", { class: "failed" }, described.failure) : null,
    element("div", { class: "bar", style: "margin:14px 0 0" }, described.paused ? element("button", { type: "button", onclick: act("resume") }, "Resume") : element("button", { type: "button", onclick: act("pause") }, "Pause"),
      element("button", { type: "button", onclick: () => confirm(`Drop the query ${name}?`) && act("", "DELETE")() }, "Drop"))));
  const numbers = described.columns.filter((column) => /INT|DOUBLE|FLOAT|DECIMAL/.test(column.type)).map((column) => column.name).slice(0, 4);
  const lines = numbers.length ? chart("The last row of each epoch", numbers, { format: shown }) : null;
  main.append(element("div", { class: "grid wide" }, card("Answer now", answer), card("As epochs commit", lines?.holder ?? null, live)), card("Plan and what it shares", picture));
  repeat(signal, async () => {
    const now = await json(`${path}/answer`, { signal });
    answer.replaceChildren(now.warning ? element("p", { class: "paused" }, now.warning) : "", rowsTable("The current answer", now.rows.slice(0, 100)));
  });
  text(`${path}/explain?format=svg`).then((svg) => picture.append(drawing(svg))).catch((error) => picture.append(problem(error)));
  const recent = [];
  follow(name, null, (event) => {
    recent.unshift(...event.rows.slice(-20).reverse().map((row) => ({ epoch: event.epoch, ...row })));
    recent.length = Math.min(recent.length, 20);
    live.replaceChildren(rowsTable("The newest rows", recent));
    const last = event.rows.at(-1);
    lines?.add(Date.now() / 1000, numbers.map((column) => typeof last[column] === "number" ? last[column] : null));
  }, signal).catch((error) => live.replaceChildren(problem(error)));
}

function drawing(svg) {
  const parsed = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
  return document.importNode(parsed, true);
}

export async function plan(main) {
  const picture = element("div", { class: "picture" });
  const words = element("pre");
  main.append(element("h1", {}, "Plan"), card("What runs, and which queries share it", picture), card("In words", words));
  picture.append(drawing(await text("/v1/explain?format=svg")));
  words.textContent = await text("/v1/explain");
}

export function editor(main) {
  const area = element("textarea", { "aria-label": "Statements", spellcheck: "false", placeholder: "CREATE QUERY busy AS SELECT COUNT(*) AS n FROM bids [RANGE 1 MINUTE SLIDE 10 SECONDS];" });
  const outcome = element("div", { "aria-live": "polite" });
  area.value = sessionStorage.getItem("headrace-script") ?? "";
  area.addEventListener("input", () => sessionStorage.setItem("headrace-script", area.value));
  area.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(); });
  async function send() {
    try {
      const outcomes = await execute(area.value);
      outcome.replaceChildren(...outcomes.map((one) => card(one.statement.slice(0, 120), one.message ? element("pre", {}, one.message) : null,
        one.warning ? element("p", { class: "paused" }, one.warning) : null, one.rows ? rowsTable(one.statement, one.rows) : null)));
    } catch (error) {
      outcome.replaceChildren(problem(error));
      if (error.line) {
        const start = area.value.split("\n").slice(0, error.line - 1).reduce((sum, line) => sum + line.length + 1, 0) + error.column - 1;
        area.focus();
        area.setSelectionRange(start, start + (error.width ?? 1));
      }
    }
  }
  main.append(element("h1", {}, "Editor"), card(null, area, element("div", { class: "bar", style: "margin:12px 0 0" },
    element("button", { type: "button", class: "main", onclick: send }, "Run"), element("span", { class: "soft" }, "Ctrl-Enter. A script is statements ended by ; and a mistake leaves none of its definitions."))), outcome);
}
