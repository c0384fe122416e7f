"use strict";
// Every word of a record is set as text, never as HTML.
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
// Text in a chart keeps its size: a narrow page gets charts of fewer units, not smaller ones.
let WIDTH = 560;

function make(name, options = {}, ...children) {
  const one = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key === "text") one.textContent = value;
    else one.setAttribute(key, value);
  }
  one.append(...children.filter(Boolean));
  return one;
}

function mark(name, kind, words) {
  return make(name, { class: kind }, ...words.split("`").map((part, at) => at % 2 ? make("code", { text: part }) : part));
}

function shape(name, attributes, text) {
  const one = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  if (text !== undefined) one.textContent = text;
  return one;
}

const tidy = (value) => {
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  return (size >= 100 ? Math.round(value) : +value.toPrecision(3)).toLocaleString("en");
};

function scale(from, until, start, end) {
  return (value) => start + ((value - from) / (until - from || 1)) * (end - start);
}

function steps(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((part) => part * power).find((part) => part >= raw);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) found.push(at * step);
  return found;
}

// Steps and words as in the charts of the report.
const TIME_STEPS_S = {time_steps_s};

function time_ticks(until_s) {
  const step = TIME_STEPS_S.find((one) => until_s / one <= WIDTH / 85) ?? TIME_STEPS_S.at(-1);
  return Array.from({ length: Math.floor(until_s / step) + 1 }, (_, at) => at * step);
}

