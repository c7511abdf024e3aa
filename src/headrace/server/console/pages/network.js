// The network of all queries, of some, or of one: found by name, moved in and zoomed, with places to come back to.

import { json } from "../api.js";
import { remember } from "../app.js";
import { announce, button, card, element, field, fresh, renew, repeat } from "../dom.js";
import { networkView } from "../network-view.js";
import { stepper } from "../stepper.js";

const STORE = "headrace-bookmarks", HITS = 12;

export function network(main, signal, _, given) {
  const chosen = { query: given.get("query") ?? "", like: given.get("like") ?? "", tag: given.get("tag") ?? "" };
  const note = (more) => remember({ ...chosen, box: picked ?? "", view: moved, ...more });
  let picked = null, moved = "", waits = null;
  const view = networkView(chosen, signal, {
    height: 620,
    onmove: ({ x, y, width, height }) => { moved = [x, y, width, height].map(Math.round).join(","); clearTimeout(waits); waits = setTimeout(() => { if (!signal.aborted) note(); }, 300); },
    onpick: (name) => { picked = name; note(); },
  });
  const like = element("input", { type: "search", value: chosen.like, placeholder: "all" }), tag = element("input", { type: "search", value: chosen.tag, placeholder: "any", size: 10 });
  const only = element("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); location.hash = `#/network?${new URLSearchParams(Object.entries({ like: like.value, tag: tag.value }).filter(([, value]) => value))}`; } },
    field("Only queries named", like), field("Tagged", tag), element("button", {}, "Show"), chosen.query || chosen.like || chosen.tag ? element("a", { class: "button", href: "#/network" }, "All queries") : null);
  const steps = stepper(), title = chosen.query ? `Network of ${chosen.query}` : "Network";
  main.append(element("h1", {}, title), element("div", { class: "bar" }, only, finder(view), bookmarks(view)), card(null, steps.holder), view);
  repeat(signal, async () => { const now = await json("/v1/epochs?limit=1", { signal }); steps.set(now.running, now.epoch); });
  restore(view, given, signal);
}

// The place and the box that the address names, once the network is drawn.
function restore(view, given, signal) {
  if (!given.get("view") && !given.get("box")) return;
  const once = setInterval(() => {
    if (!view.boxes().length && !signal.aborted) return;
    clearInterval(once);
    if (signal.aborted) return;
    const [x, y, width, height] = (given.get("view") ?? "").split(",").map(Number);
    if (height) view.go({ x, y, width, height });
    if (given.get("box")) view.pick(given.get("box"));
  }, 50);
}

// Find a box by any of its words (also its measurements), and go there.
function finder(view) {
  const search = element("input", { type: "search", placeholder: "stream, query, work" }), id = fresh("hits"), hits = element("ul", { class: "hits", id, hidden: true });
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? view.boxes().filter((box) => words.every((word) => [box.kind, ...box.title, ...box.lines].join(" ").toLowerCase().includes(word))).slice(0, HITS) : [];
    hits.hidden = !words.length;
    renew(hits, ...(found.length ? found.map((box) => element("li", {}, button(box.title.join(" "), () => { hits.hidden = true; view.centre(box.name); view.pick(box.name); }))) : [element("li", { class: "soft" }, "No box has these words; “Only queries named” searches all queries.")]));
    announce(`${found.length} boxes found`);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") hits.querySelector("button")?.click();
    if (event.key === "Escape") hits.hidden = true;
  });
  return element("div", { class: "finder" }, field("Go to", search), hits);
}

// Places of the network by name, in this browser.
function bookmarks(view) {
  const read = () => JSON.parse(localStorage.getItem(STORE) ?? "{}"), select = element("select"), name = element("input", { size: 12, placeholder: "name" });
  const fill = () => select.replaceChildren(element("option", { value: "" }, "go to …"), ...Object.keys(read()).map((one) => element("option", { value: one }, one)));
  select.addEventListener("change", () => { const place = read()[select.value]; if (place) location.hash = place; });
  const keep = button("Keep", () => {
    if (!name.value || !view.view()) return;
    setTimeout(() => { // the address follows the view after a moment
      localStorage.setItem(STORE, JSON.stringify({ ...read(), [name.value]: location.hash }));
      announce(`${name.value} kept`);
      name.value = "";
      fill();
    }, 350);
  });
  const forget = button("Forget", () => { const { [select.value]: _, ...others } = read(); localStorage.setItem(STORE, JSON.stringify(others)); fill(); });
  fill();
  return element("div", { class: "bar" }, field("Bookmarks", select), forget, field("This place as", name), keep);
}
