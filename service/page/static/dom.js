// Elements, made of text and nodes alone: nothing here, or anywhere in the page, reads text as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. Functions among `props` listen (`onclick`); true is an empty attribute; false and null are none. */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** An SVG element, likewise. */
export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

/** Put children in place of those that are there. */
export function put(parent, ...children) {
  parent.replaceChildren(...nodes(children));
  return parent;
}

/** Change an element's text, if it is another: what is read aloud or selected is left in peace otherwise. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A link that leads out of the page; plain text where the address is none of the web. */
export function outward(address, text) {
  if (!/^https?:\/\//i.test(address ?? "")) return text;
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, text, h("span", { "aria-hidden": "true" }, " ↗"));
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}