function format_time(at_s, until_s) {
  if (until_s < 180) return `${at_s} s`;
  const two = (number) => String(number).padStart(2, "0");
  const minutes = Math.floor(at_s / 60), seconds = two(at_s % 60);
  return until_s < 3600 ? `${minutes}:${seconds}` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${seconds}`;
}

function draw_chart(chart, until_s) {
  const high = 150, left = 46, low = high - 20;
  const stacked = chart.legend.filter((entry) => !entry.is_line);
  const sums = chart.columns.flatMap((group) => group.t.map((_, at) => Math.max(
    stacked.reduce((sum, entry) => sum + (group[entry.field]?.[at] ?? 0), 0),
    ...chart.legend.filter((entry) => entry.is_line).map((entry) => group[entry.field]?.[at] ?? 0),
  )));
  const values = chart.columns.flatMap((group) => chart.legend.flatMap((entry) => group[entry.field] ?? [])).filter((value) => value > 0);
  const log = chart.unit.includes("log") && values.length > 0;
  const top = chart.kind === "cpu" ? 100 : Math.max(...sums, 0) || 1;
  const bottom = log ? 10 ** Math.floor(Math.log10(Math.min(...values))) : 0;
  const lift = log ? (value) => Math.log10(Math.max(value, bottom)) : (value) => value;
  const ceiling = log ? 10 ** Math.ceil(Math.log10(top)) : Math.max(top * 1.04, top);
  const x = scale(0, until_s, left, WIDTH - 4);
  const along = scale(lift(bottom), lift(ceiling), low, 8);
  const y = (value) => along(lift(value));
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${high}`, role: "img", "aria-label": chart.alt });
  const ticks = log
    ? steps(Math.log10(bottom), Math.log10(ceiling), 4).filter(Number.isInteger).map((power) => 10 ** power)
    : steps(0, ceiling, 4);
  for (const value of ticks) {
    svg.append(shape("line", { class: "grid", x1: left, x2: WIDTH - 4, y1: y(value), y2: y(value) }));
    svg.append(shape("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, tidy(value)));
  }
  for (const at of time_ticks(until_s)) {
    const anchor = !at ? "start" : x(at) > WIDTH - 24 ? "end" : "middle";
    svg.append(shape("text", { class: "time", x: x(at), y: high - 4, "text-anchor": anchor }, format_time(at, until_s)));
  }
  const hues = { checkpoint: "amber", error: "vermilion", "level shift": "purple", unsteady: "slate" };
  for (const span of chart.marks.spans ?? []) {
    svg.append(shape("rect", { class: `span hue-${hues[span.kind] ?? "slate"}`, x: x(span.from), width: Math.max(1, x(span.until) - x(span.from)), y: 8, height: low - 8 }));
  }
  for (const moment of chart.marks.moments ?? []) {
    svg.append(shape("line", { class: `moment hue-${hues[moment.kind] ?? "slate"}`, x1: x(moment.from), x2: x(moment.from), y1: 8, y2: low }));
  }
  for (const group of chart.columns) {
    const base = group.t.map(() => 0);
    // An area of a single moment would have no width.
    const sides = group.t.length === 1 ? [[x(group.t[0]) - 3, 0], [x(group.t[0]) + 3, 0]] : group.t.map((t, at) => [x(t), at]);
    for (const entry of chart.legend) {
      const seen = group[entry.field];
      if (!seen) continue;
      if (entry.is_line) {
        let path = "", broken = true;
        const is_gap = (at) => seen[at] === null || seen[at] === undefined;
        seen.forEach((value, at) => {
          if (is_gap(at)) { broken = true; return; }
          // A line takes two points: a trial of a second or two has but one.
          if (broken && is_gap(at + 1)) svg.append(shape("circle", { class: `dot hue-${entry.hue}`, cx: x(group.t[at]), cy: y(value), r: 2.5 }));
          path += `${broken ? "M" : "L"}${x(group.t[at]).toFixed(1)} ${y(value).toFixed(1)}`;
          broken = false;
        });
        svg.append(shape("path", { class: `line hue-${entry.hue}`, d: path }));
      } else {
        const under = sides.map(([across, at]) => `${across.toFixed(1)} ${y(base[at]).toFixed(1)}`);
        seen.forEach((value, at) => { base[at] += value ?? 0; });
        const over = sides.map(([across, at]) => `${across.toFixed(1)} ${y(base[at]).toFixed(1)}`);
        svg.append(shape("path", { class: `area hue-${entry.hue}`, d: `M${over.join("L")}L${under.reverse().join("L")}Z` }));
      }
    }
  }
  const legend = make("ul", { class: "legend" });
  for (const entry of chart.legend) {
    const group = chart.columns.find((one) => one[entry.field]);
    const last = group?.[entry.field].findLast((value) => value !== null && value !== undefined);
    legend.append(make("li", { class: `hue-${entry.hue}${entry.is_line ? " line" : ""}`, text: entry.label },
      make("b", { text: last === undefined ? "" : tidy(last) })));
  }
  const title = make("h3", { text: chart.title }, make("span", { class: "unit", text: chart.unit }));
  return make("figure", { class: "chart" }, make("figcaption", {}, title, legend), svg);
}

let known = [], present = null, shown = [];
// The last second comes more often than all else, and without marks.
function merge() {
  if (!present) return known;
  const same = known.find((trial) => trial.number === present.number && trial.words === present.words && trial.state === "running");
  const marks = same?.charts[0]?.marks;
  const quick = present.charts.map((chart) => marks ? { ...chart, marks } : chart);
  const rest = same ? same.charts.filter((chart) => !quick.some((one) => one.kind === chart.kind)) : [];
  return [{ ...present, charts: [...quick, ...rest], events: same?.events ?? [] }];
}

// Of six charts two change each second. To draw all of them again leaves a thousand nodes a second to the garbage collector.
let drawn = new Map();
function draw_changed(trials) {
  const last = drawn;
  drawn = new Map();
  return trials.map((trial) => trial.charts.map((chart) => {
    const key = `${trial.number} ${chart.kind}`, words = JSON.stringify([chart, trial.until_s, WIDTH]);
    const figure = last.get(key)?.words === words ? last.get(key).figure : draw_chart(chart, trial.until_s);
    drawn.set(key, { words, figure });
    return figure;
  }));
}

function show_trials(trials) {
  shown = trials;
  const figures = draw_changed(trials);
  const parts = trials.map((trial, at) => {
    const heading = make("h2", { text: `Trial ${trial.number}` }, make("span", { class: "sub", text: `${trial.words} · ${trial.state}` }));
    const charts = make("div", { class: "charts" }, ...figures[at]);
    const events = make("ul", { class: "events" }, ...trial.events.slice(-5).map((text) => make("li", { text })));
    return make("div", { class: "trial" }, heading, charts, trial.events.length ? events : null);
  });
  $("now").replaceChildren(...parts);
}

function draw_interval(row, reach, delta) {
  const high = 62, x = scale(-reach, reach, 4, WIDTH - 4), held = (value) => x(Math.max(-reach, Math.min(reach, value)));
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${high}`, role: "img", "aria-label": `${row.name} ${row.word}: ${row.change}, ${row.n} pairs` });
  svg.append(shape("rect", { class: "band", x: x(-delta), width: x(delta) - x(-delta), y: 0, height: 46 }));
  svg.append(shape("line", { class: "zero", x1: x(0), x2: x(0), y1: 0, y2: 46 }));
  // Nothing falls by more than 100 %.
  for (const value of steps(-reach, reach, 6).filter((one) => one >= -100)) {
    svg.append(shape("text", { x: x(value), y: high - 2, "text-anchor": "middle" }, `${value > 0 ? "+" : ""}${tidy(value)} %`));
  }
  if (row.looks.length > 1) {
    const y = scale(row.looks[0][0], row.n, 2, 36);
    const right = row.looks.map(([n, , top]) => `${held(top).toFixed(1)} ${y(n).toFixed(1)}`);
    const left = row.looks.map(([n, bottom]) => `${held(bottom).toFixed(1)} ${y(n).toFixed(1)}`).reverse();
    svg.append(shape("path", { class: `funnel hue-${row.hue}`, d: `M${right.join("L")}L${left.join("L")}Z` }));
  }
  if (row.low !== null) {
    svg.append(shape("line", { class: `now hue-${row.hue}`, x1: held(row.low), x2: held(row.high), y1: 41, y2: 41 }));
    svg.append(shape("line", { class: `tick hue-${row.hue}`, x1: held(row.effect), x2: held(row.effect), y1: 34, y2: 48 }));
    // An interval that goes on beyond the axis ends in an arrow; its figures stand above.
    for (const [goes_on, at, back] of [[row.low < -reach, x(-reach), 10], [row.high > reach, x(reach), -10]]) {
      if (goes_on) svg.append(shape("path", { class: `arrow hue-${row.hue}`, d: `M${at + back} 33L${at} 41L${at + back} 49Z` }));
    }
  }
  return svg;
}

// Who reads a long table, or has reached it by the keyboard, stays there when the next trial ends.
const KEPT = ".scroll, summary";
const name_kept = (one) => `${one.tagName} ${one.getAttribute("aria-label")}`;
function renew(place, ...children) {
  const last = new Map([...place.querySelectorAll(KEPT)].map((one) =>
    [name_kept(one), { left: one.scrollLeft, top: one.scrollTop, had_focus: one === document.activeElement }]));
  place.replaceChildren(...children);
  for (const one of place.querySelectorAll(KEPT)) {
    const { left, top, had_focus } = last.get(name_kept(one)) ?? {};
    one.scrollTo(left ?? 0, top ?? 0);
    if (had_focus) one.focus({ preventScroll: true });
  }
}

let said = "";
function show_answers(answers) {
  $("answers").hidden = answers.verdicts.length === 0;
  $("verdicts").replaceChildren(...answers.verdicts.map((of) => {
    const ends = of.rows.flatMap((row) => row.low === null ? [] : [Math.abs(row.low), Math.abs(row.high)]);
    const effects = of.rows.map((row) => 2 * Math.abs(row.effect ?? 0));
    const reach = Math.max(3 * of.delta, Math.min(Math.max(...ends, 0) * 1.15, Math.max(60, ...effects)));
    const rows = of.rows.map((row) => make("div", { class: `row${row.name.endsWith("(A/A)") ? " noise" : ""}` },
      make("p", {}, make("span", { class: "name", text: row.name }), make("span", { class: `word hue-${row.hue}`, text: `${row.mark} ${row.word}` }),
        make("span", { class: "change", text: row.change })),
      row.low === null ? null : draw_interval(row, reach, of.delta), make("p", { class: "remark", text: row.remark || `${row.n} ${row.n === 1 ? "pair" : "pairs"}` })));
    return make("div", { class: "panel" }, make("h3", { text: of.workload }, make("span", { class: "sub", text: `against ${of.reference}` })), ...rows);
  }));
  const words = answers.verdicts.flatMap((of) => of.rows.map((row) => `${of.workload}: ${row.name} ${row.word}`)).join("; ");
  if (words !== said) $("spoken").textContent = said = words;
  $("figures").hidden = answers.figures.length === 0;
  $("tiles").replaceChildren(...answers.figures.map(([name, value, interval]) =>
    make("div", { class: "panel" }, make("h3", { text: name }), make("b", { text: value }), make("span", { class: "small", text: `TPS ${interval}` }))));
  $("sweeps").hidden = answers.sweeps.length === 0;
  renew($("sweeps"), ...answers.sweeps.map(show_sweep));
  // Who looks only at the charts must see what spoils them first.
  show_findings("grave", answers.findings.filter((one) => one.severity === "critical"));
  show_findings("found", answers.findings.filter((one) => one.severity !== "critical"));
}

function show_findings(place, findings) {
  $(place).hidden = findings.length === 0;
  $(place).querySelector("ul").replaceChildren(...findings.map((one) => make("li", { class: one.severity },
    make("span", { class: "tag", text: one.severity }), one.claim, one.workloads ? make("span", { class: "small", text: ` (${one.workloads})` }) : null, mark("span", "advice", one.advice))));
}

// Dots with intervals, joined by a line; `at` places a point on an axis from 0 to 1.
function draw_points(points, { alt, bottom, top, at, label }) {
  const high = 220, left = 50, low = high - 22;
  const x = scale(0, 1, left + 12, WIDTH - 24), y = scale(bottom, top, low, 8), held = (value) => y(Math.max(bottom, Math.min(top, value)));
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${high}`, role: "img", "aria-label": alt });
  for (const value of steps(bottom, top, 4)) {
    svg.append(shape("line", { class: "grid", x1: left, x2: WIDTH - 4, y1: y(value), y2: y(value) }));
    svg.append(shape("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, tidy(value)));
  }
  svg.append(shape("path", { class: "line hue-blue", d: `M${points.map((point, place) => `${x(at(point, place))} ${y(point.tps)}`).join("L")}` }));
  points.forEach((point, place) => {
    const across = x(at(point, place)), words = label(point, place);
    if (point.is_changed) svg.append(shape("line", { class: "moment hue-purple", x1: across, x2: across, y1: 8, y2: low }));
    if (point.low !== null) svg.append(shape("line", { class: "whisker hue-blue", x1: across, x2: across, y1: held(point.low), y2: held(point.high) }));
    // One that goes on beyond the axis ends in an arrow; its figures stand in the table.
    if (point.high > top) svg.append(shape("path", { class: "arrow hue-blue", d: `M${across - 6} 17L${across} 7L${across + 6} 17Z` }));
    svg.append(shape("circle", { class: "dot hue-blue", cx: across, cy: y(point.tps), r: 4 }));
    if (words) svg.append(shape("text", { x: across, y: high - 4, "text-anchor": across + 3.5 * words.length > WIDTH ? "end" : "middle" }, words));
  });
  return make("figure", { class: "chart" }, svg);
}

function list_points(name, titles, rows) {
  const head = make("thead", {}, make("tr", {}, ...titles.map((text) => make("th", { scope: "col", text }))));
  const body = make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text) => make("td", { text })))));
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, make("table", {}, head, body));
}

