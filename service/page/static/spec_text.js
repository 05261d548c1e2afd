// Text of a person to the body of a request. JSON is read here. YAML is cut at its keys and sent as overrides, whose
// values are YAML to the service: so there is one reader of YAML, and what it says here it says everywhere. Each field is
// an override of its own where that can be, for the service names an override that breaks a rule by its number.

const LONGEST = 4000; // characters of one override, a little below what the service takes
const MOST = 190; // overrides, likewise
const KEY = /^( *)([A-Za-z_][A-Za-z0-9_]*) *:(?: +|$)(.*)$/;
const BLANK = /^\s*(#.*)?$/;

/** What is wrong with a text before anyone else has seen it. */
export class TextProblem extends Error {
  constructor(rule, lineNumber) {
    super(lineNumber ? `Line ${lineNumber}: ${rule}` : rule);
    this.lineNumber = lineNumber;
  }
}

/** `{spec, overrides}` of a text. Raises TextProblem. */
export function readSpec(text) {
  const start = text.trimStart();
  if (!start) throw new TextProblem("There is no spec yet.");
  if (start.startsWith("{")) {
    try {
      return { spec: JSON.parse(text), overrides: [] };
    } catch (error) {
      throw new TextProblem(`This begins like JSON, and is none: ${error.message}`);
    }
  }
  const lines = text.replaceAll("\r\n", "\n").split("\n").map((line, place) => ({ line, number: place + 1 }));
  const content = lines.filter(({ line }) => !/^(---|%YAML.*)\s*$/.test(line));
  const cuts = [Infinity, 2, 1].map((depth) => () => cut(content, "", "", depth));
  for (const make of cuts) {
    const overrides = make();
    if (overrides.length <= MOST) return { spec: {}, overrides };
  }
  throw new TextProblem(`There are more than ${MOST} sections: write the spec as JSON, or use electra submit`);
}

/** The field that the fault of a request is of: of an override, what it sets. */
export function fieldOfFault(pointer, overrides) {
  const found = /^\/overrides\/(\d+)$/.exec(pointer);
  return found ? `/spec/${overrides[Number(found[1])].split("=", 1)[0].replaceAll(".", "/")}` : pointer;
}

/** Blocks of `key: value` at one depth as `path=value`, cut so deep at their own keys. Raises TextProblem. */
function cut(lines, indent, path, depth) {
  const blocks = [];
  for (const { line, number } of lines) {
    const found = KEY.exec(line);
    const isInside = line.startsWith(`${indent} `) || line.startsWith(`${indent}- `) || line === `${indent}-`;
    if (found && found[1] === indent) blocks.push({ key: found[2], number, value: found[3], lines: [] });
    else if (blocks.length && (BLANK.test(line) || isInside || closes(line, blocks.at(-1)))) blocks.at(-1).lines.push({ line, number });
    else if (!BLANK.test(line)) throw new TextProblem(`each line ${path ? `of ${path}` : "at the left edge"} must look like "key: value", got "${line.slice(0, 80)}"`, number);
  }
  const twice = blocks.find((block, place) => blocks.findIndex((other) => other.key === block.key) < place);
  if (twice) throw Object.assign(new TextProblem(`${path}${twice.key} stands here a second time`, twice.number), { isFinal: true });
  // What is laid over a mapping of another type takes its place whole: so the type comes first.
  blocks.sort((one, other) => (other.key === "type") - (one.key === "type"));
  return blocks.flatMap((block) => asOverrides(block, `${path}${block.key}`, depth - 1));
}

/** A bracket at the left edge that ends a value over several lines. */
function closes(line, block) {
  return /^[\]}],? *(#.*)?$/.test(line.trim()) && /^[[{]/.test(block.value);
}

function asOverrides(block, path, depth) {
  const value = [block.value, ...block.lines.map(({ line }) => line)].join("\n").trimEnd();
  const override = `${path}=${value}`;
  const inner = block.lines.find(({ line }) => !BLANK.test(line));
  const indent = inner && /^ */.exec(inner.line)[0];
  if (BLANK.test(block.value) && indent && (depth > 0 || override.length > LONGEST)) {
    try {
      return cut(block.lines, indent, `${path}.`, depth);
    } catch (error) {
      if (error.isFinal) throw error;
      // A list, or names that are paths: then it stays whole.
    }
  }
  if (override.length <= LONGEST) return [override];
  throw new TextProblem(`${path} is longer than ${LONGEST} characters in one value: write the spec as JSON, or use electra submit`, block.number);
}

/** The line on which a field stands, counted from 1, as far as a look at the text tells; null otherwise. */
export function lineOf(text, field) {
  const lines = text.split("\n");
  let from = 0;
  let found = null;
  for (const key of field.split(".")) {
    if (/^\d+$/.test(key)) continue;
    const name = key.replace(/[^\w-]/g, "");
    const place = lines.findIndex((line, number) => number >= from && new RegExp(`(^|[\\s{,"-])${name}"? *:`).test(line));
    if (place < 0) break;
    [found, from] = [place + 1, place];
  }
  return found;
}
