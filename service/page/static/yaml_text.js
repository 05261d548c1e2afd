// A resolved spec as YAML, for reading and copying. What could be read as anything but this text is quoted as in JSON,
// which is YAML too.

const PLAIN = /^[A-Za-z_/][A-Za-z0-9_./@+-]*( [A-Za-z0-9_./@+-]+)*$/;
const OTHER = /^(true|false|yes|no|on|off|y|n|null|nan|inf)$/i;

export function yamlText(value, indent = "") {
  if (Array.isArray(value)) {
    return value.map((one) => `${indent}-${below(one, `${indent}  `, true)}`).join("");
  }
  return Object.entries(value).map(([key, one]) => `${indent}${word(key)}:${below(one, `${indent}  `, false)}`).join("");
}

function below(value, indent, isItem) {
  if (value === null || typeof value !== "object") return ` ${scalar(value)}\n`;
  const isEmpty = Array.isArray(value) ? !value.length : !Object.keys(value).length;
  if (isEmpty) return Array.isArray(value) ? " []\n" : " {}\n";
  if (Array.isArray(value) && value.every((one) => one === null || typeof one !== "object")) {
    const line = ` [${value.map(scalar).join(", ")}]\n`;
    if (line.length < 90) return line;
  }
  const text = yamlText(value, indent);
  return isItem ? ` ${text.slice(indent.length)}` : `\n${text}`;
}

function scalar(value) {
  if (typeof value === "string") return word(value);
  // YAML of Python reads 1e-7 as text, and 1.0e-7 as a number.
  if (typeof value === "number") return String(value).replace(/^(-?\d+)e/, "$1.0e").replace(/e(\d)/, "e+$1");
  return String(value);
}

function word(text) {
  return PLAIN.test(text) && !OTHER.test(text) ? text : JSON.stringify(text);
}