function show_sweep(sweep) {
  const title = make("h2", { text: "TPS by number of clients" }, make("span", { class: "sub", text: sweep.workload }));
  const curve = sweep.curve.map((text) => make("p", { class: "small", text }));
  if (!sweep.points.length) return make("div", {}, title, ...curve);
  const seen = sweep.points.filter((point) => point.tps !== null);
  const words = seen.map((point) => `${point.clients} clients ${point.text} TPS, ${point.status}`).join("; ");
  const most = Math.log2(Math.max(...seen.map((point) => point.clients), 2));
  const figure = draw_points(seen, {
    alt: `TPS by number of clients: ${words}`, bottom: 0, top: Math.max(...seen.map((point) => Math.min(point.high ?? point.tps, 2 * point.tps)), 1) * 1.05,
    at: (point) => Math.log2(point.clients) / most, label: (point) => String(point.clients),
  });
  const table = list_points(`Loads of ${sweep.workload}`, ["Clients", "TPS", "Status"], sweep.points.map((point) => [point.clients, point.text, point.status]));
  return make("div", {}, title, make("div", { class: "charts" }, figure, table), ...curve);
}

function show_history({ histories, remark }) {
  $("history").hidden = !histories.length && !remark;
  const parts = histories.map((of) => {
    const seen = of.points.filter((point) => point.tps !== null);
    const title = make("h3", { text: `TPS of ${of.title}` }), words = of.words.map((text) => mark("p", "small", text));
    if (!seen.length) return make("div", {}, title, ...words);
    const ends = seen.flatMap((point) => [point.low ?? point.tps, point.high ?? point.tps]);
    const middle = (Math.min(...ends) + Math.max(...ends)) / 2, reach = Math.max((Math.max(...ends) - Math.min(...ends)) * 0.6, middle * 0.01);
    const said = seen.map((point) => `${point.when} ${point.text}`).join("; ");
    const figure = draw_points(seen, {
      alt: `TPS by record: ${said}`, bottom: Math.max(0, middle - reach), top: middle + reach,
      at: (_, place) => place / Math.max(1, seen.length - 1), label: (point, place) => place === 0 || place === seen.length - 1 ? point.when.slice(0, 10) : "",
    });
    const table = list_points(`Records of ${of.title}`, ["Began (UTC)", "Record", "TPS"], of.points.map((point) => [point.when, point.name, point.text]).reverse());
    return make("div", {}, title, make("div", { class: "charts" }, figure, table), ...words);
  });
  if (remark) parts.push(mark("p", "small", remark));
  renew($("histories"), ...parts);
}

