// One array: its slices as images, and its lines as curves.
import { ask, h, newest, visible } from "./dom.js";
import { curve, decoded, image } from "./plot.js";

const MAPS = ["viridis", "magma", "inferno", "plasma", "coolwarm", "gray"];
const NUMBERS = /^(bool|bf16|bfloat16|float(16|32|64)|u?int(8|16|32|64)|complex(64|128)|f(16|32|64)|[iu](8|16|32|64)|c(64|128)|[<>|][bfiuc]\d+)$/;
const CURVE = 220;

export class View {
  constructor(stem, name, shape, dtype, kind, state) {
    Object.assign(this, { stem, shape, dtype });
    this.long = shape.map((_, d) => d).filter((d) => shape[d] > 1);
    this.at = shape.map((n) => Math.floor(n / 2));
    this.spans = shape.map((end) => ({ start: 0, end }));
    // As the preview: the last two long axes, or those before a short last one, such as colours.
    const long = [...this.long];
    const last = long.at(-1);
    if (long.length > 2 && shape[last] <= 4 && shape[long.at(-2)] > 4 && shape[long.at(-3)] > 4) long.pop();
    this.columns = long.at(-1) ?? shape.length - 1;
    this.rows = long.at(-2) ?? null;
    this.along = this.columns;
    this.map = "viridis";
    this.isReversed = false;
    this.range = [null, null];
    this.values = new Map();
    this.restore(state);
    this.build(name, kind);
  }

  get isImage() {
    return this.rows !== null;
  }

  // State in the address, so that a view can be shared.

  restore(state) {
    const numbers = (key) => (state.get(key) ?? "").split(",").filter(Boolean).map(Number);
    const fits = (values, bounds) => values.length === bounds.length && values.every((value, i) => Number.isInteger(value) && value >= 0 && value < bounds[i]);
    if (fits(numbers("at"), this.shape)) this.at = numbers("at");
    const [rows, columns] = numbers("axes");
    if (this.isImage && rows !== columns && this.long.includes(rows) && this.long.includes(columns)) {
      Object.assign(this, { rows, columns, along: columns });
    }
    const [map, reversed] = (state.get("cmap") ?? "").split("_");
    if (MAPS.includes(map)) Object.assign(this, { map, isReversed: reversed === "r" });
    this.range = ["vmin", "vmax"].map((key) => (state.get(key) && Number.isFinite(Number(state.get(key))) ? Number(state.get(key)) : null));
  }

  save() {
    const state = new URLSearchParams({ array: this.stem, at: this.at.join(",") });
    if (this.isImage) state.set("axes", `${this.rows},${this.columns}`);
    if (this.colours !== "viridis") state.set("cmap", this.colours);
    ["vmin", "vmax"].forEach((key, i) => this.range[i] !== null && state.set(key, this.range[i]));
    history.replaceState(null, "", `#${state.toString().replaceAll("%2C", ",").replaceAll("%2F", "/")}`);
  }

  get colours() {
    return this.isReversed ? `${this.map}_r` : this.map;
  }

  // The elements of the page.

  build(name, words) {
    const { shape, dtype } = this;
    this.links = h("span", { className: "links" });
    const kind = h("small", {}, words);
    this.error = h("p", { className: "error", role: "alert", hidden: true });
    this.root = h("section", { className: "card", ariaLabel: `Array ${visible(name)}` },
      h("div", { className: "title" }, h("h2", {}, visible(name)), kind, this.links), this.error);
    if (!NUMBERS.test(dtype)) {
      this.root.append(h("p", { className: "note" }, `Elements of the type ${visible(dtype)} have no picture.`));
      this.isDead = true;
      return;
    }
    if (shape.includes(0)) {
      this.root.append(h("p", { className: "note" }, "It has no elements."));
      this.isDead = true;
      return;
    }
    this.readout = h("p", { className: "readout", role: "status" });
    this.note = h("p", { className: "note" });
    this.main = h("canvas", { className: this.isImage ? "image" : "", tabIndex: 0, hidden: true });
    this.main.setAttribute("role", "img");
    this.main.setAttribute("aria-label", "No picture");
    this.root.append(this.controls(), h("div", {}, this.main), this.readout, this.note);
    if (this.isImage) {
      this.line = h("canvas", { hidden: true });
      this.line.setAttribute("role", "img");
      this.line.setAttribute("aria-label", "No curve");
      this.lineTitle = h("h3", {}, "Curve");
      const along = this.select("Along", this.long, this.along, (d) => {
        this.along = d;
        this.drawLine();
      });
      this.root.append(h("div", { className: "controls" }, this.lineTitle, along), h("div", {}, this.line));
    }
    this.listen();
  }

