// Small makers of elements and tables, and the format of values. Text is always set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
let made = 0;

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  const given = children.flat().filter((child) => child !== null && child !== undefined);
  node.append(...given.map((child) => child instanceof Node ? child : String(child)));
  return node;
}

export const element = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
export const drawn = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);
export const fresh = (prefix) => `${prefix}-${++made}`;

export const button = (words, onclick, attributes = {}) => element("button", { type: "button", onclick, ...attributes }, words);
export const hidden = (words) => element("span", { class: "unseen" }, words);

export const card = (title, ...children) => element("div", { class: "card" }, title ? element("h2", {}, title) : null, children);

export function figure(label) {
  const value = element("div", { class: "figure" }, "–");
  return { holder: element("div", { class: "card" }, value, element("div", { class: "label" }, label)), set: (text) => { value.textContent = text; } };
}

export function field(label, input) {
  input.id ||= fresh("field");
  return element("div", { class: "field" }, element("label", { for: input.id }, label), input);
}

// Columns: [heading, cell of a row, "number" | "text" | ""]; a heading may be an element.
export function table(caption, columns, rows, { sorted = null, scrolls = true } = {}) {
  const head = columns.map(([heading, , kind], index) => element("th", { scope: "col", class: kind ?? "", "aria-sort": sorted === index ? "descending" : null }, heading));
  const body = rows.map((row) => element("tr", {}, columns.map(([, cell, kind]) => element("td", { class: kind ?? "" }, cell(row) ?? ""))));
  const whole = element("table", {}, element("caption", { class: "unseen" }, caption), element("thead", {}, element("tr", {}, head)), element("tbody", {}, body));
  return scrolls ? element("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, whole) : whole;
}

const MOST = 100;

export function rowsTable(caption, rows) {
  if (!rows.length) return element("p", { class: "soft" }, "No rows.");
  const columns = Object.keys(rows[0]).map((name) => [name, (row) => shown(row[name]), typeof rows[0][name] === "number" ? "number" : ""]);
  const more = rows.length > MOST ? element("p", { class: "soft" }, `${count(rows.length - MOST)} more rows`) : null;
  return element("div", {}, table(caption, columns, rows.slice(0, MOST)), more);
}

// Put `nodes` in place of what `holder` has; the focus stays on the element of the same key, link or name.
export function renew(holder, ...nodes) {
  const active = holder.contains(document.activeElement) ? document.activeElement : null;
  const key = active && (active.dataset.key ?? active.getAttribute("href") ?? active.getAttribute("aria-label"));
  const left = active?.scrollLeft ?? 0;
  holder.replaceChildren(...nodes.filter((node) => node !== null));
  if (!key) return;
  const same = [...holder.querySelectorAll("a, button, input, [tabindex]")].find((one) => [one.dataset.key, one.getAttribute("href"), one.getAttribute("aria-label")].includes(key));
  same?.focus({ preventScroll: true });
  if (same) same.scrollLeft = left;
}

export function shown(value) {
  if (value === null || value === undefined) return "NULL";
  if (typeof value === "object") return JSON.stringify(value);
  return typeof value === "number" ? value.toLocaleString("en", { maximumFractionDigits: 6 }) : String(value);
}

export const count = (value) => Number(value ?? 0).toLocaleString("en", { maximumFractionDigits: 0 });
const scaled = (value, units) => {
  const [size, unit] = units.find(([size]) => Math.abs(value) >= size) ?? units.at(-1);
  return `${(value / size).toLocaleString("en", { maximumSignificantDigits: 3 })} ${unit}`;
};
export const bytes = (value) => scaled(value ?? 0, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "bytes"]]);
export const duration = (nanoseconds) => nanoseconds === null || nanoseconds === undefined ? "" : scaled(nanoseconds, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]);
export const rate = (value) => scaled(value ?? 0, [[1e9, "G"], [1e6, "M"], [1e4, "k"], [1, ""]]).trim();
export const percent = (share) => share === null || share === undefined ? "" : share > 0 && share < 0.001 ? "<0.1 %" : `${(100 * share).toFixed(share >= 0.0995 ? 0 : 1)} %`;

const LEAST = -9e15, GREATEST = 9e15;
const isKnown = (micros) => micros !== null && micros !== undefined && micros > LEAST && micros < GREATEST;
export const instant = (micros) => isKnown(micros) ? new Date(micros / 1000).toISOString().replace(".000Z", "Z") : "";
export function behind(micros) {
  if (!isKnown(micros)) return "";
  const seconds = Date.now() / 1000 - micros / 1e6;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${count(seconds / 86400)} days`;
}

export const state = (query) => query.failure ? "failed" : query.paused ? "paused" : "live";
export const badge = (query) => element("span", { class: `state ${state(query)}`, title: query.failure ?? null }, state(query));
export const link = (name) => element("a", { href: `#/queries/${encodeURIComponent(name)}` }, name);

export function problem(error) {
  const place = error.line ? `line ${error.line}, column ${error.column}: ` : "";
  return element("div", { class: "card problem", role: "alert" }, `${place}${error.message}`, error.remedy ? element("p", { class: "soft" }, error.remedy) : null);
}

// Words for a screen reader, which are not shown.
export const announce = (words) => { document.getElementById("announce").textContent = words; };

// Call `tick` now and again after `every` milliseconds until the page is left; a failure of one call does not end the others.
// A page in the background does not ask.
export function repeat(signal, tick, every = 1000) {
  const next = async () => {
    try { if (!document.hidden) await tick(); } catch (error) { if (!signal.aborted) console.warn(String(error)); }
    if (!signal.aborted) setTimeout(next, every);
  };
  next();
}
