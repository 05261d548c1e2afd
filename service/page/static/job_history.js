// What has happened to a job, gathered from its events: attempts, a diary, and the points of its curves.

const MOST_POINTS = 4000; // of a curve; beyond it every second one is dropped
const TELL_PAUSE = 250;

export class JobHistory {
  /** `onChange` is called soon after something was added. */
  constructor(onChange) {
    this.onChange = onChange;
    this.isMissing = false; // the service no longer keeps the beginning
    this.attempts = new Map();
    this.diary = [];
    this.curves = { losses: new Map(), evaluation: new Map(), speed: new Map() };
    this.step = null;
    this.tokens = null;
  }

  miss() {
    this.isMissing = true;
    this.tell();
  }

  add({ at, type, payload }) {
    if (type === "state") this.addState(at, payload);
    else if (type === "wish") this.diary.push({ at, words: `asked to ${payload.wish}` });
    else if (type === "created") this.diary.push({ at, words: "created" });
    else if (type === "progress") this.addProgress(payload);
    else if (type === "metrics") this.addMetrics(payload);
    this.tell();
  }

  addState(at, { state, attempt, failure }) {
    const why = failure && failure.attempt ? `${failure.reason}: ${failure.message}` : "";
    this.diary.push({ at, words: state, state, attempt, why });
    // A failure may be of the attempt before, as where a lost one is started again.
    const failed = failure && this.attempts.get(failure.attempt);
    if (failed && !failed.endedAt) Object.assign(failed, { endedAt: at, end: failure.reason, why: failure.message });
    if (!attempt) return;
    const known = this.attempts.get(attempt) ?? { attempt, beganAt: at, runsAt: null, endedAt: null, end: "", why: "" };
    this.attempts.set(attempt, known);
    if (state === "RUNNING") known.runsAt ??= at;
    if (["PAUSED", "SUCCEEDED", "FAILED", "CANCELLED"].includes(state)) {
      known.endedAt ??= at;
      known.end ||= state;
    }
  }

  addProgress({ step, tokens, tokens_per_second: speed }) {
    if (step === null || step === undefined) return;
    [this.step, this.tokens] = [step, tokens ?? null];
    if (speed) this.point(this.curves.speed, "tokens per second", step, tokens, speed);
  }

  addMetrics({ step, losses, evaluation, is_final: isFinal }) {
    if (step === null || step === undefined) return;
    const tokens = step === this.step ? this.tokens : null;
    for (const [name, value] of Object.entries(losses ?? {})) this.point(this.curves.losses, name, step, tokens, value);
    for (const [name, value] of Object.entries(evaluation ?? {})) {
      this.point(this.curves.evaluation, name, step, tokens ?? (isFinal ? this.tokens : null), value);
    }
  }

  point(curves, name, step, tokens, value) {
    const points = curves.get(name) ?? [];
    curves.set(name, points);
    // What was trained again after a lost attempt takes the place of what it was.
    while (points.length && points.at(-1).step >= step) points.pop();
    const last = points.at(-1);
    // Held-out figures stand in every event until there are new ones: a flat line says no more by more points.
    if (curves === this.curves.evaluation && last && last.value === value && points.at(-2)?.value === value) points.pop();
    points.push({ step, tokens: tokens ?? last?.tokens ?? null, value });
    if (points.length > MOST_POINTS) curves.set(name, points.filter((_, place) => place % 2 === 1));
  }

  tell() {
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.onChange();
    }, TELL_PAUSE);
  }
}
