// Whether anybody looks. Browsers give a host six connections over all tabs, and keep pages that were left with theirs:
// a stream of a page that nobody looks at would keep out those that somebody does.

const GRACE = 15000; // a tab that is turned away for less keeps its stream

let isLeft = false;
addEventListener("pagehide", () => (isLeft = true), true);
addEventListener("pageshow", () => (isLeft = false), true);

/** Resolves when the page is looked at, or `signal` ends. */
export function looked(signal) {
  return new Promise((resolve) => {
    const look = () => {
      if ((isLeft || document.hidden) && !signal.aborted) return;
      for (const [target, name] of places(signal)) target.removeEventListener(name, look);
      resolve();
    };
    for (const [target, name] of places(signal)) target.addEventListener(name, look);
    look();
  });
}

/** An AbortController of one connection: it ends with `signal`, with the page, and a while after the last look. */
export function whileLooked(signal) {
  const connection = new AbortController();
  const own = { signal: connection.signal };
  let timer = null;
  const end = () => connection.abort();
  const look = () => {
    clearTimeout(timer);
    timer = document.hidden ? setTimeout(end, GRACE) : null;
  };
  connection.signal.addEventListener("abort", () => clearTimeout(timer));
  signal.addEventListener("abort", end, own);
  addEventListener("pagehide", end, own);
  document.addEventListener("visibilitychange", look, own);
  if (signal.aborted) end();
  else look();
  return connection;
}

function places(signal) {
  return [[document, "visibilitychange"], [window, "pageshow"], [signal, "abort"]];
}
