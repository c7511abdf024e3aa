// The list of queries: searched, chosen and sorted by the server, a page at a time, so that ten thousand cost no more than fifty.

import { json } from "../api.js";
import { remember } from "../app.js";
import { badge, button, card, count, duration, element, field, link, percent, problem, renew, repeat, table } from "../dom.js";

const PAGE = 50;
const SORTS = [["name", "name"], ["nanoseconds", "cost"], ["state_rows", "rows of state"], ["results", "results an epoch"], ["selectivity", "selectivity"]];

export function queries(main, signal, _, given) {
  const search = element("input", { type: "search", placeholder: "part of a name", value: given.get("like") ?? "" });
  const tag = element("input", { type: "search", placeholder: "any", size: 10, value: given.get("tag") ?? "" });
  const owner = element("input", { type: "search", placeholder: "any", size: 10, value: given.get("owner") ?? "" });
  const state = choice(["", "any"], ["live", "live"], ["paused", "paused"], ["failed", "failed"]);
  const sort = choice(...SORTS);
  state.value = given.get("state") ?? "";
  sort.value = given.get("sort") ?? "name";
  const list = element("div"), where = element("span", { class: "soft", role: "status" });
  const before = button("Previous", () => turn(-1)), after = button("Next", () => turn(1));
  let page = Math.max(1, Number(given.get("page") ?? 1)), total = 0, asked = 0, asking = new AbortController();
  async function load() {
    const wanted = { like: search.value, tag: tag.value, owner: owner.value, state: state.value, sort: sort.value };
    const parameters = new URLSearchParams({ costs: true, limit: PAGE, skip: (page - 1) * PAGE, ...Object.fromEntries(Object.entries(wanted).filter(([, value]) => value)) });
    const mine = ++asked;
    asking.abort(); // an older search is of no use
    asking = new AbortController();
    const found = await json(`/v1/queries?${parameters}`, { signal: AbortSignal.any([signal, asking.signal]) });
    if (mine !== asked) return;
    total = found.total;
    remember({ ...wanted, sort: sort.value === "name" ? "" : sort.value, page: page > 1 ? page : "" });
    const pages = Math.max(1, Math.ceil(total / PAGE));
    const words = total ? `${count((page - 1) * PAGE + 1)} to ${count(Math.min(total, page * PAGE))} of ${count(total)} queries` : "No queries match.";
    if (where.textContent !== words) where.textContent = words;
    before.disabled = page <= 1;
    after.disabled = page >= pages;
    renew(list, shownList(found.queries));
  }
  const sorted = (key) => { sort.value = key; page = 1; show(); };
  const heading = (key, words) => button(words, () => sorted(key), { class: "heading", "data-key": `sort ${key}` });
  function shownList(rows) {
    return table("Standing queries", [
      [heading("name", "query"), (query) => link(query.name)], ["state", badge], ["owner", (query) => query.owner ?? ""],
      ["tags", (query) => query.tags.map((one) => button(one, () => { tag.value = one; page = 1; show(); }, { class: "tag", "aria-label": `Only queries tagged ${one}` }))],
      [heading("nanoseconds", "cost an epoch"), (query) => duration(query.nanoseconds), "number"], ["share", (query) => percent(query.share), "number"],
      [heading("state_rows", "rows of state"), (query) => query.state_rows === undefined ? "" : count(query.state_rows), "number"],
      [heading("results", "results an epoch"), (query) => query.results === undefined ? "" : query.results.toLocaleString("en", { maximumSignificantDigits: 3 }), "number"],
      [heading("selectivity", "keeps"), (query) => percent(query.selectivity), "number"],
      ["text", (query) => element("code", { class: "short", title: query.text }, query.text), "text"]], rows, { sorted: { name: 0, nanoseconds: 4, state_rows: 6, results: 7, selectivity: 8 }[sort.value] });
  }
  const show = () => load().catch((error) => { if (error.name !== "AbortError") list.replaceChildren(problem(error)); });
  const turn = (by) => { page += by; show(); list.scrollIntoView({ block: "nearest" }); };
  for (const input of [search, tag, owner, state, sort]) input.addEventListener("input", () => { page = 1; show(); });
  main.append(element("h1", {}, "Queries"),
    element("div", { class: "bar" }, field("Search", search), field("Tag", tag), field("Owner", owner), field("State", state), field("Sort by", sort),
      element("a", { href: "#/editor", class: "main button" }, "Register another")),
    card(null, list, element("div", { class: "bar foot" }, before, after, where)));
  repeat(signal, () => load(), 3000);
}

function choice(...options) {
  return element("select", {}, options.map(([value, words]) => element("option", { value }, words)));
}
