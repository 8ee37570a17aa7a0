// The page of a directory: the list to filter, what a container is, and its arrays by slices.
// Every text of a container becomes a text node, with what would change the order of others written as an escape.
import { View } from "./view.js";
import { h, size, visible, words } from "./dom.js";

const list = document.getElementById("list");
const files = document.getElementById("files");
const main = document.querySelector("main");
const rows = [...list.children];
const arrays = rows.filter((row) => row.classList.contains("array"));
const panel = h("div", { id: "panel" });

const link = (row) => row.querySelector("a");
const stem = (row) => link(row).getAttribute("href").replace(/\.npy$/, "");

// The list.

function tools() {
  const filter = h("input", { type: "search", placeholder: "Filter (press /)", ariaLabel: "Filter by name" });
  const names = rows.map((row) => link(row).textContent.toLowerCase());
  const count = files.querySelector("h2 small");
  const status = h("span", { role: "status", className: "note" });
  const show = () => {
    const text = filter.value.toLowerCase();
    let shown = 0;
    rows.forEach((row, i) => {
      const fits = names[i].includes(text);
      if (row.hidden === fits) row.hidden = !fits;
      if (fits && !row.classList.contains("up")) shown += 1;
    });
    status.textContent = text ? `${shown} of ${count.textContent}` : "";
  };
  filter.addEventListener("input", show);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
      event.preventDefault();
      filter.focus();
    }
  });
  const order = h("select", { ariaLabel: "Order" }, ...["As stored", "Name", "Size"].map((text) => h("option", {}, text)));
  order.addEventListener("change", () => {
    const number = (row) => Number(row.querySelector("data")?.value ?? -1);
    const keys = {
      Name: (a, b) => link(a).textContent.localeCompare(link(b).textContent, undefined, { numeric: true }),
      Size: (a, b) => number(b) - number(a),
    };
    const up = (row) => (row.classList.contains("up") ? 0 : 1);
    list.append(...[...rows].sort((a, b) => up(a) - up(b) || (keys[order.value]?.(a, b) ?? 0)));
  });
  const bar = h("div", { className: "tools" }, filter, order);
  if (rows.some((row) => row.classList.contains("container"))) bar.append(previews());
  list.before(bar, status);
}

function previews() {
  const button = h("button", { type: "button", ariaPressed: "false" }, "Previews");
  button.addEventListener("click", () => {
    const shown = list.classList.toggle("tiles");
    button.ariaPressed = String(shown);
    for (const row of rows.filter((row) => row.classList.contains("container"))) {
      row.querySelector("img")?.remove();
      if (!shown) continue;
      const image = h("img", { alt: "", loading: "lazy", src: `${link(row).getAttribute("href")}data.png?slice=&size=256` });
      image.addEventListener("error", () => image.remove());
      row.prepend(image);
    }
  });
  return button;
}

list.addEventListener("keydown", (event) => {
  const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  if (!step || event.target.tagName !== "A") return;
  event.preventDefault();
  let row = event.target.closest("li")[step];
  while (row?.hidden) row = row[step];
  if (row) link(row).focus();
});

// The description of a container.

function tree(value) {
  if (value === null || typeof value !== "object") return visible(String(value ?? "unknown"));
  const flat = Array.isArray(value) && value.every((item) => item === null || typeof item !== "object");
  if (flat) return visible(value.length ? value.join(", ") : "none");
  const entries = Object.entries(value);
  const most = 200;
  const shown = entries.slice(0, most).flatMap(([key, item]) => [h("dt", {}, visible(words(key))), h("dd", {}, tree(item))]);
  if (entries.length > most) shown.push(h("dt", {}, "..."), h("dd", {}, `${entries.length - most} more`));
  return h("dl", {}, ...shown);
}

function checksums(of) {
  if (of === null || typeof of !== "object") return visible(String(of ?? "unknown"));
  const kinds = Object.entries(of).map(([key, one]) => one?.algorithm ?? (typeof one === "object" ? key : `${words(key)} ${one}`));
  return [...new Set(kinds)].join(", ") || "none";
}

function facts(info) {
  const ratio = info.ratio ?? (info.decoded_size && info.file_size ? info.decoded_size / info.file_size : null);
  const all = {
    Format: `${info.format} ${info.format_version ?? ""}`,
    Stored: size(info.file_size),
    Decoded: info.decoded_size === null || info.decoded_size === undefined ? "unknown" : size(info.decoded_size),
    Ratio: ratio ? `${Number(ratio).toPrecision(3)} : 1` : null,
    Checksums: checksums(info.checksums),
    Chunks: Number.isInteger(info.chunks) ? info.chunks.toLocaleString() : null,
    "Chunk shape": info.array?.chunkshape?.join(" \u00d7 "),
    Tensors: rows.some((row) => link(row).getAttribute("href") === "tensors/")
      ? h("a", { href: "tensors/" }, `${Number.isInteger(info.tensors) ? info.tensors.toLocaleString() : "Tensors"} \u2192`) : null,
  };
  const known = Object.entries(all).filter(([, value]) => value !== null && value !== undefined);
  return h("dl", { className: "facts" }, ...known.map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value instanceof Node ? value : visible(String(value))))));
}

