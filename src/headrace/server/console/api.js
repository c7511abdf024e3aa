// Requests to the hub, and its problems as errors with their place and remedy.

const KEY = "headrace-token";

export class Problem extends Error {
  constructor(problem, status) {
    super(problem.message);
    Object.assign(this, problem, { status });
  }
}

function headers(more) {
  const token = sessionStorage.getItem(KEY);
  return { ...more, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
}

// Ask for a token in the dialog; resolves once there is one.
function login() {
  const dialog = document.getElementById("login");
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(KEY, document.getElementById("token").value.trim());
      resolve();
    }, { once: true });
    if (!dialog.open) dialog.showModal();
  });
}

async function response(path, options = {}) {
  for (;;) {
    const answer = await fetch(path, { ...options, headers: headers(options.headers) });
    if (answer.status !== 401 && answer.status !== 403) return answer;
    await login();
  }
}

export async function json(path, options) {
  const answer = await response(path, options);
  const body = await answer.json();
  if (!answer.ok) throw new Problem(body.error, answer.status);
  return body;
}

export async function text(path) {
  const answer = await response(path);
  if (!answer.ok) throw new Problem((await answer.json()).error, answer.status);
  return answer.text();
}

export const execute = (script) => json("/v1/statements", { method: "POST", body: script });

// Until the page is seen, or `signal` aborts.
const seen = (signal) => new Promise((resolve) => {
  if (!document.hidden || signal.aborted) { resolve(); return; }
  document.addEventListener("visibilitychange", resolve, { once: true, signal });
  signal.addEventListener("abort", resolve, { once: true });
});

// A signal that aborts with `signal`, and as soon as the page is hidden.
function whileSeen(signal) {
  const hidden = new AbortController();
  document.addEventListener("visibilitychange", () => hidden.abort(), { once: true, signal });
  return AbortSignal.any([signal, hidden.signal]);
}

// Events of a query from a cursor on, until `signal` aborts; a lost connection is resumed after the last event. A browser has six connections to
// a hub, for all its tabs and for pages that one can go back to: a page that is not seen holds none, and resumes when it is.
export async function follow(name, cursor, onEvent, signal) {
  let last = cursor;
  while (!signal.aborted) {
    await seen(signal);
    const watched = whileSeen(signal);
    try {
      const since = last === null ? {} : { "Last-Event-ID": String(last) };
      const answer = await response(`/v1/queries/${encodeURIComponent(name)}/follow`, { headers: since, signal: watched });
      if (!answer.ok) throw new Problem((await answer.json()).error, answer.status);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        for (const event of events) {
          const data = event.split("\n").find((line) => line.startsWith("data: "));
          if (!data) continue;
          const rows = JSON.parse(data.slice(6));
          last = rows.cursor;
          onEvent(rows);
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem) throw error;
      if (watched.aborted) continue;
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