const HUES = ["blue", "vermilion", "green", "amber", "purple", "sky", "brown", "indigo", "olive"];
function show_course(parts) {
  const course = parts[0], done = parts.reduce((sum, part) => sum + part.finished_count, 0);
  const planned = parts.reduce((sum, part) => sum + part.planned_count, 0), left = parts.reduce((sum, part) => sum + part.left_s, 0);
  document.title = `${done}/${planned} ${course.title} – pgdyno`;
  $("title").textContent = course.title;
  $("machine").textContent = course.machine;
  $("place").textContent = course.place;
  $("state").textContent = course.state;
  for (const [id, words] of [["answers-title", "Verdicts"], ["figures-title", "Figures"], ["grave-title", "Critical findings"], ["found-title", "Findings"]]) {
    $(id).textContent = course.state === "ended" ? words : `${words} so far`;
  }
  $("counted").textContent = `${done} of at most ${planned} trials`;
  $("left").textContent = left > 0 ? `at most ${left < 100 ? `${Math.ceil(left)} s` : `${Math.round(left / 60)} min`} left by the plan` : "";
  // A study that has ended needed no more trials.
  const needed = (course.state === "ended" ? done : planned) || 1;
  $("bar").setAttribute("aria-valuemax", needed);
  $("bar").setAttribute("aria-valuenow", done);
  $("bar").firstElementChild.style.width = `${(100 * done) / needed}%`;
  $("plan").hidden = false;
  const is_open = $("trials").querySelector("details")?.open;
  const variants = [...new Set(parts.flatMap((part) => part.trials.map((trial) => trial.variant)))];
  const hue = (variant) => `hue-${HUES[variants.indexOf(variant) % HUES.length]}`;
  const trials = parts.flatMap((part) => part.trials);
  const strip = make("ul", { class: "strip", "aria-hidden": "true" }, ...trials.map((trial) =>
    make("li", { class: `${trial.state} ${hue(trial.variant)}`, title: `${trial.number} ${trial.workload} ${trial.variant} ${trial.tps}` })));
  const keys = make("ul", { class: "legend" }, ...variants.filter(Boolean).map((text) => make("li", { class: hue(text), text })));
  const head = make("thead", {}, make("tr", {}, ...["Trial", "Workload", "Variant", "State", "TPS"].map((text) => make("th", { scope: "col", text }))));
  const body = make("tbody", {}, ...trials.map((trial) => make("tr", {}, ...[trial.number, trial.workload, trial.variant, trial.state, trial.tps].map((text) => make("td", { text })))));
  const list = make("details", {}, make("summary", { text: "All trials" }),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "All trials" }, make("table", {}, head, body)));
  list.open = Boolean(is_open);
  renew($("trials"), strip, keys, list);
}

