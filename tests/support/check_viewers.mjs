// Arrays with spacing in viewers of OME-Zarr: node check_viewers.mjs FZMFS WORK PICTURES, as scripts/viewers calls it,
// which names the viewers' folders in NEUROGLANCER and VIZARR. The arrays are chessboards whose fields are as long in
// each dimension of space: in a picture at the right scale they are squares. One has its spacing in its file, as mlarray
// wrote it; for the others it is an option.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const [program, work, pictures] = process.argv.slice(2);
const { chromium } = createRequire(join(process.cwd(), "node_modules/"))("playwright-core");
mkdirSync(pictures, { recursive: true });

// `field` is how many elements a field is long, `si` the spacing as Neuroglancer counts, `layouts` what of it to look at:
// x, y, and z are its names for the first three dimensions.
const ARRAYS = [
  { name: "volume", shape: [40, 96, 160], field: [4, 10, 20], spacing: "2.5x1x0.5", units: "um", si: [[2.5e-6, "m"], [1e-6, "m"], [5e-7, "m"]], layouts: ["xy", "xz", "yz", "4panel"] },
  { name: "chunks", shape: [64, 384, 256], field: [16, 64, 32], spacing: "4x1x2", units: "nm", si: [[4e-9, "m"], [1e-9, "m"], [2e-9, "m"]], layouts: ["xz"] },
  { name: "image", shape: [300, 100], field: [60, 20], spacing: "0.25x0.75", units: "mm", si: [[2.5e-4, "m"], [7.5e-4, "m"]], layouts: ["xy"] },
  { name: "bare", shape: [40, 96, 160], field: [10, 20, 20], spacing: "2x1x1", units: undefined, si: [[2, ""], [1, ""], [1, ""]], layouts: ["xy"] },
  { name: "times", shape: [3, 20, 96, 160], field: [1, 4, 10, 20], spacing: "60x2.5x1x0.5", units: "sxumxumxum", si: [[60, "s"], [2.5e-6, "m"], [1e-6, "m"], [5e-7, "m"]], layouts: ["yz"] },
  { name: "mlarray", file: "blosc2/space/chessboard.mla", shape: [40, 96, 160], spacing: "2.5x1x0.5", units: "um", si: [[2.5e-6, "m"], [1e-6, "m"], [5e-7, "m"]], layouts: ["xy", "xz", "yz"] },
];

const failures = [];
let checks = 0;
const check = (holds, what) => {
  checks += 1;
  if (!holds) failures.push(what);
  if (!holds) console.log(`FAILED ${what}`);
};
const isNear = (value, want) => Math.abs(value - want) <= 1e-6 * Math.abs(want);

// The container of an array.
function write({ name, file, shape, field }) {
  if (file) return fileURLToPath(new URL(`../data/${file}`, import.meta.url));
  const bytes = Buffer.alloc(2 * shape.reduce((a, b) => a * b));
  for (let at = 0; at < bytes.length; at += 2) {
    let rest = at / 2;
    let sum = 0;
    for (let d = shape.length - 1; d >= 0; d -= 1) {
      sum += Math.floor((rest % shape[d]) / field[d]);
      rest = Math.floor(rest / shape[d]);
    }
    bytes.writeUInt16LE(sum % 2 ? 60_000 : 20_000, at);
  }
  const path = join(work, name);
  writeFileSync(path, bytes);
  execFileSync("zstd", ["-q", "--rm", path, "-o", `${path}.zst`]);
  return `${path}.zst`;
}

const servers = [];
process.on("exit", () => servers.forEach((server) => server.kill()));
async function serve({ name, file, path, shape, spacing, units }, viewer) {
  const given = ["--dtype", "<u2", "--shape", shape.join("x"), "--spacing", spacing, ...(units ? ["--units", units] : [])];
  const options = ["--listen", "127.0.0.1:0", "--viewer", viewer, ...(file ? [] : given)];
  const server = spawn(program, ["serve", path, ...options], { stdio: ["ignore", "pipe", "inherit"] });
  servers.push(server);
  const root = await new Promise((found, gone) => {
    server.stdout.on("data", (text) => found(/http:\S+/.exec(text)[0]));
    server.on("exit", (status) => gone(new Error(`${name}: serve ended with ${status}`)));
  });
  return { server, root };
}

const gl = ["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", ...gl] });
const viewport = { width: 1000, height: 800 };

