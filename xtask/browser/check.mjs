// Checks report pages in Chromium: accessibility, width, the cursor, zoom and the key of the charts.
// Usage: node check.mjs PAGE...
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SETTINGS = [
  { width: 1280, colorScheme: "light" },
  { width: 390, colorScheme: "dark" },
];
const faults = [];

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
for (const file of process.argv.slice(2)) {
  for (const setting of SETTINGS) await check(file, setting);
  await checkWithoutScripts(file);
}
await browser.close();
console.log(faults.length === 0 ? "no faults" : faults.join("\n"));
process.exit(faults.length === 0 ? 0 : 1);

async function check(file, { width, colorScheme }) {
  const fault = (text) => faults.push(`${file}, ${width} px, ${colorScheme}: ${text}`);
  // The page's policy would also block axe-core.
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme, bypassCSP: true });
  const page = await context.newPage();
  page.on("pageerror", (error) => fault(`script error: ${error}`));
  await page.goto(pathToFileURL(file).href);
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run());
  for (const { impact, id, nodes } of violations) {
    if (impact === "serious" || impact === "critical") fault(`${id}: ${nodes[0].html}`);
  }
  const excess = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (excess > 0) fault(`the page is ${excess} px too wide`);
  await checkCharts(page, fault);
  await context.close();
}

async function checkCharts(page, fault) {
  const figure = page.locator("figure:has(polyline)").first();
  const plot = figure.locator(".plot");
  await plot.scrollIntoViewIfNeeded();
  const box = await plot.boundingBox();
  const at = (share) => [box.x + share * box.width, box.y + box.height / 2];
  const values = async () => (await figure.locator(".key output").allTextContents()).join("").trim();

  await page.mouse.move(...at(0.6));
  if (!/\d/.test(await values())) fault("no value under the cursor");
  await page.mouse.move(0, 0);
  if ((await values()) !== "") fault("the values remain without a cursor");
  await plot.focus();
  await page.keyboard.press("ArrowRight");
  if (!/\d/.test(await values())) fault("no value after an arrow key");

  const curve = figure.locator("polyline").first();
  const points = () => curve.getAttribute("points");
  const whole = await points();
  await page.mouse.move(...at(0.4));
  await page.mouse.down();
  await page.mouse.move(...at(0.7), { steps: 3 });
  await page.mouse.up();
  if ((await points()) === whole) fault("dragging does not zoom");
  if ((await figure.locator("text.y").first().isVisible()) === false) fault("zoom hides the y axis");
  await plot.focus();
  await page.keyboard.press("Escape");
  const distance = (a, b) => {
    const [x, y] = [a, b].map((text) => text.trim().split(/[ ,]+/).map(Number));
    return Math.max(...x.map((value, i) => Math.abs(value - y[i])));
  };
  if (distance(await points(), whole) > 0.01) fault("Escape does not restore the chart");

  const toggle = page.locator(".key button").first();
  if ((await toggle.count()) > 0) {
    await toggle.click();
    if ((await toggle.getAttribute("aria-pressed")) !== "false") fault("the key hides no curve");
  }
}

async function checkWithoutScripts(file) {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  await page.goto(pathToFileURL(file).href);
  if ((await page.locator("figure svg").count()) === 0) faults.push(`${file}: no charts without scripts`);
  await context.close();
}