  axisName(d) {
    return `axis ${d} (${this.shape[d].toLocaleString()})`;
  }

  select(label, axes, chosen, change) {
    const options = axes.map((d) => h("option", { value: String(d), selected: d === chosen }, this.axisName(d)));
    const select = h("select", {}, ...options);
    select.addEventListener("change", () => change(Number(select.value)));
    return h("label", {}, label, select);
  }

  controls() {
    const bar = h("div", { className: "controls" });
    if (this.isImage && this.long.length > 2) bar.append(...this.axes());
    this.sliders = h("div", { className: "controls" });
    if (this.isImage) bar.append(this.palette());
    bar.append(this.ends(), this.zooms());
    this.slide();
    return h("div", {}, bar, this.sliders);
  }

  axes() {
    const choose = (own, other) => (d) => {
      if (this[other] === d) this[other] = this[own];
      this[own] = d;
      this.along = this.columns;
      this.spans = this.shape.map((end) => ({ start: 0, end }));
      for (const [select, value] of [[down, this.rows], [right, this.columns]]) select.querySelector("select").value = String(value);
      this.slide();
      this.draw();
    };
    const down = this.select("Down", this.long, this.rows, choose("rows", "columns"));
    const right = this.select("Across", this.long, this.columns, choose("columns", "rows"));
    return [down, right];
  }

  palette() {
    const select = h("select", {}, ...MAPS.map((name) => h("option", { selected: name === this.map }, name)));
    const reversed = h("input", { type: "checkbox", checked: this.isReversed });
    const change = () => {
      this.map = select.value;
      this.isReversed = reversed.checked;
      this.draw();
    };
    for (const input of [select, reversed]) input.addEventListener("change", change);
    return h("span", { className: "group" }, h("label", {}, "Colours", select), h("label", {}, reversed, "reversed"));
  }

  ends() {
    this.inputs = ["Smallest", "Largest"].map((name, i) => {
      const input = h("input", { type: "number", step: "any", placeholder: "auto", ariaLabel: `${name} value of the range` });
      if (this.range[i] !== null) input.value = String(this.range[i]);
      input.addEventListener("change", () => {
        this.range[i] = input.value === "" ? null : Number(input.value);
        this.draw();
      });
      return input;
    });
    const auto = h("button", { type: "button" }, "Auto");
    auto.addEventListener("click", () => {
      this.range = [null, null];
      this.inputs.forEach((input) => { input.value = ""; });
      this.draw();
    });
    return h("span", { className: "group" }, "Range", this.inputs[0], "to", this.inputs[1], auto);
  }

  zooms() {
    const button = (text, title, act) => {
      const button = h("button", { type: "button", title }, text);
      if (text.length === 1) button.ariaLabel = title;
      button.addEventListener("click", act);
      return button;
    };
    return h("span", { className: "group" },
      button("+", "Zoom in", () => this.zoom(0.5)), button("\u2212", "Zoom out", () => this.zoom(2)), button("Whole", "Show all of it", () => this.zoom(Infinity)));
  }

  // A slider for each axis that is not shown.
  slide() {
    const others = this.long.filter((d) => d !== this.rows && d !== this.columns);
    this.sliders.replaceChildren(...others.map((d) => {
      const most = this.shape[d] - 1;
      const name = `Index of axis ${d}`;
      const range = h("input", { type: "range", min: 0, max: most, ariaLabel: name });
      const number = h("input", { type: "number", min: 0, max: most, ariaLabel: `${name}, as a number` });
      const set = (value) => {
        this.at[d] = Math.min(most, Math.max(0, Math.round(Number(value)) || 0));
        range.value = number.value = String(this.at[d]);
        this.draw();
      };
      range.value = number.value = String(this.at[d]);
      range.addEventListener("input", () => set(range.value));
      number.addEventListener("change", () => set(number.value));
      return h("div", { className: "group axis" }, h("span", {}, `Axis ${d}`), range, number, h("output", {}, `of ${this.shape[d].toLocaleString()}`));
    }));
    this.sliders.hidden = others.length === 0;
  }

  // Drawing.

  start() {
    if (this.isDead) return;
    this.drawMain = newest(() => this.isImage ? this.fetchImage() : this.fetchCurve(this.main, this.columns, CURVE * 1.4));
    this.drawCurve = newest(() => this.fetchCurve(this.line, this.along, CURVE));
    this.readAt = newest((index) => this.read(index));
    const again = () => this.paint();
    this.observer = new ResizeObserver(again);
    this.observer.observe(this.root);
    this.theme = matchMedia("(prefers-color-scheme: dark)");
    this.theme.addEventListener("change", again);
    this.theme.removeAgain = again;
    this.draw();
  }

