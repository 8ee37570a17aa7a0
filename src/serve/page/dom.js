// Elements and texts.

// An element with properties and children; strings become text.
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "role") element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children);
  return element;
}

// A text of a container: controls, and characters that change the order of others, are written as escapes.
export function visible(text) {
  if (typeof text !== "string") return text;
  const hidden = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
  return text.replace(hidden, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

export const words = (key) => key.replaceAll("_", " ");

export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  const unit = bytes > 0 ? Math.min(6, Math.floor(Math.log2(bytes) / 10)) : 0;
  const value = bytes / 1024 ** unit;
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

// A number with few digits.
export function short(value) {
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value);
  return String(Number(value.toPrecision(4)));
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A reply, or its reason as an error.
export async function ask(url, signal) {
  const reply = await fetch(url, { signal });
  if (reply.ok) return reply;
  const why = await reply.json().then((json) => json.error, () => reply.statusText);
  throw new Error(why);
}

// Runs `work` with the newest argument, one at a time.
export function newest(work) {
  let isBusy = false;
  let next = null;
  return async (argument) => {
    next = { argument };
    if (isBusy) return;
    isBusy = true;
    while (next) {
      const { argument: now } = next;
      next = null;
      await work(now);
    }
    isBusy = false;
  };
}
