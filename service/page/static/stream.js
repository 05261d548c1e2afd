// Server-sent events by fetch, since EventSource sends no Authorization. Source: WHATWG HTML, section 9.2.6.

import { Problem, send } from "./api.js";
import { looked, whileLooked } from "./presence.js";

const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 15000;

/**
 * Follow a stream until `signal` or an event `end`, over broken connections, from the last event that came.
 *
 * onEvent({name, data, id}) for each; onStatus("live" | "connecting" | "offline", problem) for the connection.
 * Raises Problem where the service refuses for good.
 */
export async function follow(path, { query, signal, onEvent, onStatus = () => {} }) {
  let lastId = null;
  let pause = FIRST_PAUSE;
  while (!signal.aborted) {
    await looked(signal);
    if (signal.aborted) return;
    const connection = whileLooked(signal);
    let wait = FIRST_PAUSE;
    try {
      onStatus("connecting");
      const headers = lastId === null ? {} : { "Last-Event-ID": lastId };
      const answer = await send("GET", path, { query, headers, signal: connection.signal, accept: "text/event-stream" });
      onStatus("live");
      for await (const event of eventsOf(answer.body, connection.signal)) {
        pause = FIRST_PAUSE;
        if (event.id !== null) lastId = event.id;
        onEvent(event);
        if (event.name === "end" || signal.aborted) return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (connection.signal.aborted) continue; // nobody looked
      if (error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 429) throw error;
      if (!(error instanceof Problem) && !(error instanceof TypeError)) throw error;
      onStatus("offline", error);
      wait = Math.max((error.retryAfter ?? 0) * 1000, pause * (0.75 + Math.random() / 2));
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    } finally {
      connection.abort();
    }
    await slept(wait, signal);
  }
}

/** Events of a body, however it was cut into pieces. */
async function* eventsOf(body, signal) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const event = new Gathered();
  let rest = "";
  try {
    while (!signal.aborted) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      // A carriage return at the end may be half of a line end.
      const lines = rest.replace(/\r$/, "\r\u0000").split(/\r\n|\n|\r(?!\u0000)/);
      rest = lines.pop().replace("\r\u0000", "\r");
      for (const line of lines) {
        const whole = event.take(line);
        if (whole) yield whole;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

class Gathered {
  constructor() {
    this.id = null;
    this.clear();
  }

  clear() {
    this.name = "";
    this.data = [];
  }

  take(line) {
    if (line === "") {
      const whole = this.data.length ? { name: this.name || "message", data: this.data.join("\n"), id: this.id } : null;
      this.clear();
      return whole;
    }
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (field === "event") this.name = value;
    else if (field === "data") this.data.push(value);
    else if (field === "id" && !value.includes("\u0000")) this.id = value;
    return null;
  }
}

function slept(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
