// Checks report pages in Chromium: accessibility, width, overlapping or cut text, and the cursor,
// zoom and key of the charts.
// Usage: node check.mjs PAGE...
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SETTINGS = [1280, 390].flatMap((width) =>
  ["light", "dark"].map((colorScheme) => ({ width, colorScheme })),
);
// Maximum width of a printed page. Chromium shrinks content that is at most 4/3 as wide as the
// printable area, which has 688 px (A4 with margins of 14 mm).
const PRINTED = 917;
const faults = [];

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
for (const file of process.argv.slice(2)) {
  for (const setting of SETTINGS) await check(file, setting);
  await checkWithoutScripts(file);
  await checkPrinted(file);
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
  await page.evaluate(() => document.querySelectorAll("details").forEach((details) => (details.open = true)));
  await checkLayout(page, fault);
  await checkCursor(page, fault);
  await checkDots(page, fault);
  await context.close();
}

async function checkLayout(page, fault) {
  const excess = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (excess > 0) fault(`the page is ${excess} px too wide`);
  (await page.evaluate(textFaults)).forEach(fault);
}

// Returns the faults of a page's text. Runs in the page.
function textFaults() {
  const faults = [];
  for (const svg of document.querySelectorAll(".plot > svg")) {
    const title = svg.closest("figure").querySelector("figcaption").textContent.trim();
    const texts = [...svg.querySelectorAll("text")].filter(
      (text) => text.textContent !== "" && text.checkVisibility({ visibilityProperty: true }),
    );
    const frame = svg.getBoundingClientRect();
    if (texts.length === 0) faults.push(`"${title}": no text`);
    const boxes = texts.map((text) => [text.textContent, text.getBoundingClientRect()]);
    boxes.forEach(([text, box], i) => {
      const outside = Math.max(frame.left - box.left, box.right - frame.right, frame.top - box.top, box.bottom - frame.bottom);
      if (outside > 1) faults.push(`"${title}": "${text}" is ${outside.toFixed(1)} px outside`);
      for (const [other, its] of boxes.slice(i + 1)) {
        const width = Math.min(box.right, its.right) - Math.max(box.left, its.left);
        const height = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
        // Line boxes are taller than the letters.
        if (width > 1 && height > 0.3 * box.height) faults.push(`"${title}": "${text}" and "${other}" overlap`);
      }
    });
    const shapes = "polyline, circle, rect.heat, polygon, .range";
    if (svg.querySelectorAll(shapes).length === 0) faults.push(`"${title}": an empty chart`);
  }
  for (const cell of document.querySelectorAll("th, td")) {
    if (cell.scrollWidth > cell.clientWidth + 1) faults.push(`wider than its cell: ${cell.textContent}`);
  }
  for (const element of document.querySelectorAll("body *:not(svg, svg *)")) {
    const isCut = element.scrollWidth > element.clientWidth + 1 || element.scrollHeight > element.clientHeight + 1;
    if (isCut && ["hidden", "clip"].includes(getComputedStyle(element).overflow)) {
      faults.push(`cut: ${element.outerHTML.slice(0, 80)}`);
    }
  }
  return faults;
}

// Checks that the cursor shows the value of each point, also in a part of the chart.
async function checkDots(page, fault) {
  const figure = page.locator("figure:has(svg svg circle)").first();
  if ((await figure.count()) === 0) return;
  const plot = figure.locator(".plot");
  await plot.scrollIntoViewIfNeeded();
  const values = async () => (await figure.locator(".key output").allTextContents()).join("").trim();
  const checkPoints = async (where) => {
    const box = await plot.boundingBox();
    for (const circle of (await figure.locator("svg svg circle").all()).slice(0, 20)) {
      const its = await circle.boundingBox();
      const x = its.x + its.width / 2;
      if (x < box.x + 0.13 * box.width || x > box.x + 0.92 * box.width) continue;
      await page.mouse.move(x, box.y + box.height / 2);
      if (!/\d/.test(await values())) return fault(`no value at a point ${where}`);
    }
  };
  await checkPoints("of the whole chart");
  const box = await plot.boundingBox();
  await page.mouse.move(box.x + 0.3 * box.width, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(box.x + 0.8 * box.width, box.y + box.height / 2, { steps: 3 });
  await page.mouse.up();
  await checkPoints("after zooming");
}

async function checkCursor(page, fault) {
  const figure = page.locator("figure:has(polyline)").first();
  if ((await figure.count()) === 0) return;
  const plot = figure.locator(".plot");
  await plot.scrollIntoViewIfNeeded();
  const box = await plot.boundingBox();
  const at = (share) => [box.x + share * box.width, box.y + box.height / 2];
  const values = async () => (await figure.locator(".key output").allTextContents()).join("").trim();

  // Loads of an external client have no curve, but may be longer than the others.
  await page.mouse.move(...at(0.4));
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

async function checkPrinted(file) {
  const context = await browser.newContext({ viewport: { width: PRINTED, height: 1000 } });
  const page = await context.newPage();
  await page.emulateMedia({ media: "print" });
  await page.goto(pathToFileURL(file).href);
  await checkLayout(page, (text) => faults.push(`${file}, printed: ${text}`));
  await context.close();
}

async function checkWithoutScripts(file) {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  await page.goto(pathToFileURL(file).href);
  if ((await page.locator("figure svg").count()) === 0) faults.push(`${file}: no charts without scripts`);
  await context.close();
}