function stages(info) {
  const bound = (config) => {
    if (config?.error_bound === undefined) return "";
    return `error \u2264 ${config.user_error_bound ?? config.user_eb ?? config.error_bound} ${config.eb_mode ?? ""}`;
  };
  if (Array.isArray(info.pipeline)) return info.pipeline.map((stage) => [stage.name, bound(stage.config)]);
  const filters = Array.isArray(info.filters) ? info.filters.map((filter) => [filter.name ?? filter, ""]) : [];
  const codec = typeof info.codec === "string" ? [[info.codec, info.level === undefined ? "" : `level ${info.level}`]] : [];
  return [...filters, ...codec];
}

async function about() {
  const reply = await fetch("info.json");
  const info = await reply.json();
  if (!reply.ok) throw new Error(info.error);
  const card = h("section", { className: "card", ariaLabel: "About this container" }, h("h2", {}, "About"), facts(info));
  const steps = stages(info);
  if (steps.length) {
    const step = ([name, note]) => h("li", {}, visible(String(name)), note ? h("small", {}, visible(note)) : "");
    card.append(h("h3", { className: "pipeline-title" }, "Pipeline"), h("ol", { className: "pipeline" }, ...steps.map(step)));
  }
  card.append(h("details", {}, h("summary", {}, "All of info.json"), tree(info)));
  panel.append(card);
}

// The arrays.

let view = null;

async function open(row, state) {
  view?.close();
  rows.forEach((one) => one.classList.toggle("current", one === row));
  arrays.forEach((one) => link(one).removeAttribute("aria-current"));
  link(row).setAttribute("aria-current", "true");
  const { shape, dtype } = row.dataset;
  view = new View(stem(row), link(row).textContent.replace(/\.npy$/, ""), shape.split("x").filter(Boolean).map(Number), dtype, row.querySelector("span").textContent, state);
  view.links.append(...links(row));
  viewer(row, view.links);
  panel.prepend(view.root);
  view.start();
  const reply = await fetch(`${stem(row)}.json?about`);
  if (!reply.ok) return;
  const known = await reply.json();
  if (Object.keys(known.attributes).length) {
    view.root.append(h("details", { open: true }, h("summary", {}, "Attributes"), tree(known.attributes)));
  }
}

function links(row) {
  const own = stem(row);
  return [h("a", { href: `${own}.npy`, download: "" }, ".npy"), h("a", { href: `${own}.raw`, download: "" }, ".raw")];
}

// The link to the viewer. The scale of an array stands in the group that is its image; other arrays are their own.
async function viewer(row, list) {
  if (!document.body.dataset.viewer || !rows.some((one) => link(one).getAttribute("href") === "data.zarr/")) return;
  const own = stem(row);
  const reply = await fetch("data.zarr/zarr.json");
  if (!reply.ok) return;
  const image = (await reply.json()).attributes.ome?.multiscales[0].datasets[0].path;
  const source = new URL(image === decodeURIComponent(own) ? "data.zarr/" : `data.zarr/${own}/`, location.href).href;
  const state = { layers: [{ type: "image", name: own, source: `zarr://${source}` }] };
  const query = `?source=${encodeURIComponent(source)}#!${encodeURIComponent(JSON.stringify(state))}`;
  list.append(h("a", { href: document.body.dataset.viewer + query }, "Viewer"));
}

function start() {
  tools();
  const hasInfo = rows.some((row) => link(row).getAttribute("href") === "info.json");
  if (!arrays.length && !hasInfo) return;
  main.classList.add("split");
  files.before(panel);
  if (hasInfo) about().catch((error) => panel.append(h("p", { className: "error card", role: "alert" }, visible(error.message))));
  const state = new URLSearchParams(location.hash.slice(1));
  const first = arrays.find((row) => stem(row) === state.get("array")) ?? arrays[0];
  if (first) open(first, state);
  list.addEventListener("click", (event) => {
    const row = event.target.closest("li.array");
    if (!row || event.target.tagName !== "A" || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    open(row, new URLSearchParams());
    view.root.scrollIntoView({ block: "nearest" });
  });
}

start();