  close() {
    this.observer?.disconnect();
    this.theme?.removeEventListener("change", this.theme.removeAgain);
    this.isClosed = true;
    this.root.remove();
  }

  draw() {
    this.save();
    this.drawMain();
    this.readAt([...this.at]);
    this.drawLine();
  }

  drawLine() {
    if (this.line) this.drawCurve();
  }

  index(free, spans = this.spans) {
    return this.shape.map((n, d) => {
      if (!free.includes(d)) return String(this.at[d]);
      const { start, end } = spans[d];
      return start === 0 && end === n ? ":" : `${start}:${end}`;
    }).join(",");
  }

  url(suffix, slice, more = {}) {
    const query = new URLSearchParams({ slice, ...more });
    return `${this.stem}.${suffix}?${query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":")}`;
  }

  get ends_() {
    const ends = {};
    ["vmin", "vmax"].forEach((key, i) => { if (this.range[i] !== null) ends[key] = String(this.range[i]); });
    return ends;
  }

  // Does `work`, which sets the property `what`; without it after an error, so that no other slice seems to be this one.
  async guarded(what, work) {
    try {
      this.busy = (this.busy ?? 0) + 1;
      this.root.ariaBusy = "true";
      await work();
      this.error.hidden = true;
    } catch (error) {
      if (this.isClosed) return;
      this[what] = null;
      this.paint();
      this.error.textContent = visible(error.message);
      this.error.hidden = false;
    } finally {
      this.busy -= 1;
      this.root.ariaBusy = String(this.busy > 0);
    }
  }

  async fetchImage() {
    await this.guarded("picture", async () => {
      const { rows, columns } = this;
      const spans = structuredClone(this.spans);
      const pixels = Math.ceil((this.main.parentElement.clientWidth * (window.devicePixelRatio || 1)) / 256) * 256;
      const more = { size: String(Math.min(1024, Math.max(256, pixels))), cmap: this.colours, ...this.ends_ };
      const reply = await ask(this.url("png", this.index([rows, columns]), more));
      const picture = await decoded(await reply.arrayBuffer());
      picture.isTransposed = rows > columns;
      this.picture?.bitmap.close();
      Object.assign(this, { picture, shown: { rows, columns, spans } });
      const { Minimum, Maximum, Decoded, Title } = picture.texts;
      this.note.textContent = visible(`${Title.startsWith("magnitudes") ? "Magnitudes, from" : "From"} ${Minimum} to ${Maximum}. ${partly(Decoded)}`);
      this.main.setAttribute("aria-label", visible(`Image of ${Title}, values from ${Minimum} to ${Maximum}. Arrow keys move the mark.`));
      this.inputs.forEach((input, i) => { input.placeholder = picture.range ? String(Number(picture.range[i].toPrecision(5))) : "auto"; });
      this.paint();
    });
  }

  async fetchCurve(canvas, along, height) {
    await this.guarded("numbers", async () => {
      const slice = this.index([along], this.isImage ? this.shape.map((end) => ({ start: 0, end })) : this.spans);
      const reply = await ask(this.url("json", slice, { size: "1024" }));
      const numbers = await reply.json();
      const axis = this.isImage ? { start: 0, end: this.shape[along] } : { ...this.spans[along] };
      this.numbers = { numbers, axis, along, height };
      const title = `Curve along axis ${along}: ${numbers.slice}`;
      canvas.setAttribute("aria-label", `${title}, values from ${numbers.minimum} to ${numbers.maximum}. `);
      if (this.lineTitle) this.lineTitle.textContent = title;
      else this.note.textContent = `From ${numbers.minimum} to ${numbers.maximum}. ${partly(`${numbers.decoded} of ${numbers.elements} elements`)}`;
      this.paint();
    });
  }

  // Draws what is there again.
  paint() {
    if (this.isClosed) return;
    this.main.hidden = this.isImage ? !this.picture : !this.numbers;
    if (this.line) this.line.hidden = !this.numbers;
    if (this.picture) {
      const { rows, columns, spans } = this.shown;
      const marks = { at: [this.at[rows], this.at[columns]], chosen: this.chosen };
      this.area = image(this.main, this.picture, [spans[rows], spans[columns]], marks);
    }
    if (this.numbers) {
      const { numbers, axis, along, height } = this.numbers;
      const canvas = this.line ?? this.main;
      const area = curve(canvas, numbers, axis, this.at[along], this.line ? [null, null] : this.range, height);
      if (!this.line) this.area = area;
    }
  }