// The lengths of the fields in the middle of a picture, across and down: medians of the whole ones.
async function fields(png) {
  const page = await browser.newPage();
  const lengths = await page.evaluate(async (url) => {
    const image = await createImageBitmap(await (await fetch(url)).blob());
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
    context.drawImage(image, 0, 0);
    const median = (dx, dy) => {
      const runs = [];
      for (const shift of [-37, -23, -11, 13, 29, 41]) {
        let run = 0;
        let before;
        let isWhole = false;
        const [length, across] = dx ? [image.width, image.height] : [image.height, image.width];
        for (let i = 0; i < length; i += 1) {
          const middle = Math.floor(across / 2) + shift;
          const [r, g, b] = context.getImageData(dx ? i : middle, dy ? i : middle, 1, 1).data;
          // The ground of Neuroglancer, the colours of its lines, and the edges of fields are neither.
          const isGrey = Math.max(r, g, b) - Math.min(r, g, b) < 24;
          const now = isGrey && r > 200 ? 1 : isGrey && r < 100 ? 0 : -1;
          if (now === before) {
            run += 1;
            continue;
          }
          if (isWhole && now >= 0 && before >= 0 && run > 5) runs.push(run);
          isWhole = now >= 0 && before >= 0;
          [run, before] = [1, now];
        }
      }
      return runs.sort((a, b) => a - b)[runs.length >> 1];
    };
    return [median(1, 0), median(0, 1)];
  }, `data:image/png;base64,${png.toString("base64")}`);
  await page.close();
  return lengths;
}

async function open(url, root, name, isReady) {
  const page = await browser.newPage({ viewport });
  page.setDefaultTimeout(60_000);
  const wrong = [];
  // Readers look for what older versions of Zarr have: 404 is the answer to that.
  page.on("console", (message) => { if (message.type() === "error" && !/404/.test(message.text())) wrong.push(message.text()); });
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("response", (reply) => { if (reply.status() > 404) wrong.push(`${reply.status()} ${reply.url()}`); });
  page.on("request", (request) => { if (![root, "blob:", "data:"].some((own) => request.url().startsWith(own))) wrong.push(`elsewhere: ${request.url()}`); });
  await page.goto(url);
  // From the page of the container, by its link.
  if (url === root) await page.getByRole("link", { name: "Viewer" }).click();
  await page.waitForFunction(isReady);
  // Drawn when the picture stays as it is.
  let png = await page.screenshot();
  for (let same = 0, tries = 0; same < 3 && tries < 40; tries += 1) {
    await page.waitForTimeout(500);
    const next = await page.screenshot();
    same = next.equals(png) ? same + 1 : 0;
    png = next;
  }
  writeFileSync(join(pictures, `${name}.png`), png);
  check(wrong.length === 0, `${name}: ${wrong.join("; ")}`);
  const address = decodeURIComponent(page.url());
  await page.close();
  return { address, png };
}

async function squares(name, png) {
  const [across, down] = await fields(png);
  check(across > 8 && Math.abs(across - down) <= 1 + 0.02 * down, `${name}: a field is ${across} x ${down} pixels, not square`);
  return `${across} x ${down}`;
}

async function neuroglancer(array) {
  const { server, root } = await serve(array, process.env.NEUROGLANCER);
  for (const layout of [...array.layouts, "link"]) {
    const name = `neuroglancer-${array.name}-${layout}`;
    const layer = { type: "image", name: "data", tab: "rendering", source: `zarr://${root}data.zarr/` };
    const state = { layers: [layer], layout, showAxisLines: layout === "4panel", crossSectionBackgroundColor: "#808080" };
    const url = layout === "link" ? root : `${root}-/viewer/#!${encodeURIComponent(JSON.stringify(state))}`;
    const { address, png } = await open(url, root, name, () => decodeURIComponent(location.hash).includes('"dimensions":'));
    const { dimensions } = JSON.parse(address.slice(address.indexOf("#!") + 2));
    const scales = Object.values(dimensions);
    const isRight = scales.length === array.si.length && scales.every(([scale, unit], d) => isNear(scale, array.si[d][0]) && unit === array.si[d][1]);
    check(isRight, `${name}: dimensions ${JSON.stringify(dimensions)}, not ${JSON.stringify(array.si)}`);
    const field = ["4panel", "link"].includes(layout) ? "" : `, a field ${await squares(name, png)}`;
    console.log(`${name}: ${JSON.stringify(dimensions)}${field}`);
  }
  server.kill();
}

async function vizarr(array) {
  const { server, root } = await serve(array, process.env.VIZARR);
  const name = `vizarr-${array.name}`;
  const { address, png } = await open(root, root, name, () => location.search.includes("viewState"));
  const { target } = JSON.parse(/viewState=(\{.*?\})/.exec(address)[1]);
  // It looks at the middle of the image, in units of the file.
  const spacing = array.spacing.split("x").map(Number);
  const [y, x] = array.shape.map((count, d) => (count * spacing[d]) / 2).slice(-2);
  check(isNear(target[0], x) && isNear(target[1], y), `${name}: the middle is at ${target}, not ${[x, y]}`);
  console.log(`${name}: the middle at ${target} ${array.units ?? ""}, a field ${await squares(name, png)}`);
  server.kill();
}

const isWanted = new RegExp(process.env.ONLY ?? "");
try {
  for (const array of ARRAYS.filter(({ name }) => isWanted.test(name))) {
    array.path = write(array);
    if (process.env.NEUROGLANCER) await neuroglancer(array);
    if (process.env.VIZARR) await vizarr(array);
  }
} finally {
  await browser.close();
  servers.forEach((server) => server.kill());
}
console.log(failures.length ? `${failures.length} of ${checks} checks FAILED` : `${checks} checks OK; pictures in ${pictures}`);
process.exit(failures.length ? 1 : 0);
