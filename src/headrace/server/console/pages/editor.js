// The editor of statements: completion, mistakes marked where they are while one writes, and next to it what the queries would
// cost and share before they are registered.

import { execute, json } from "../api.js";
import { completing } from "../completion.js";
import { announce, button, card, count, duration, element, link, problem, renew, rowsTable, table } from "../dom.js";

const STORE = "headrace-script", PAUSE = 500;
const PLACEHOLDER = "CREATE QUERY busy AS\n  SELECT auction, COUNT(*) AS n FROM bids [RANGE 1 MINUTE SLIDE 10 SECONDS] GROUP BY auction;";

export function editor(main, signal, _, given) {
  const area = element("textarea", { "aria-label": "Statements", spellcheck: "false", autocomplete: "off", autocapitalize: "off", placeholder: PLACEHOLDER });
  const marks = element("pre", { class: "marks", "aria-hidden": "true" });
  const outcome = element("div"), before = element("div", {}, element("p", { class: "soft" }, "While you write a CREATE QUERY, this shows what it would cost, and with which queries it would share.")), mistake = element("p", { class: "mistake", role: "status" });
  area.value = given.get("text") ?? sessionStorage.getItem(STORE) ?? "";
  const paper = element("div", { class: "paper" }, marks, area, completing(area, signal));
  let checking = new AbortController(), waits = null;

  function mark(error) {
    const start = error?.line ? area.value.split("\n").slice(0, error.line - 1).reduce((sum, line) => sum + line.length + 1, 0) + error.column - 1 : -1;
    marks.replaceChildren(...(start < 0 ? [area.value] : [area.value.slice(0, start), element("mark", {}, area.value.slice(start, start + (error.width ?? 1)) || " "), area.value.slice(start + (error.width ?? 1))]), "\n");
    const words = error ? `${error.line ? `line ${error.line}, column ${error.column}: ` : ""}${error.message}${error.remedy ? ` ${error.remedy}` : ""}` : "";
    if (mistake.textContent !== words) mistake.textContent = words;
    return start;
  }
  async function check() {
    checking.abort();
    checking = new AbortController();
    if (!area.value.trim()) { mark(null); return; }
    try {
      const found = await json("/v1/check", { method: "POST", body: area.value, signal: AbortSignal.any([signal, checking.signal]) });
      mark(null);
      renew(before, ...(found.queries.length ? found.queries.map(prospect) : [element("p", { class: "soft" }, `${count(found.statements)} statement${found.statements === 1 ? "" : "s"}, none of which creates a query.`)]));
    } catch (error) { if (error.name !== "AbortError") mark(error); }
  }
  async function send() {
    try {
      const outcomes = await execute(area.value);
      mark(null);
      outcome.replaceChildren(...outcomes.map((one) => card(one.statement.slice(0, 120), one.message ? element("pre", {}, one.message) : null,
        one.kind === "create" || one.kind === "alter" ? link(one.name) : null, one.warning ? element("p", { class: "paused" }, one.warning) : null, one.rows ? rowsTable(one.statement, one.rows) : null)));
      announce(`${outcomes.length} statements run`);
      check();
    } catch (error) {
      outcome.replaceChildren(problem(error));
      const start = mark(error);
      if (start >= 0) {
        area.focus();
        area.setSelectionRange(start, start + (error.width ?? 1));
      }
    }
  }
  area.addEventListener("input", () => {
    sessionStorage.setItem(STORE, area.value);
    mark(null);
    clearTimeout(waits);
    waits = setTimeout(() => { if (!signal.aborted) check(); }, PAUSE);
  });
  area.addEventListener("scroll", () => { marks.scrollTop = area.scrollTop; marks.scrollLeft = area.scrollLeft; });
  area.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(); });
  main.append(element("h1", {}, "Editor"), element("div", { class: "grid editor" },
    card(null, paper, mistake, element("div", { class: "bar foot" }, button("Run", send, { class: "main" }), element("span", { class: "soft" }, "Ctrl-Enter runs, Ctrl-Space completes. A mistake leaves none of the script's definitions."))),
    card("Before it is registered", before)), outcome);
  mark(null);
  check();
}

function prospect(query) {
  if (!query.work) return element("section", {}, element("h3", {}, query.name), element("p", { class: "soft" }, "It reads what this script creates: it is checked when the script runs."));
  const added = query.work.filter((work) => !work.queries), shared = query.work.filter((work) => work.queries);
  const sum = (works) => works.reduce((total, work) => total + (work.nanoseconds ?? 0), 0);
  const known = query.work.some((work) => work.nanoseconds !== null);
  const words = `${count(shared.length)} of ${count(query.work.length)} pieces of its work run already${known ? `; it would add about ${duration(sum(added))} to an epoch, and take part in ${duration(sum(shared))} more` : "; nothing is measured yet"}.`;
  return element("section", {}, element("h3", {}, query.name), element("p", {}, words),
    table(`Work of ${query.name}`, [["work", (work) => work.label, "text"], ["shared with", (work) => work.queries ? partners(work) : element("b", {}, "new"), "text"],
      ["its part", (work) => work.nanoseconds === null ? "not known" : `≈ ${duration(work.nanoseconds)}`, "number"]], query.work),
    element("details", {}, element("summary", {}, "Plan and columns"), element("p", { class: "soft" }, query.columns.map((column) => `${column.name} ${column.type}`).join(", ")), element("pre", { tabindex: "0", role: "region", "aria-label": `Plan of ${query.name}` }, query.plan.join("\n"))));
}

function partners(work) {
  const names = work.names.slice(0, 3).flatMap((name, index) => [index ? ", " : "", link(name)]);
  return element("span", {}, `${count(work.queries)} quer${work.queries === 1 ? "y" : "ies"}${names.length ? ": " : ""}`, names, work.queries > 3 && names.length ? " …" : "");
}