const kept = {};
function fit() {
  const is_narrow = matchMedia("(max-width: 760px)").matches;
  WIDTH = is_narrow ? Math.max(280, document.documentElement.clientWidth - 40) : 560;
  for (const redraw of Object.values(kept)) redraw();
}
addEventListener("resize", fit);

function connect() {
  const link = $("link"), events = new EventSource("events");
  const say = (hue, text) => { link.className = `link hue-${hue}`; link.textContent = text; };
  const hear = (name, show) => events.addEventListener(name, (event) => {
    say("green", "connected");
    kept[name] = () => show(JSON.parse(event.data));
    kept[name]();
    document.documentElement.dataset[name] = "shown";
  });
  hear("course", show_course);
  hear("trials", (trials) => { known = trials; show_trials(merge()); });
  // Between two trials the last one stays.
  const ended = () => shown.map((trial) => trial.state === "running" ? { ...trial, state: "load ended" } : trial);
  hear("seconds", (trial) => { present = trial; show_trials(trial ? merge() : ended()); });
  hear("answers", show_answers);
  hear("history", show_history);
  hear("problem", (text) => { $("problem").hidden = !text; $("problem").textContent = text; });
  events.onopen = () => say("green", "connected");
  events.onerror = () => {
    const is_over = $("state").textContent === "ended";
    say(is_over ? "slate" : "vermilion", is_over ? "the command has ended" : "not connected: the command has ended, or comes back");
    // A browser gives up by itself when the port is closed.
    if (events.readyState === EventSource.CLOSED) { events.close(); setTimeout(connect, 3000); }
  };
}
fit();
connect();
