// The page of fzmfs serve in headless Chromium: node check_page.mjs FZMFS DIR PICTURES, as scripts/serve-page calls it.
// DIR has containers, and a folder "many" of more of them. Every page, at two widths and in both colour schemes, must
// load without a message of the console, without a violation of its policy or of axe-core's rules, and fit its width.
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [program, dir, pictures] = process.argv.slice(2);
const require = createRequire(join(process.cwd(), "node_modules/"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
mkdirSync(pictures, { recursive: true });

const failures = [];
let checks = 0;
const check = (holds, what) => {
  checks += 1;
  if (!holds) failures.push(what);
  if (!holds) console.log(`FAILED ${what}`);
};

const server = spawn(program, ["serve", dir, "--listen", "127.0.0.1:0"], { stdio: ["ignore", "pipe", "inherit"] });
process.on("exit", () => server.kill());
const root = await new Promise((found) => server.stdout.on("data", (text) => found(/http:\S+/.exec(text)[0])));
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });

// Opens `path`, waits until the page is at rest, and checks it.
async function visit(path, name, { width = 1280, scheme = "light", isSparse = false, isPlain = false, act } = {}) {
  if (!new RegExp(process.env.ONLY ?? "").test(name)) return;
  const context = await browser.newContext({ viewport: { width, height: 860 }, colorScheme: scheme, bypassCSP: false });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  const messages = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) messages.push(message.text()); });
  page.on("pageerror", (error) => messages.push(String(error)));
  page.on("dialog", (dialog) => {
    messages.push(`a script of a container ran: ${dialog.message()}`);
    dialog.dismiss();
  });
  const foreign = [];
  page.on("request", (request) => { if (!request.url().startsWith(root) && !request.url().startsWith("blob:")) foreign.push(request.url()); });
  const begin = Date.now();
  await page.goto(root + path, { waitUntil: "networkidle" });
  const loaded = Date.now() - begin;
  const failed = await page.locator(".error:visible").allTextContents();
  if (act) await act(page);
  await page.waitForFunction(() => !document.querySelector("[aria-busy=true]"));
  const kept = messages.filter((text) => !(isSparse && /404/.test(text)) && !(isPlain && /sandbox/.test(text)));
  check(kept.length === 0, `${name}: console: ${kept.join("; ")}`);
  check(foreign.length === 0, `${name}: elsewhere: ${foreign.join(" ")}`);
  check(failed.length === 0, `${name}: ${failed.join("; ")}`);
  const beyond = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  check(beyond <= 0, `${name}: ${beyond} pixels too wide`);
  if (isPlain) return context.close();
  // The rules come from outside of the page, which its policy does not concern.
  const session = await context.newCDPSession(page);
  const { frameTree } = await session.send("Page.getFrameTree");
  const { executionContextId: contextId } = await session.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
  await session.send("Runtime.evaluate", { contextId, expression: axe });
  const { result } = await session.send("Runtime.evaluate", {
    contextId, awaitPromise: true, returnByValue: true,
    expression: "axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations.map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html).join(' | ')}`))",
  });
  check(Array.isArray(result.value) && result.value.length === 0, `${name}: axe: ${JSON.stringify(result.value ?? result)}`);
  await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: name !== "many" });
  console.log(`${name}: loaded in ${loaded} ms`);
  await context.close();
}

try {
  const containers = readdirSync(dir).filter((name) => name.includes(".") && !name.endsWith(".svg")).sort();
  await visit("", "root");
  await visit("", "root-dark-400", { width: 400, scheme: "dark" });
  await visit("", "root-previews", { isSparse: true, act: async (page) => {
    await page.getByRole("button", { name: "Previews" }).click();
    await page.waitForFunction(() => [...document.querySelectorAll("#list img")].every((image) => image.complete));
  } });
  for (const name of containers) {
    const path = `${encodeURIComponent(name)}/`;
    const plain = name.replace(/[^\w.-]+/g, "_");
    await visit(path, plain);
    await visit(path, `${plain}-dark-400`, { width: 400, scheme: "dark" });
  }
  for (const name of (process.env.TENSORS ?? "").split(" ").filter(Boolean)) await visit(`${name}/tensors/`, `${name}-tensors`);
  const first = process.env.VOLUME ?? containers[0];
  await visit(`${first}/`, `${first}-used`, { scheme: "dark", act: async (page) => {
    const canvas = page.locator("canvas.image");
    await canvas.click({ position: { x: 200, y: 120 } });
    const before = await page.locator(".readout b").textContent();
    await canvas.press("ArrowRight");
    await canvas.press("Shift+ArrowDown");
    await page.waitForFunction((before) => document.querySelector(".readout b").textContent !== before, before);
    await page.getByLabel("Colours").selectOption("magma");
    const slider = page.locator("input[type=range]").first();
    if (await slider.count()) await slider.press("End");
    await page.getByRole("button", { name: "Zoom in" }).click();
    await page.getByRole("combobox", { name: /^Along/ }).selectOption({ index: 0 });
  } });
  await visit("picture.svg", "picture.svg", { isPlain: true });
  await visit("many/", "many", { act: async (page) => {
    await page.keyboard.press("/");
    await page.keyboard.type("04321");
    await page.waitForFunction(() => document.querySelectorAll("#list li:not([hidden])").length < 10);
  } });
} finally {
  await browser.close();
  server.kill();
}
console.log(failures.length ? `${failures.length} of ${checks} checks FAILED` : `${checks} checks OK; pictures in ${pictures}`);
process.exit(failures.length ? 1 : 0);
