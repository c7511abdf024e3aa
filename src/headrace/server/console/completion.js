// Completion in a text area: words of the language, streams with their columns, functions and queries, in a list at the caret.

import { json } from "./api.js";
import { announce, element, fresh } from "./dom.js";

const WORDS = ("ALTER QUERY,AND,AS,AVG(,BEGIN,BETWEEN,BIGINT,BOOLEAN,CASE,COUNT(*),CREATE OR REPLACE QUERY,CREATE QUERY,CREATE RELATION,CREATE STREAM,DESCRIBE,DISTINCT,DOUBLE,"
  + "DROP QUERY,DROP STREAM,DSTREAM,ELSE,END,EXISTS,EXPLAIN ALL,EXPLAIN QUERY,EXPLAIN SELECT,FROM,FROM NOW,GROUP BY,HAVING,IDLE TIMEOUT,IN,INTERVAL,INVOKE,IS NOT NULL,IS NULL,"
  + "ISTREAM,JOIN,LANDMARK,LEFT JOIN,LIKE,LIMIT,MAX(,MIN(,NOT,NOTIFY,NULL,ON,OPTIONS,OR,ORDER BY,PARTITION BY,PAUSE QUERY,PUNCTUATED BY,RANGE,RESUME QUERY,ROWS,RSTREAM,"
  + "SECONDS,MINUTES,HOURS,SELECT,SHOW QUERIES,SHOW STREAMS,SLACK INTERVAL,SLIDE,STRING,SUM(,THEN CALL,THEN NOTIFY,THEN WRITE TO,TIMESTAMP,TIMESTAMP BY,TUMBLING,UNBOUNDED,"
  + "UNION ALL,USING csv,USING push,WHEN,WHERE,WITH REVISIONS").split(",");
const MOST = 10, AFTER_NAME = /\b(from|join|query|invoke|describe|pause|resume|into)\s+`?[\w]*$/i;

export function completing(area, signal) {
  const list = element("ul", { role: "listbox", id: fresh("completions"), class: "completions", "aria-label": "Completions", hidden: true });
  let catalog = null, options = [], at = 0, asked = 0;
  area.setAttribute("aria-autocomplete", "list");
  area.setAttribute("aria-controls", list.id);
  const before = () => area.value.slice(0, area.selectionStart);
  const typed = () => /[\w]*$/.exec(before())[0];

  async function candidates(prefix) {
    catalog ??= await json("/v1/catalog", { signal });
    const tables = [...catalog.streams, ...catalog.relations], text = area.value.toLowerCase();
    const qualifier = /(\w+)\.\w*$/.exec(before())?.[1]?.toLowerCase();
    const aliased = qualifier && tables.find((one) => one.name.toLowerCase() === qualifier || new RegExp(`\\b${one.name.toLowerCase()}\\b(\\s*\\[[^\\]]*\\])?\\s+(as\\s+)?${qualifier}\\b`).test(text));
    if (qualifier) return aliased ? aliased.columns.map((column) => [column.name, column.type]) : [];
    if (AFTER_NAME.test(before())) {
      const { queries } = await json(`/v1/queries?${new URLSearchParams({ like: prefix, limit: MOST })}`, { signal });
      return [...tables.map((one) => [one.name, one.columns.map((column) => column.name).join(", ")]), ...queries.map((one) => [one.name, "query"])];
    }
    const named = tables.filter((one) => text.includes(one.name.toLowerCase()));
    return [...named.flatMap((one) => one.columns.map((column) => [column.name, `${one.name}: ${column.type}`])), ...tables.map((one) => [one.name, "stream or relation"]),
      ...WORDS.map((word) => [word, ""]), ...catalog.functions.map((one) => [`${one.name}(`, one.usage])];
  }
  async function open(isAsked) {
    const prefix = typed(), mine = ++asked;
    if (!isAsked && prefix.length < 2 && !/\w\.$/.test(before())) return close();
    const found = await candidates(prefix).catch(() => []);
    if (mine !== asked) return;
    const low = prefix.toLowerCase(), seen = new Set();
    options = found.filter(([word]) => word.toLowerCase().startsWith(low) && word.toLowerCase() !== low && !seen.has(word) && seen.add(word)).slice(0, MOST);
    if (!options.length) return close();
    at = 0;
    list.replaceChildren(...options.map(([word, hint], index) => element("li", { role: "option", id: `${list.id}-${index}`, onmousedown: (event) => { event.preventDefault(); take(index); } }, element("b", {}, word), element("span", { class: "soft" }, ` ${hint}`))));
    place();
    list.hidden = false;
    mark();
  }
  function place() { // the letters of the area all have one width
    const style = getComputedStyle(area), lines = before().split("\n"), size = parseFloat(style.lineHeight);
    const probe = element("span", { style: `font:${style.font};position:absolute;visibility:hidden;white-space:pre` }, lines.at(-1));
    area.parentElement.append(probe);
    list.style.left = `${Math.min(area.clientWidth - 260, probe.offsetWidth + parseFloat(style.paddingLeft) - area.scrollLeft)}px`;
    list.style.top = `${lines.length * size + parseFloat(style.paddingTop) - area.scrollTop + 4}px`;
    probe.remove();
  }
  function mark() {
    [...list.children].forEach((one, index) => one.setAttribute("aria-selected", index === at));
    list.children[at]?.scrollIntoView({ block: "nearest" });
    area.setAttribute("aria-activedescendant", `${list.id}-${at}`);
    announce(`${options[at][0]}, ${at + 1} of ${options.length}`);
  }
  function close() {
    list.hidden = true;
    area.removeAttribute("aria-activedescendant");
  }
  function take(index) {
    const start = area.selectionStart - typed().length;
    area.setRangeText(options[index][0], start, area.selectionStart, "end");
    close();
    area.dispatchEvent(new Event("input", { bubbles: true }));
    close();
    asked += 1;
  }
  area.addEventListener("input", () => open(false));
  area.addEventListener("blur", close);
  area.addEventListener("keydown", (event) => {
    if (event.key === " " && event.ctrlKey) { event.preventDefault(); open(true); return; }
    if (list.hidden) return;
    if (event.key === "ArrowDown") at = (at + 1) % options.length;
    else if (event.key === "ArrowUp") at = (at + options.length - 1) % options.length;
    else if (event.key === "Tab" || (event.key === "Enter" && !event.ctrlKey && !event.metaKey)) { event.preventDefault(); take(at); return; }
    else if (event.key === "Escape") { close(); event.stopPropagation(); return; }
    else return;
    event.preventDefault();
    mark();
  });
  return list;
}
