// Adds a shared cursor with values, zoom and a clickable key to the charts. Without this script,
// the page is complete; the values are in the table below each chart.
"use strict";
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const LEFT = 112, RIGHT = 820, TOP = 20, BOTTOM = 454;
  // Distance from the cursor at which the value of a point is shown.
  const NEAR = 16;

  const digits = (v, n) => Number(v.toPrecision(n)).toLocaleString("en", { maximumFractionDigits: 9 });
  const scaled = (v, units) => {
    const unit = units.find(([from]) => v >= from) || units[units.length - 1];
    return digits(v / unit[1], 3) + " " + unit[2];
  };
  const SHOW = {
    count: (v) => (v >= 1000 ? Math.round(v).toLocaleString("en") : digits(v, 3)),
    number: (v) => digits(v, 4),
    ordinal: (v) => "no. " + Math.round(v),
    percent: (v) => v.toFixed(1) + " %",
    bytes: (v) => scaled(v, [[1e9, 1e9, "GB"], [1e6, 1e6, "MB"], [1e3, 1e3, "kB"], [0, 1, "B"]]),
    us: (v) => scaled(v, [[1e6, 1e6, "s"], [1e3, 1e3, "ms"], [1, 1, "µs"], [0, 1e-3, "ns"]]),
    s: (v) => digits(v, 4) + " s",
    nines: (v) => (100 * (1 - 10 ** -v)).toFixed(Math.max(0, Math.ceil(v) - 1)) + " %",
  };

  const axis = (text) => {
    const [from, to, scale, quantity] = text.split(" ");
    const log = scale === "log";
    const at = (v) => (log ? Math.log10(v) : v);
    const low = at(Number(from)), high = at(Number(to));
    const value = (share) => { const v = low + share * (high - low); return log ? 10 ** v : v; };
    return { key: text, value, share: (v) => (at(v) - low) / (high - low), show: SHOW[quantity] };
  };

  const element = (name, attributes, parent) => {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  };

  const points = (shape) => shape.getAttribute("points").trim().split(/\s+/).map((pair) => pair.split(",").map(Number));

  // Returns the y coordinate of a curve at a position, or null in a gap.
  const heightAt = (shapes, x) => {
    // Zooming moves the circle, but not its original position.
    const distance = (circle) => Math.abs((circle.originalcx ?? Number(circle.getAttribute("cx"))) - x);
    const circles = shapes.filter((shape) => shape.tagName === "circle").sort((a, b) => distance(a) - distance(b));
    if (circles.length > 0) return distance(circles[0]) < NEAR ? Number(circles[0].getAttribute("cy")) : null;
    for (const shape of shapes) {
      const all = shape.points_;
      for (let i = all.length - 1; i > 0; i--) {
        const [a, b] = [all[i - 1], all[i]];
        if (a[0] <= x && x <= b[0]) {
          return b[0] > a[0] ? a[1] + ((b[1] - a[1]) * (x - a[0])) / (b[0] - a[0]) : b[1];
        }
      }
    }
    return null;
  };

  const charts = [];
  for (const plot of document.querySelectorAll(".plot")) {
    const svg = plot.querySelector("svg");
    const [x, y] = [axis(plot.dataset.x), axis(plot.dataset.y)];
    const items = [...plot.closest("figure").querySelectorAll(".key li")];
    const curves = items.map((item) => {
      const mark = item.querySelector(".swatch > *").getAttribute("class");
      const isSame = (shape) => shape.getAttribute("class").replace(" outside", "") === mark;
      const shapes = [...svg.querySelectorAll("polyline, polygon, circle")].filter(isSame);
      for (const shape of shapes) {
        if (shape.tagName === "circle") continue;
        shape.points_ = points(shape);
        // The last two points of an area lie on the axis.
        if (shape.tagName === "polygon") shape.points_ = shape.points_.slice(0, -2);
      }
      const value = document.createElement("output");
      const isSingle = items.length === 1 && item.textContent === "";
      if (!isSingle) addToggle(item, shapes);
      item.append(value);
      return { shapes, value, isArea: mark.startsWith("area") };
    });
    const cursor = element("line", { class: "cursor", y1: TOP, y2: BOTTOM, visibility: "hidden" }, svg);
    const where = element("text", { class: "label", y: BOTTOM - 10, visibility: "hidden" }, svg);
    const chart = { plot, svg, x, y, curves, cursor, where, from: 0, to: 1 };
    charts.push(chart);
    listen(chart);
  }

  // Turns an item of the key into a button that hides its curve.
  function addToggle(item, shapes) {
    const button = document.createElement("button");
    button.append(...item.childNodes);
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const isShown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(isShown));
      for (const shape of shapes) shape.style.visibility = isShown ? "" : "hidden";
    });
    item.append(button);
  }

  // Converts between a share of the whole x axis and a coordinate of the visible part.
  const position = (chart, share) => LEFT + ((share - chart.from) / (chart.to - chart.from)) * (RIGHT - LEFT);
  const share = (chart, at) => chart.from + ((at - LEFT) / (RIGHT - LEFT)) * (chart.to - chart.from);

  const peers = (chart) => charts.filter((other) => other.x.key === chart.x.key);

  function show(chart, at) {
    for (const one of peers(chart)) {
      const x = position(one, at);
      const isVisible = at !== null && x >= LEFT && x <= RIGHT;
      one.cursor.setAttribute("visibility", isVisible ? "visible" : "hidden");
      one.where.setAttribute("visibility", isVisible ? "visible" : "hidden");
      let below = BOTTOM;
      for (const curve of one.curves) {
        const height = isVisible ? heightAt(curve.shapes, LEFT + at * (RIGHT - LEFT)) : null;
        const value = (h) => one.y.value((BOTTOM - h) / (BOTTOM - TOP));
        const shown = height === null ? null : curve.isArea ? value(height) - value(below) : value(height);
        if (curve.isArea && height !== null) below = height;
        curve.value.textContent = shown === null ? "" : " " + one.y.show(Math.max(shown, 0));
      }
      if (!isVisible) continue;
      one.cursor.setAttribute("x1", x);
      one.cursor.setAttribute("x2", x);
      const isLeft = x > (LEFT + RIGHT) / 2;
      one.where.setAttribute("x", isLeft ? x - 8 : x + 8);
      one.where.setAttribute("text-anchor", isLeft ? "end" : "start");
      one.where.textContent = one.x.show(one.x.value(at));
    }
  }

  function zoom(chart, from, to) {
    for (const one of peers(chart)) {
      [one.from, one.to] = [from, to];
      const move = (x) => position(one, (x - LEFT) / (RIGHT - LEFT));
      for (const shape of one.svg.querySelectorAll("polyline, polygon")) {
        shape.original ||= points(shape);
        shape.setAttribute("points", shape.original.map(([x, y]) => move(x) + "," + y).join(" "));
      }
      for (const shape of one.svg.querySelectorAll("text.x, :scope > svg :is(circle, rect, line, text)")) {
        for (const name of ["cx", "x", "x1", "x2"]) {
          if (!shape.hasAttribute(name)) continue;
          const key = "original" + name;
          shape[key] ??= Number(shape.getAttribute(name));
          shape.setAttribute(name, move(shape[key]));
        }
        if (shape.tagName === "rect") {
          shape.width_ ??= Number(shape.getAttribute("width"));
          shape.setAttribute("width", shape.width_ / (to - from));
        }
      }
    }
    for (const one of peers(chart)) {
      for (const shape of one.svg.querySelectorAll("text.x")) {
        const at = Number(shape.getAttribute("x"));
        shape.style.visibility = at < LEFT - 1 || at > RIGHT + 1 ? "hidden" : "";
      }
    }
  }

  function listen(chart) {
    const { plot, svg } = chart;
    const at = (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * 880;
      return share(chart, Math.min(Math.max(x, LEFT), RIGHT));
    };
    let begin = null, current = 0;
    plot.tabIndex = 0;
    plot.addEventListener("pointermove", (event) => { current = at(event); show(chart, current); });
    plot.addEventListener("pointerleave", () => { begin = null; show(chart, null); });
    plot.addEventListener("pointerdown", (event) => { begin = event.pointerType === "mouse" ? at(event) : null; });
    plot.addEventListener("pointerup", (event) => {
      const end = at(event);
      if (begin !== null && Math.abs(end - begin) > 0.02 * (chart.to - chart.from)) {
        zoom(chart, Math.min(begin, end), Math.max(begin, end));
      }
      begin = null;
    });
    plot.addEventListener("dblclick", () => zoom(chart, 0, 1));
    plot.addEventListener("blur", () => show(chart, null));
    plot.addEventListener("keydown", (event) => {
      const step = (chart.to - chart.from) / 50;
      const moves = { ArrowLeft: -step, ArrowRight: step };
      if (event.key in moves) {
        event.preventDefault();
        current = Math.min(Math.max(current + moves[event.key], chart.from), chart.to);
        show(chart, current);
      } else if (event.key === "Escape") {
        zoom(chart, 0, 1);
        show(chart, null);
      }
    });
  }
})();
