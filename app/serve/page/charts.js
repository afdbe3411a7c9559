/* charts.js - small SVG charts, made of nodes. */
"use strict";

const Charts = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const W = 280, H = 120, LEFT = 30, BOTTOM = 18, TOP = 8;

  function node(name, attributes, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function frame(figure, label) {
    figure.querySelector("svg")?.remove();
    const svg = node("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label });
    figure.append(svg);
    figure.hidden = false;
    return svg;
  }

  function axis(svg, top, unit) {
    for (const share of [0, 0.5, 1]) {
      const y = H - BOTTOM - share * (H - BOTTOM - TOP);
      svg.append(node("line", { x1: LEFT, x2: W, y1: y, y2: y, class: "grid" }));
      svg.append(node("text", { x: LEFT - 4, y: y + 3, class: "tick end" }, nice(share * top) + unit));
    }
  }

  function nice(value) {
    return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(0) : Number(value.toFixed(1)).toString();
  }

  /* items: {label, share, title} */
  function bars(figure, items, label) {
    const svg = frame(figure, label);
    axis(svg, 100, "%");
    const step = (W - LEFT) / items.length;
    items.forEach((item, i) => {
      const height = item.share * (H - BOTTOM - TOP);
      const rect = node("rect", { x: LEFT + (i + 0.15) * step, y: H - BOTTOM - height, width: step * 0.7,
                                  height: Math.max(height, 0.5), rx: 2, class: "bar d" + Math.min(8, i + 1) });
      rect.append(node("title", {}, item.title));
      svg.append(rect);
      svg.append(node("text", { x: LEFT + (i + 0.5) * step, y: H - 5, class: "tick" }, item.label));
    });
  }

  /* points: [x, y], x ascending */
  function line(figure, points, label, options = {}) {
    const svg = frame(figure, label);
    const top = Math.max(...points.map((p) => p[1])) * 1.1 || 1;
    const first = points[0][0], span = points[points.length - 1][0] - first || 1;
    const x = (value) => LEFT + 4 + ((value - first) / span) * (W - LEFT - 12);
    const y = (value) => H - BOTTOM - (value / top) * (H - BOTTOM - TOP);
    axis(svg, top, options.unit ?? "");
    const path = points.map((p, i) => (i ? "L" : "M") + x(p[0]).toFixed(1) + " " + y(p[1]).toFixed(1)).join("");
    svg.append(node("path", { d: path + `L${x(points[points.length - 1][0])} ${y(0)}L${x(first)} ${y(0)}Z`, class: "area" }));
    svg.append(node("path", { d: path, class: "line" }));
    for (const p of options.dots ? points : []) {
      const dot = node("circle", { cx: x(p[0]), cy: y(p[1]), r: 2.5, class: "dot" });
      dot.append(node("title", {}, options.dots(p)));
      svg.append(dot);
      svg.append(node("text", { x: x(p[0]), y: H - 5, class: "tick" }, String(p[0])));
    }
  }

  return { bars, line };
})();
