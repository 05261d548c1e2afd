// Text of a person to the body of a request. JSON is read here. YAML is cut at its outermost keys and sent as overrides,
// whose values are YAML to the service: so there is one reader of YAML, and what it says here it says everywhere.

const LONGEST = 4000; // characters of one override, a little below what the service takes
const KEY = /^( *)(?:"([^"]*)"|([A-Za-z_][A-Za-z0-9_]*)) *:(?: +|$)(.*)$/;

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
  return { spec: {}, overrides: cut(lines.filter(({ line }) => !/^(---|%YAML.*)\s*$/.test(line)), "", "") };
}

/** Blocks of `key: value` at one depth, as `path=value`. A block that is too long is cut at its own keys. */
function cut(lines, indent, path) {
  const blocks = [];
  for (const { line, number } of lines) {
    const found = KEY.exec(line);
    const isBlank = /^\s*(#.*)?$/.test(line);
    const isInside = line.startsWith(`${indent} `) || line.startsWith(`${indent}- `) || line === `${indent}-`;
    if (found && found[1] === indent) blocks.push({ key: found[2] ?? found[3], number, value: found[4], lines: [] });
    else if (blocks.length && (isBlank || isInside || closes(line, blocks.at(-1)))) blocks.at(-1).lines.push({ line, number });
    else if (!isBlank) throw new TextProblem(`each line ${path ? `of ${path}` : "at the left edge"} must look like "key: value", got "${line.slice(0, 80)}"`, number);
  }
  const twice = blocks.find((block, place) => blocks.findIndex((other) => other.key === block.key) < place);
  if (twice) throw new TextProblem(`${path}${twice.key} stands here a second time`, twice.number);
  return blocks.flatMap((block) => asOverrides(block, `${path}${block.key}`));
}

/** A bracket at the left edge that ends a value over several lines. */
function closes(line, block) {
  return /^[\]}],? *(#.*)?$/.test(line.trim()) && /^[[{]/.test(block.value);
}

function asOverrides(block, path) {
  const value = [block.value, ...block.lines.map(({ line }) => line)].join("\n").trimEnd();
  const override = `${path}=${value}`;
  if (override.length <= LONGEST) return [override];
  const inner = block.lines.find(({ line }) => !/^\s*(#.*)?$/.test(line));
  const indent = inner && /^ */.exec(inner.line)[0];
  if (/^\s*(#.*)?$/.test(block.value) && indent && KEY.test(inner.line)) return cut(block.lines, indent, `${path}.`);
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
