// The routes of the console, its keys and theme, and the state of the hub in the header.

import { json } from "./api.js";
import { announce, element, problem } from "./dom.js";
import { editor } from "./pages/editor.js";
import { network } from "./pages/network.js";
import { overview } from "./pages/overview.js";
import { performance } from "./pages/performance.js";
import { queries } from "./pages/queries.js";
import { query } from "./pages/query.js";

const PAGES = { "": overview, queries, network, performance, editor };
const KEYS = { o: "", q: "queries", n: "network", p: "performance", e: "editor" };
const main = document.getElementById("main"), health = document.getElementById("health"), help = document.getElementById("help");
let leaving = new AbortController();

// A route is `#/page/NAME?key=value`; a page gets the main element, a signal that aborts when it is left, the name and the values.
async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const [path, given = ""] = location.hash.replace(/^#\//, "").split("?");
  const [page = "", name] = path.split("/");
  main.replaceChildren();
  for (const anchor of document.querySelectorAll("nav a")) {
    if (anchor.getAttribute("href") === `#/${page}`) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  const view = page === "queries" && name ? query : PAGES[page] ?? overview;
  const holder = element("div", { class: "page" });
  main.append(holder);
  try {
    await view(holder, signal, name && decodeURIComponent(name), new URLSearchParams(given));
  } catch (error) {
    if (signal.aborted) return;
    holder.append(problem(error));
  }
  const title = holder.querySelector("h1");
  document.title = `${title?.textContent ?? "Console"} – Headrace`;
  if (title && !holder.contains(document.activeElement)) {
    title.tabIndex = -1;
    title.focus({ preventScroll: true });
  }
  scrollTo(0, 0);
}

// Note where the reader is in a page, without going there: the address can be kept and sent.
export function remember(values) {
  const [path] = location.hash.split("?");
  const said = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined)).toString();
  history.replaceState(null, "", `${path || "#/"}${said ? `?${said}` : ""}`);
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("headrace-theme", name);
}
const toggle = () => {
  theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  announce(`${document.documentElement.dataset.theme} colours`);
  dispatchEvent(new Event("resize")); // charts redraw their axes in the new colours
};
theme(localStorage.getItem("headrace-theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", toggle);
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
document.getElementById("keys").addEventListener("click", () => help.showModal());

let waitsForPage = false;
addEventListener("keydown", (event) => {
  const writes = event.target.closest("input, textarea, select, dialog");
  if (event.ctrlKey || event.metaKey || event.altKey || writes) return;
  if (waitsForPage && event.key in KEYS) location.hash = `#/${KEYS[event.key]}`;
  waitsForPage = event.key === "g" && !waitsForPage;
  if (event.key === "?") help.showModal();
  if (event.key === "t") toggle();
  if (event.key === "/") {
    const search = main.querySelector("input[type=search]");
    if (search) { search.focus(); event.preventDefault(); }
  }
});

async function pulse() {
  const ready = await json("/readyz").then(() => true, () => false);
  health.className = ready ? "" : "bad";
  const words = ready ? " epochs run" : " no epochs run";
  if (health.textContent !== `●${words}`) health.replaceChildren(element("b", { "aria-hidden": "true" }, "●"), words);
  setTimeout(pulse, 3000);
}

addEventListener("hashchange", show);
show();
pulse();