  async read(index) {
    const key = index.join(",");
    if (!this.values.has(key)) {
      try {
        const value = await (await ask(this.url("json", key))).json();
        this.values.set(key, value.minimum);
      } catch (error) {
        this.values.set(key, `unreadable: ${error.message}`);
      }
      if (this.values.size > 2000) this.values.delete(this.values.keys().next().value);
    }
    this.readout.replaceChildren(h("span", {}, `[${key.replaceAll(",", ", ")}]`), h("b", {}, visible(this.values.get(key))));
  }

  // Pointer and keys.

  // The element under a place of the main canvas.
  under(event) {
    const { area } = this;
    if (!area) return null;
    const [x, y] = [event.offsetX - area.left, event.offsetY - area.top];
    if (x < 0 || y < 0 || x >= area.width || y >= area.height) return null;
    const index = [...this.at];
    const pick = (d, part, { start, end }) => { index[d] = Math.min(end - 1, start + Math.floor(part * (end - start))); };
    const { rows, columns, spans } = this.shown ?? { rows: null, columns: this.columns, spans: this.spans };
    pick(columns, x / area.width, spans[columns]);
    if (rows !== null) pick(rows, y / area.height, spans[rows]);
    return index;
  }

  listen() {
    const { main } = this;
    let from = null;
    main.addEventListener("pointerdown", (event) => {
      from = this.under(event) ? { x: event.offsetX, y: event.offsetY, index: this.under(event) } : null;
      if (from && event.pointerType === "mouse") main.setPointerCapture(event.pointerId);
    });
    main.addEventListener("pointermove", (event) => {
      const index = this.under(event);
      if (from && event.pointerType === "mouse" && Math.hypot(event.offsetX - from.x, event.offsetY - from.y) > 5) {
        this.chosen = [from.x, this.isImage ? from.y : 0, event.offsetX, this.isImage ? event.offsetY : CURVE * 2];
        this.paint();
      } else if (index) this.readAt(index);
    });
    main.addEventListener("pointerup", (event) => {
      const index = this.under(event);
      if (this.chosen && from && index) this.choose(from.index, index);
      else if (from && index) this.mark(index);
      from = this.chosen = null;
      this.paint();
    });
    main.addEventListener("pointercancel", () => { from = this.chosen = null; });
    main.addEventListener("pointerleave", () => this.readAt([...this.at]));
    main.addEventListener("dblclick", () => this.zoom(Infinity));
    main.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const by = event.shiftKey ? 10 : 1;
    const moves = { ArrowLeft: [this.columns, -by], ArrowRight: [this.columns, by], ArrowUp: [this.rows, -by], ArrowDown: [this.rows, by] };
    const zooms = { "+": 0.5, "=": 0.5, "-": 2, 0: Infinity };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (zooms[event.key]) this.zoom(zooms[event.key]);
    else if (moves[event.key] && moves[event.key][0] !== null) {
      const [d, step] = moves[event.key];
      const index = [...this.at];
      index[d] = Math.min(this.spans[d].end - 1, Math.max(this.spans[d].start, index[d] + step));
      this.mark(index);
    } else return;
    event.preventDefault();
  }

  mark(index) {
    this.at = index;
    this.save();
    this.readAt([...index]);
    this.drawLine();
    this.paint();
  }

  choose(from, to) {
    for (const d of [this.rows, this.columns].filter((d) => d !== null)) {
      const [start, end] = [Math.min(from[d], to[d]), Math.max(from[d], to[d]) + 1];
      if (end - start > 1) this.span(d, start, end);
    }
    this.draw();
  }

  span(d, start, end) {
    this.spans[d] = { start, end };
    this.at[d] = Math.min(end - 1, Math.max(start, this.at[d]));
  }

  zoom(by) {
    for (const d of [this.rows, this.columns].filter((d) => d !== null)) {
      const { start, end } = this.spans[d];
      const wide = Math.min(this.shape[d], Math.max(2, Math.round((end - start) * by)));
      const first = Math.min(this.shape[d] - wide, Math.max(0, this.at[d] - Math.floor(wide / 2)));
      this.span(d, first, first + wide);
    }
    this.draw();
  }
}

// Says how much was decoded, unless it was all.
function partly(decoded) {
  const [some, all] = (decoded ?? "").match(/\d+/g) ?? [];
  return some && all && some !== all ? `Of ${Number(all).toLocaleString()} elements, ${Number(some).toLocaleString()} are read.` : "";
}
