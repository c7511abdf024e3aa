// Control of epochs: pause them, do one at a time and see what it did, resume.

import { json } from "./api.js";
import { announce, button, bytes, count, duration, element, problem, renew, table } from "./dom.js";

export function stepper() {
  const words = element("span", { role: "status" }), outcome = element("div");
  const pause = button("Pause epochs", () => ask("pause")), step = button("Step", () => ask("step"), { class: "main" }), resume = button("Run", () => ask("resume"));
  let isRunning = null;
  function set(running, epoch) {
    const said = running ? "Epochs run by themselves." : `Paused after epoch ${count(epoch)}: rows wait until the next step.`;
    if (words.textContent !== said) words.textContent = said;
    if (isRunning === running) return;
    isRunning = running;
    [pause.hidden, step.hidden, resume.hidden] = [!running, running, running];
  }
  async function ask(verb) {
    try {
      const now = await json(`/v1/epochs/${verb}`, { method: "POST" });
      set(now.running, now.epoch);
      if (verb === "step") renew(outcome, now.observed ? observed(now.observed) : element("p", { class: "soft" }, "Nothing waits: no epoch was needed."));
      else renew(outcome);
      announce(verb === "step" ? `epoch ${now.epoch}` : words.textContent);
    } catch (error) { renew(outcome, problem(error)); }
  }
  set(true, 0);
  return { holder: element("div", { class: "stepper" }, element("div", { class: "bar" }, words, pause, step, resume), outcome), set };
}

function observed(epoch) {
  const more = epoch.further ? element("p", { class: "soft" }, `and ${count(epoch.further)} more`) : null;
  const times = Object.entries(epoch.seconds).map(([stage, seconds]) => `${stage} ${duration(seconds * 1e9)}`).join(", ");
  return element("div", { class: "observed", tabindex: "0", role: "region", "aria-label": `What epoch ${epoch.epoch} did` }, element("p", {}, `Epoch ${count(epoch.epoch)}: ${count(epoch.rows)} rows, ${count(epoch.late)} late; ${times}`),
    table(`Work of epoch ${epoch.epoch}`, [["work", (one) => one.label, "text"], ["rows in", (one) => count(one.rows_in), "number"], ["rows out", (one) => count(one.rows_out), "number"],
      ["time", (one) => duration(one.nanoseconds), "number"], ["state", (one) => one.state_bytes ? bytes(one.state_bytes) : "", "number"]], epoch.works, { scrolls: false }), more);
}
