// Draws the page's charts when they are first seen, and shows the values under the pointer in every chart of a trial.
"use strict";
(() => {
  const { specs, charts } = JSON.parse(document.getElementById("drawings").textContent);
  const drawn = new Map();
  const SLICE_MS = 40;

  const toRows = (groups) =>
    groups.flatMap((group) => {
      const fields = Object.keys(group);
      return group.t.map((_, row) => Object.fromEntries(fields.map((field) => [field, group[field][row]])));
    });

  const isVisible = (figure) => figure.closest("details:not([open])") === null;

  async function draw(figure) {
    if (drawn.has(figure)) return;
    const chart = charts[figure.id];
    drawn.set(figure, null);
    const plot = figure.querySelector(".plot");
    const datasets = { series: toRows(chart.columns), ...chart.marks };
    const { view } = await vegaEmbed(plot, { ...structuredClone(specs[chart.spec]), datasets }, {
      mode: "vega-lite", renderer: "svg", ast: true, actions: false, defaultStyle: false, tooltip: false,
    });
    drawn.set(figure, { view, chart, plot });
    if (figure.classList.contains("timed")) follow(figure, plot, view);
  }

  // In slices, so that reading and scrolling need not wait for the last chart.
  async function drawAll() {
    let since = performance.now();
    for (const figure of document.querySelectorAll("figure.chart")) {
      if (drawn.has(figure) || !isVisible(figure)) continue;
      await draw(figure);
      if (performance.now() - since > SLICE_MS) {
        await new Promise((resume) => setTimeout(resume));
        since = performance.now();
      }
    }
    document.documentElement.dataset.drawn = drawn.size;
  }

  const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

  function follow(figure, plot, view) {
    const line = document.createElement("div");
    line.className = "cursor";
    line.hidden = true;
    plot.append(line);
    const scope = figure.closest(".trial");
    plot.addEventListener("pointermove", (event) => {
      const x = event.clientX - plot.getBoundingClientRect().left - view.origin()[0];
      if (x >= 0 && x <= view.width()) showAt(scope, view.scale("x").invert(x));
    });
    plot.addEventListener("pointerleave", () => showAt(scope, null));
  }

  function showAt(scope, t) {
    for (const figure of scope.querySelectorAll("figure.timed")) {
      const { view, chart, plot } = drawn.get(figure) ?? {};
      if (!view) continue;
      const line = plot.querySelector(".cursor");
      line.hidden = t === null;
      if (t !== null) line.style.left = `${view.origin()[0] + view.scale("x")(t)}px`;
      for (const output of figure.querySelectorAll("output")) {
        output.textContent = t === null ? "" : valueAt(chart.columns, output.dataset.field, t);
      }
    }
  }

  function valueAt(groups, field, t) {
    const group = groups.find((one) => field in one);
    let row = group.t.findIndex((at) => at >= t);
    if (row < 0) row = group.t.length - 1;
    if (row > 0 && t - group.t[row - 1] < group.t[row] - t) row -= 1;
    const value = group[field][row];
    return value === null ? "—" : plain.format(value);
  }

  function open(event) {
    if (event.target.open) drawAll();
  }

  // What few need is closed on the screen and open on paper; other trials stay closed on both.
  const folded = [...document.querySelectorAll("details[data-print]")];
  addEventListener("beforeprint", () => {
    for (const one of folded) if (!one.open) one.open = one.dataset.opened = true;
    for (const figure of document.querySelectorAll("figure.chart")) if (isVisible(figure)) draw(figure);
  });
  addEventListener("afterprint", () => {
    for (const one of folded) if (one.dataset.opened) { one.open = false; delete one.dataset.opened; }
  });
  for (const one of document.querySelectorAll("details")) one.addEventListener("toggle", open);
  drawAll();
})();
