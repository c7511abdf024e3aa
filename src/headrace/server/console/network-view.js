// The network of running work, live: boxes and lines that are zoomed and moved, with rows and rates along each line, and a
// panel of the queries of the chosen box, or of the history of a line. Boxes are reached with the arrow keys.

import { json } from "./api.js";
import { announce, button, count, drawn, duration, element, fresh, hidden, link, percent, problem, rate, renew, repeat } from "./dom.js";
import { lineHistory } from "./line-history.js";

const LINE = 15, CLOSEST = 160, EVERY = 1500, PAGE = 20, LINES = 8;
const KIND = { read: "stream", fold: "work on rows", state: "state", query: "query", more: "several" };

// `chosen`: { query } or { like, tag }; `onmove` is called with the view after each move, `onpick` with the name of the box.
export function networkView(chosen, signal, { height = 600, onmove = () => {}, onpick = () => {} } = {}) {
  const lines = drawn("g", { class: "lines" }), boxes = drawn("g", { class: "boxes" });
  const picture = drawn("svg", { class: "network", role: "group", "aria-label": "Network of running work", style: `height:${height}px` }, lines, boxes);
  const panel = element("aside", { class: "panel", "aria-label": "The chosen box", hidden: true });
  const caption = element("p", { class: "soft caption" });
  const tools = element("div", { class: "tools", role: "toolbar", "aria-label": "Zoom" }, button("+", () => zoom(1.3), { "aria-label": "Zoom in" }), button("−", () => zoom(1 / 1.3), { "aria-label": "Zoom out" }), button("Show all", () => fit()));
  const holder = element("div", { class: "networked" }, element("div", { class: "canvas" }, caption, tools, picture), panel);
  const asked = () => new URLSearchParams(Object.entries(chosen).filter(([, value]) => value));
  let graph = null, places = new Map(), view = null, current = null, isFitted = true, charted = new AbortController();

  // --- drawing: a picture of the same boxes is changed where it is, so that nothing moves under the reader
  function take(next) {
    const known = places, isSame = graph !== null && next.boxes.length === known.size && next.boxes.every((box) => known.get(box.name)?.title === box.title.join(" "));
    graph = next;
    if (caption.textContent !== next.caption) caption.textContent = next.caption;
    if (isSame) for (const box of next.boxes) known.get(box.name).update(box);
    else build();
    drawLines();
  }
  function build() {
    const focused = document.activeElement?.dataset?.box;
    places = new Map(graph.boxes.map((box) => [box.name, boxOf(box)]));
    boxes.replaceChildren(...[...places.values()].map((place) => place.node));
    const first = places.get(focused ?? current) ?? places.values().next().value;
    first?.node.setAttribute("tabindex", "0");
    if (focused) first?.node.focus({ preventScroll: true });
    if (view === null || isFitted) fit();
    mark();
  }
  function boxOf(box) {
    const words = box.title.map((line, index) => drawn("text", { x: 11, y: 19 + LINE * index, class: "title" }, line));
    const measures = box.lines.map((line, index) => drawn("text", { x: 11, y: 19 + LINE * (box.title.length + index), class: "measure" }, line));
    const bar = drawn("rect", { x: 11, y: box.height - 8, height: 4, rx: 2, class: "bar-of-share" });
    const node = drawn("g", { class: `box ${box.kind}`, role: "button", tabindex: "-1", "data-box": box.name, transform: `translate(${box.x},${box.y})`, onclick: () => pick(box.name), onfocus: () => show(box.name) },
      drawn("rect", { width: box.width, height: box.height, rx: 8, class: "frame" }), words, measures, bar);
    const place = {
      node, x: box.x, y: box.y, width: box.width, height: box.height, title: box.title.join(" "), kind: box.kind,
      update(now) {
        now.lines.forEach((line, index) => {
          const words = index === 0 && now.waiting ? `${line}, ${rate(now.waiting)} rows wait` : line;
          if (measures[index] && measures[index].textContent !== words) measures[index].textContent = words;
        });
        bar.setAttribute("width", Math.max(0, (box.width - 22) * Math.min(1, now.share)));
        node.setAttribute("aria-label", `${KIND[now.kind]}: ${[...now.title, ...now.lines].join(", ")}`);
      },
    };
    place.update(box);
    return place;
  }
  function drawLines() {
    const most = Math.max(1, ...graph.lines.map((line) => line.operators));
    lines.replaceChildren(...graph.lines.flatMap((line) => {
      const source = places.get(line.source), target = places.get(line.target);
      if (!source || !target) return [];
      const [x1, y1, x2, y2] = [source.x + source.width, source.y + source.height / 2, target.x, target.y + target.height / 2];
      const bend = Math.max(40, (x2 - x1) / 2), isNear = current === line.source || current === line.target;
      const curve = drawn("path", { d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`, class: `line ${source.kind}${line.rows ? " moving" : ""}${isNear ? " near" : ""}`, "stroke-width": 1 + 6 * Math.sqrt(line.operators / most) });
      const ends = drawn("path", { d: curve.getAttribute("d"), class: "grip", "data-source": line.source, "data-target": line.target }, drawn("title", {}, `history of the line from ${source.title} to ${target.title}`));
      if (!isNear && graph.lines.length > 40) return [curve, ends]; // labels of all lines would cover the boxes
      return [curve, ends, drawn("text", { x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 4, class: "arc" }, line.rows ? `${rate(line.rows < 10 ? Math.round(line.rows * 10) / 10 : Math.round(line.rows))} rows` : "0")];
    }));
  }

  // --- moving: the view is the part of the picture that is seen
  function setView(next, isWhole = false) {
    view = next;
    isFitted = isWhole;
    picture.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`);
    onmove(view);
  }
  const ratio = () => Math.max(0.2, (picture.clientHeight || height) / (picture.clientWidth || 900));
  function fit() {
    if (!graph) return;
    const width = Math.max(graph.width, graph.height / ratio(), 600);
    setView({ x: (graph.width - width) / 2, y: (graph.height - width * ratio()) / 2, width, height: width * ratio() }, true);
  }
  function zoom(by, x = view.x + view.width / 2, y = view.y + view.height / 2) {
    const width = Math.min(Math.max(view.width / by, CLOSEST), 8 * Math.max(graph.width, 900)), scale = width / view.width;
    setView({ x: x - (x - view.x) * scale, y: y - (y - view.y) * scale, width, height: width * ratio() });
  }
  function centre(name, width = view.width) {
    const place = places.get(name);
    if (place) setView({ x: place.x + place.width / 2 - width / 2, y: place.y + place.height / 2 - width * ratio() / 2, width, height: width * ratio() });
  }
  function show(name) { // what has the focus is seen
    const place = places.get(name);
    if (!place || !view) return;
    if (place.x < view.x || place.y < view.y || place.x + place.width > view.x + view.width || place.y + place.height > view.y + view.height) centre(name);
  }
  const at = (event) => {
    const frame = picture.getBoundingClientRect();
    return [view.x + (event.clientX - frame.left) / frame.width * view.width, view.y + (event.clientY - frame.top) / frame.height * view.height];
  };
  picture.addEventListener("wheel", (event) => { if (!graph) return; event.preventDefault(); zoom(Math.exp(-event.deltaY / 500), ...at(event)); }, { passive: false });
  let dragged = null;
  picture.addEventListener("pointerdown", (event) => { if (graph && event.button === 0 && !event.target.closest(".box, .grip")) { dragged = { at: [event.clientX, event.clientY], view }; picture.setPointerCapture(event.pointerId); } });
  picture.addEventListener("pointermove", (event) => {
    if (!dragged) return;
    const scale = view.width / picture.clientWidth;
    setView({ ...view, x: dragged.view.x - (event.clientX - dragged.at[0]) * scale, y: dragged.view.y - (event.clientY - dragged.at[1]) * scale });
  });
  for (const end of ["pointerup", "pointercancel"]) picture.addEventListener(end, () => { dragged = null; });

  lines.addEventListener("click", (event) => { const grip = event.target.closest(".grip"); if (grip) pickLine(grip.dataset.source, grip.dataset.target); });

  // --- keys: an arrow goes to the nearest box in its direction
  const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  picture.addEventListener("keydown", (event) => {
    const name = event.target.closest(".box")?.dataset.box;
    if (event.key === "+" || event.key === "=") zoom(1.3);
    else if (event.key === "-") zoom(1 / 1.3);
    else if (event.key === "0") fit();
    else if (event.key === "Escape" && !panel.hidden) close();
    else if (name && (event.key === "Enter" || event.key === " ")) pick(name);
    else if (name && event.key in DIRECTIONS) focus(next(name, DIRECTIONS[event.key]));
    else return;
    event.preventDefault();
  });
  function next(name, [right, down]) {
    const here = places.get(name), middle = (place) => [place.x + place.width / 2, place.y + place.height / 2], [x, y] = middle(here);
    const found = [...places].filter(([other]) => other !== name).map(([other, place]) => {
      const [dx, dy] = [middle(place)[0] - x, middle(place)[1] - y], ahead = dx * right + dy * down, aside = Math.abs(dx * down) + Math.abs(dy * right);
      return [other, ahead > 1 && (right === 0 ? aside < here.width : true) ? ahead + 2 * aside : Infinity];
    }).reduce((best, one) => one[1] < best[1] ? one : best, [name, Infinity]);
    return found[0];
  }
  function focus(name) {
    for (const place of places.values()) place.node.setAttribute("tabindex", "-1");
    const node = places.get(name)?.node;
    node?.setAttribute("tabindex", "0");
    node?.focus({ preventScroll: true });
  }

  // --- the panel of a box: its work, and the queries that share it
  function mark() { for (const [name, place] of places) place.node.classList.toggle("chosen", name === current); }
  const titled = (name) => places.get(name)?.title ?? name;
  function history(source, target) { // in place of the one before
    charted.abort();
    charted = new AbortController();
    announce(`History of the line from ${titled(source)} to ${titled(target)}`);
    return lineHistory(asked(), [source, target], [titled(source), titled(target)], AbortSignal.any([signal, charted.signal]));
  }
  function pickLine(source, target) {
    panel.hidden = false;
    panel.replaceChildren(element("div", { class: "bar" }, element("h2", {}, "Line"), button("Close", close)), history(source, target),
      element("div", { class: "bar foot" }, [source, target].map((name) => button(titled(name), () => { focus(name); pick(name); }))));
  }
  function linesOf(name, chart) {
    const found = graph.lines.filter((line) => line.source === name || line.target === name).sort((one, other) => other.rows - one.rows).slice(0, LINES);
    return element("details", {}, element("summary", {}, "History of its lines"), element("ul", {}, found.map((line) => element("li", {}, button(
      line.source === name ? `to ${titled(line.target)}` : `from ${titled(line.source)}`, () => renew(chart, history(line.source, line.target)))))));
  }
  function close() {
    panel.hidden = true;
    charted.abort();
    const before = current;
    current = null;
    mark();
    drawLines();
    onpick(null);
    focus(before);
  }
  async function pick(name) {
    current = name;
    charted.abort();
    mark();
    drawLines();
    onpick(name);
    const chart = element("div");
    const title = element("h2", {}, places.get(name)?.title ?? name), list = element("div"), works = element("div");
    const search = element("input", { type: "search", id: fresh("search"), placeholder: "part of a name" });
    let skip = 0, turn = 0;
    async function load() {
      const mine = ++turn;
      try {
        const found = await json(`/v1/network/box?${asked()}&${new URLSearchParams({ name, search: search.value, skip, limit: PAGE })}`, { signal });
        if (current !== name || mine !== turn) return; // another box, or another search
        works.replaceChildren(...found.works.map((work) => element("p", { class: "work" }, work)));
        const rows = found.queries.map((one) => element("li", {}, link(one.name), element("span", { class: "soft" }, ` ${duration(one.nanoseconds)}, ${percent(one.share)} `),
          element("a", { class: "small", href: `#/network?query=${encodeURIComponent(one.name)}` }, "its network", hidden(` of ${one.name}`))));
        const turns = found.total > PAGE ? element("div", { class: "bar foot" }, button("Previous", () => { skip -= PAGE; load(); }, { disabled: skip === 0 }), button("Next", () => { skip += PAGE; load(); }, { disabled: skip + PAGE >= found.total })) : null;
        renew(list, element("p", { class: "soft", role: "status" }, found.total === 1 ? "1 query" : `${count(found.total)} queries share it`), element("ul", {}, rows), turns);
      } catch (error) { if (!signal.aborted) renew(list, problem(error)); }
    }
    search.addEventListener("input", () => { skip = 0; load(); });
    panel.hidden = false;
    panel.replaceChildren(element("div", { class: "bar" }, title, button("Close", close)), works, linesOf(name, chart), chart, element("div", { class: "field" }, element("label", { for: search.id }, "Queries of this box"), search), list);
    announce(`${places.get(name)?.title ?? name} chosen`);
    await load();
  }

  repeat(signal, async () => {
    try { take(await json(`/v1/network?${asked()}`, { signal })); } catch (error) {
      if (signal.aborted) return;
      if (!graph) renew(holder, problem(error));
      throw error;
    }
  }, EVERY);
  // For those who hold the view: where it is, and ways to go elsewhere.
  Object.assign(holder, { boxes: () => graph?.boxes ?? [], view: () => view, go: setView, pick, centre: (name) => { centre(name, Math.min(view.width, 1200)); focus(name); } });
  return holder;
}
