// The routes of the console, the theme, and the state of the hub in the header.

import { json } from "./api.js";
import { problem } from "./dom.js";
import { editor, overview, plan, queries, query } from "./pages.js";

const main = document.getElementById("main"), health = document.getElementById("health");
let leaving = new AbortController();

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const [page = "", name] = location.hash.replace(/^#\//, "").split("/");
  main.replaceChildren();
  for (const anchor of document.querySelectorAll("nav a")) {
    anchor.getAttribute("href") === `#/${page}` ? anchor.setAttribute("aria-current", "page") : anchor.removeAttribute("aria-current");
  }
  const pages = { "": overview, queries: name ? query : queries, plan, editor };
  try {
    await (pages[page] ?? overview)(main, leaving.signal, name && decodeURIComponent(name));
  } catch (error) {
    if (error.name !== "AbortError") main.append(problem(error));
  }
  main.focus({ preventScroll: true });
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("headrace-theme", name);
}
theme(localStorage.getItem("headrace-theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));

async function pulse() {
  const ready = await json("/readyz").then(() => true, () => false);
  health.className = ready ? "" : "bad";
  health.replaceChildren(Object.assign(document.createElement("b"), { textContent: "●" }), ready ? " epochs run" : " no epochs run");
  setTimeout(pulse, 3000);
}

addEventListener("hashchange", show);
show();
pulse();
