// Draws images and curves of an array on a canvas, with axes.
import { colour, short } from "./dom.js";

const LEFT = 52;
const BOTTOM = 26;
const TOP = 8;

// A canvas of `width` x `height` CSS pixels, cleared and ready to draw on.
function context(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const cx = canvas.getContext("2d");
  cx.setTransform(scale, 0, 0, scale, 0, 0);
  cx.font = "12px system-ui, sans-serif";
  return cx;
}

// About `n` round numbers from `low` to `high`.
function ticks(low, high, n, whole) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(span / n));
  let step = power * [1, 2, 5, 10].find((factor) => span / (power * factor) <= n);
  if (whole) step = Math.max(1, Math.round(step));
  const out = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) out.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return out;
}

function text(cx, value, x, y, align, baseline = "middle") {
  cx.fillStyle = colour("--soft");
  cx.textAlign = align;
  cx.textBaseline = baseline;
  cx.fillText(value, x, y);
}

// The box that an image of `rows` x `columns` elements takes on a canvas of this width.
function box(width, rows, columns) {
  const right = width < 480 ? 66 : 84;
  const room = width - LEFT - right;
  const ratio = Math.min(3, Math.max(1 / 4, rows / columns));
  const most = Math.max(220, window.innerHeight * 0.66);
  const tall = Math.min(room * ratio, most);
  const wide = Math.min(room, Math.max(tall / ratio, room / 2));
  return { left: LEFT, top: TOP, width: wide, height: tall };
}

// Draws an image; `picture` has the bitmap, its palette and legend, and whether its rows are the columns of the page.
export function image(canvas, picture, axes, marks) {
  const width = canvas.parentElement.clientWidth;
  const [rows, columns] = axes.map((axis) => axis.end - axis.start);
  const area = box(width, rows, columns);
  const cx = context(canvas, width, area.height + TOP + BOTTOM);
  const { left, top } = area;
  cx.fillStyle = colour("--bg");
  cx.fillRect(left, top, area.width, area.height);
  cx.save();
  cx.imageSmoothingEnabled = false;
  if (picture.isTransposed) {
    cx.transform(0, 1, 1, 0, left, top);
    cx.drawImage(picture.bitmap, 0, 0, area.height, area.width);
  } else {
    cx.drawImage(picture.bitmap, left, top, area.width, area.height);
  }
  cx.restore();
  cx.strokeStyle = colour("--line");
  cx.strokeRect(left - 0.5, top - 0.5, area.width + 1, area.height + 1);
  for (const at of ticks(axes[0].start, axes[0].end - 1, Math.max(2, area.height / 60), true)) {
    text(cx, String(at), left - 6, top + ((at - axes[0].start + 0.5) / rows) * area.height, "right");
  }
  for (const at of ticks(axes[1].start, axes[1].end - 1, Math.max(2, area.width / 80), true)) {
    text(cx, String(at), left + ((at - axes[1].start + 0.5) / columns) * area.width, top + area.height + 8, "center", "top");
  }
  legend(cx, picture, left + area.width + 14, top, area.height);
  cross(cx, area, axes, marks);
  return area;
}

function legend(cx, { palette, range, values }, x, y, height) {
  if (values) {
    const last = Math.max(1, values.length - 1);
    const step = Math.min(20, height / values.length);
    values.forEach((value, i) => {
      cx.fillStyle = palette[Math.floor((i * 254) / last) + 1];
      cx.fillRect(x, y + i * step, 14, step - 2);
      text(cx, value, x + 20, y + i * step + step / 2, "left");
    });
    return;
  }
  if (!range) return;
  for (let i = 0; i < height; i += 1) {
    cx.fillStyle = palette[255 - Math.round((i / (height - 1)) * 254)];
    cx.fillRect(x, y + i, 12, 1.5);
  }
  for (const at of ticks(range[0], range[1], Math.max(2, height / 60), false)) {
    const part = range[1] > range[0] ? (at - range[0]) / (range[1] - range[0]) : 0.5;
    text(cx, short(at), x + 17, y + (1 - part) * (height - 1), "left");
  }
}

// The marked element, and the part that is being chosen.
function cross(cx, area, axes, { at, chosen }) {
  cx.save();
  cx.beginPath();
  cx.rect(area.left, area.top, area.width, area.height);
  cx.clip();
  const place = ([row, column]) => [
    area.left + ((column - axes[1].start + 0.5) / (axes[1].end - axes[1].start)) * area.width,
    area.top + ((row - axes[0].start + 0.5) / (axes[0].end - axes[0].start)) * area.height,
  ];
  const [x, y] = place(at);
  for (const [stroke, wide] of [["#000a", 3], ["#fff", 1]]) {
    cx.strokeStyle = stroke;
    cx.lineWidth = wide;
    cx.beginPath();
    for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
      cx.moveTo(x + dx * 4, y + dy * 4);
      cx.lineTo(x + dx * 12, y + dy * 12);
    }
    cx.stroke();
  }
  if (chosen) {
    const [x0, y0, x1, y1] = chosen;
    cx.strokeStyle = "#fff";
    cx.fillStyle = "#fff3";
    cx.fillRect(x0, y0, x1 - x0, y1 - y0);
    cx.strokeRect(x0, y0, x1 - x0, y1 - y0);
  }
  cx.restore();
}

