// Small makers of elements, tables and charts. Text is always set as text, never as markup.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null).map((child) => child instanceof Node ? child : String(child)));
  return made;
}

export function card(title, ...children) {
  return element("section", { class: "card" }, title ? element("h2", {}, title) : null, ...children);
}

export function figure(label, value) {
  return element("div", { class: "card" }, element("div", { class: "figure" }, value), element("div", { class: "label" }, label));
}

// Columns: [heading, cell of a row, "number" | "text" | ""].
export function table(caption, columns, rows) {
  return element("table", { "aria-label": caption },
    element("thead", {}, element("tr", {}, columns.map(([heading, , kind]) => element("th", { scope: "col", class: kind ?? "" }, heading)))),
    element("tbody", {}, rows.map((row) => element("tr", {}, columns.map(([, cell, kind]) => element("td", { class: kind ?? "" }, cell(row) ?? ""))))));
}

export function rowsTable(caption, rows) {
  if (!rows.length) return element("p", { class: "soft" }, "No rows yet.");
  const columns = Object.keys(rows[0]).map((name) => [name, (row) => shown(row[name]), typeof rows[0][name] === "number" ? "number" : ""]);
  return table(caption, columns, rows);
}

export function shown(value) {
  if (value === null) return "NULL";
  if (typeof value === "object") return JSON.stringify(value);
  return typeof value === "number" ? value.toLocaleString("en", { maximumFractionDigits: 6 }) : String(value);
}

export const count = (value) => Number(value ?? 0).toLocaleString("en");

export function problem(error) {
  const place = error.line ? `line ${error.line}, column ${error.column}: ` : "";
  return element("div", { class: "card problem", role: "alert" }, `${place}${error.message}`, error.remedy ? element("p", { class: "soft" }, error.remedy) : null);
}

// A line chart that keeps the newest `most` points of each series.
export function chart(title, names, { most = 240, height = 200, format = count } = {}) {
  const holder = element("div", { role: "img", "aria-label": title });
  const data = [[], ...names.map(() => [])];
  const ink = () => getComputedStyle(document.documentElement).getPropertyValue("--soft");
  const colors = ["#0b8f8c", "#c9751e", "#6d5acf", "#bf3f66", "#3d7ec9", "#6b8e23"];
  const axis = { stroke: ink, grid: { stroke: "rgba(128,128,128,.18)" }, ticks: { show: false } };
  const series = names.map((label, index) => ({ label, stroke: colors[index % colors.length], width: 2, value: (_, value) => value === null ? "" : format(value) }));
  const plot = new uPlot({ title, width: 520, height, series: [{ value: "{HH}:{mm}:{ss}" }, ...series], axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map(format) }] }, data, holder);
  new ResizeObserver(([entry]) => plot.setSize({ width: Math.max(240, entry.contentRect.width), height })).observe(holder);
  return {
    holder,
    add(at, values) {
      [at, ...values].forEach((value, index) => { data[index].push(value); if (data[index].length > most) data[index].shift(); });
      plot.setData(data);
    },
  };
}
