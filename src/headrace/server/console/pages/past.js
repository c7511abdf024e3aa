// The past of a query: its results over time as bars, and its answer as of the time that a slider is at.

import { json } from "../api.js";
import { bars } from "../chart.js";
import { button, card, count, element, field, instant, problem, renew, rowsTable } from "../dom.js";

const STEPS = 1000, BUCKETS = 200, PLAY = 700;

export function past(path, described, signal) {
  const slider = element("input", { type: "range", min: 0, max: STEPS, value: STEPS, disabled: true });
  const answer = element("div", { class: "past" }), when = element("output", { class: "mono" }, ""), words = element("p", { class: "soft" });
  let line = null, at = 0, playing = null, asking = new AbortController();
  const chart = bars("Results over time", "rows", (seconds) => go(seconds * 1e6));
  const length = () => Math.max(1, line.last - line.first);
  function go(to) { // exactly: the slider shows it to a thousandth
    at = Math.max(line.first, Math.min(line.last, Math.round(to)));
    slider.value = Math.round((at - line.first) / length() * STEPS);
    return show();
  }
  async function show() {
    when.textContent = instant(at);
    slider.setAttribute("aria-valuetext", instant(at));
    asking.abort(); // one request at a time: the one of an earlier place is of no use
    asking = new AbortController();
    try {
      const found = await json(`${path}/answer?at=${encodeURIComponent(exact(at))}`, { signal: AbortSignal.any([signal, asking.signal]) });
      renew(answer, rowsTable(`The answer as of ${instant(at)}`, found.rows));
    } catch (error) { if (error.name !== "AbortError") renew(answer, problem(error)); }
  }
  // From one time with results to the next, in either direction.
  function step(by) {
    const here = Math.min(line.rows.length - 1, Math.floor((at - line.first) / line.interval));
    for (let bucket = here + by; bucket >= 0 && bucket < line.rows.length; bucket += by) {
      if (line.rows[bucket]) { go(bucket === line.rows.length - 1 ? line.last : line.first + line.interval * (bucket + 1) - 1); return true; }
    }
    return false;
  }
  const play = button("Play", () => playing ? stop() : start());
  function start() {
    if (at >= line.last) go(line.first);
    playing = setInterval(() => { if (!step(1)) stop(); }, PLAY);
    play.textContent = "Stop";
  }
  function stop() { clearInterval(playing); playing = null; play.textContent = "Play"; }
  signal.addEventListener("abort", stop);
  slider.addEventListener("input", () => go(line.first + length() * slider.value / STEPS));
  const controls = [button("Earlier", () => step(-1)), play, button("Later", () => step(1)), button("Reload", () => load())];
  async function load() {
    try {
      line = await json(`${path}/timeline?buckets=${BUCKETS}`, { signal });
    } catch (error) { if (!signal.aborted) renew(answer, problem(error)); return; }
    const none = line.first === null;
    for (const one of [slider, ...controls.slice(0, 3)]) one.disabled = none;
    if (none) { words.textContent = "No results yet."; return; }
    const width = line.interval / 1e6, total = line.rows.reduce((sum, one) => sum + one, 0);
    chart.set(line.rows.map((_, bucket) => line.first / 1e6 + width * bucket), line.rows);
    words.textContent = `${count(total)} rows from ${instant(line.first)} to ${instant(line.last)}.`;
    await go(line.last);
  }
  load();
  return card("History", words, chart.holder, field("Answer as of", slider), element("div", { class: "bar foot" }, ...controls, when), answer);
}

// Six digits of a second: a Date has three.
function exact(micros) {
  const whole = Math.floor(micros / 1e6);
  return `${new Date(whole * 1000).toISOString().slice(0, 19)}.${String(micros - whole * 1e6).padStart(6, "0")}+00:00`;
}