// Draws a curve of `numbers` of the elements `axis.start..axis.end`, with a mark at element `at`.
export function curve(canvas, numbers, axis, at, range, height) {
  const width = canvas.parentElement.clientWidth;
  const cx = context(canvas, width, height);
  const area = { left: LEFT + 12, top: TOP, width: width - LEFT - 24, height: height - TOP - BOTTOM };
  const { low, high } = numbers;
  const finite = [...low, ...high].filter((value) => value !== null);
  let [bottom, above] = [range[0] ?? finite.reduce((a, b) => Math.min(a, b), Infinity), range[1] ?? finite.reduce((a, b) => Math.max(a, b), -Infinity)];
  if (!(bottom < above)) [bottom, above] = Number.isFinite(bottom) ? [bottom - 1, bottom + 1] : [0, 1];
  const n = low.length;
  const x = (i) => area.left + (n > 1 ? (i + 0.5) / n : 0.5) * area.width;
  const y = (value) => area.top + (1 - (value - bottom) / (above - bottom)) * area.height;
  cx.lineWidth = 1;
  for (const value of ticks(bottom, above, Math.max(2, area.height / 45), false)) {
    cx.strokeStyle = colour("--grid");
    cx.beginPath();
    cx.moveTo(area.left, y(value));
    cx.lineTo(area.left + area.width, y(value));
    cx.stroke();
    text(cx, short(value), area.left - 6, y(value), "right");
  }
  for (const value of ticks(axis.start, axis.end - 1, Math.max(2, area.width / 90), true)) {
    text(cx, String(value), area.left + ((value - axis.start + 0.5) / (axis.end - axis.start)) * area.width, area.top + area.height + 8, "center", "top");
  }
  cx.save();
  cx.beginPath();
  cx.rect(area.left, area.top - 2, area.width, area.height + 4);
  cx.clip();
  band(cx, low, high, x, y);
  cx.strokeStyle = colour("--mark");
  const mark = area.left + ((at - axis.start + 0.5) / (axis.end - axis.start)) * area.width;
  cx.beginPath();
  cx.moveTo(mark, area.top);
  cx.lineTo(mark, area.top + area.height);
  cx.stroke();
  cx.restore();
  return area;
}

// The range of each point, and a line through the middles; both end where there is no number.
function band(cx, low, high, x, y) {
  const n = low.length;
  cx.fillStyle = colour("--band");
  cx.strokeStyle = colour("--curve");
  cx.lineWidth = 1.5;
  cx.lineJoin = "round";
  let start = 0;
  while (start < n) {
    if (low[start] === null || high[start] === null) {
      start += 1;
      continue;
    }
    let end = start;
    while (end < n && low[end] !== null && high[end] !== null) end += 1;
    cx.beginPath();
    for (let i = start; i < end; i += 1) cx.lineTo(x(i), y(high[i]));
    for (let i = end - 1; i >= start; i -= 1) cx.lineTo(x(i), y(low[i]));
    cx.fill();
    cx.beginPath();
    for (let i = start; i < end; i += 1) cx.lineTo(x(i), (y(low[i]) + y(high[i])) / 2);
    if (end - start === 1) cx.lineTo(x(start) + 1, (y(low[start]) + y(high[start])) / 2);
    cx.stroke();
    start = end;
  }
}

// The bitmap of a PNG, its palette, and its texts.
export async function decoded(bytes) {
  const view = new DataView(bytes);
  const latin = (at, length) => String.fromCharCode(...new Uint8Array(bytes, at, length));
  const texts = {};
  let palette = [];
  for (let at = 8; at + 12 <= bytes.byteLength; at += 12 + view.getUint32(at)) {
    const [length, type] = [view.getUint32(at), latin(at + 4, 4)];
    if (type === "tEXt") {
      const [key, value] = latin(at + 8, length).split("\0");
      texts[key] = value;
    } else if (type === "PLTE") {
      const parts = new Uint8Array(bytes, at + 8, length);
      palette = Array.from({ length: length / 3 }, (_, i) => `rgb(${parts.slice(3 * i, 3 * i + 3).join(" ")})`);
    }
  }
  const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const values = texts.Values?.split(", ");
  const range = texts.Range?.split(" ").map(Number);
  return { bitmap, palette, texts, values, range };
}
