"use strict";
// Parts that all pages share: elements, numbers with units, plots, tables, ranks, polling.
const at = id => document.getElementById(id);
function el(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
// Sets a text and its class, unless they are the same: a screen reader speaks each change.
function say(id, text, look) {
  const holder = at(id);
  if (holder.textContent !== text) holder.textContent = text;
  if (look !== undefined) holder.className = look;
}
// Replaces the content of an element, unless it is the same; keeps the focus, and how far tables are scrolled.
function fill(id, ...nodes) {
  const holder = at(id), made = el("div"), inside = select => [...holder.querySelectorAll(select)];
  made.append(...nodes);
  if (made.innerHTML === holder.innerHTML) return;
  const scrolled = inside(".wide").map(wide => wide.scrollLeft);
  const focus = inside("a, summary, [tabindex]").indexOf(document.activeElement);
  holder.replaceChildren(...made.childNodes);
  inside(".wide").forEach((wide, i) => { wide.scrollLeft = scrolled[i] ?? 0 });
  if (focus >= 0) inside("a, summary, [tabindex]")[focus]?.focus({ preventScroll: true });
}
function short(n, name = "") {
  if (name === "" || Number.isFinite(n) === false) return String(n);
  if (name.includes("_bytes")) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1 }
    return (unit ? n.toFixed(1) : Math.round(n)) + " " + units[unit];
  }
  if (name.includes("_seconds")) return n.toLocaleString("en", { maximumFractionDigits: 3 }) + " s";
  if (name.endsWith("_rate")) {
    for (const [size, sign] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (n >= size) return (n / size).toFixed(1) + " " + sign;
    }
    return n.toLocaleString("en", { maximumFractionDigits: 1 });
  }
  return n.toLocaleString("en", { maximumFractionDigits: 3 });
}
// Units of plots that are counted, not rates.
const counted = ["ranks", "steps"];
const scaled = (n, unit) => short(n, unit === "bytes" ? "_bytes_rate" : "_rate");
// A number with the unit of its plot.
function rate(n, unit) {
  if (counted.includes(unit)) return `${unit === "steps" ? short(Math.round(n), "n") : scaled(n, unit)} ${unit}`;
  return unit === "bytes" ? scaled(n, unit) + "/s" : `${scaled(n, unit)} ${unit}/s`;
}
// A plot of points at equal distances in time; null where nothing is known.
function plot(p) {
  const card = el("section");
  const points = p.points, width = 600, height = 110, known = points.filter(v => v !== null), last = points.at(-1);
  // What there is yet fills the drawing, once it is a minute.
  const span = Math.max(points.length, 60 / p.every_seconds, 2), max = Math.max(...known, 0), top = Math.max(max, 1e-3);
  const most = Math.round(span * p.every_seconds / 60), minutes = most > 1 ? `${most} minutes` : "minute";
  const now = last === null || last === undefined ? "unknown" : rate(last, p.unit);
  card.append(el("h2", p.title), el("div", now, { class: "now" }));
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${p.title} over the last ${minutes}: now ${now}, at most ${rate(max, p.unit)}`);
  const x = i => (width - (points.length - 1 - i) * width / (span - 1)).toFixed(1);
  const y = v => (height - 4 - v / top * (height - 10)).toFixed(1);
  const draw = (kind, from, points) => {
    const drawn = document.createElementNS(ns, kind);
    drawn.setAttribute("points", points);
    for (const [key, value] of Object.entries(from)) drawn.setAttribute(key, value);
    svg.append(drawn);
  };
  const stroke = { fill: "none", stroke: "var(--plot)", "stroke-width": "2", "vector-effect": "non-scaling-stroke" };
  for (let i = 0, first = 0; i <= points.length; i += 1) {
    if (i < points.length && points[i] !== null) continue;
    if (i - first > 1) {
      const line = points.slice(first, i).map((v, n) => `${x(first + n)},${y(v)}`).join(" ");
      draw("polygon", { fill: "var(--fill)" }, `${x(first)},${height} ${line} ${x(i - 1)},${height}`);
      draw("polyline", stroke, line);
    }
    first = i + 1;
  }
  const axes = el("div", undefined, { class: "axes" });
  axes.append(svg, el("span", max > 0 ? scaled(max, p.unit) : "", { class: "top" }), el("span", "0", { class: "zero" }),
    el("span", `${minutes} ago`.replace(/^minute/, "1 minute"), { class: "from" }), el("span", "now", { class: "until" }));
  card.append(axes);
  return card;
}
// A table with a line per row; a cell is a text, or { text, look } with a class, or a node. A title that begins with
// "<" is of a column of texts. In a narrow window each row is a paragraph, and cells have their titles before them.
function grid(caption, titles, rows) {
  const names = titles.map(title => title.replace("<", ""));
  const kind = n => n === 0 || titles[n].startsWith("<") ? "text" : "number";
  const cell = (n, name, role, attributes = {}) => el(name, undefined, { role, class: kind(n), "data-title": names[n], ...attributes });
  const made = el("table", undefined, { class: "grid-table", role: "table" }), rowOf = () => el("tr", undefined, { role: "row" });
  const head = rowOf(), thead = el("thead", undefined, { role: "rowgroup" }), body = el("tbody", undefined, { role: "rowgroup" });
  for (const n of names.keys()) {
    const title = cell(n, "th", "columnheader", { scope: "col" });
    title.append(names[n]);
    head.append(title);
  }
  thead.append(head);
  for (const row of rows) {
    const line = rowOf();
    row.forEach((value, n) => {
      const made = n === 0 ? cell(n, "th", "rowheader", { scope: "row" }) : cell(n, "td", "cell");
      const { text, look } = value?.look === undefined ? { text: value, look: "" } : value;
      if (look) made.classList.add(look);
      made.append(text ?? "–");
      line.append(made);
    });
    body.append(line);
  }
  made.append(el("caption", caption, { class: "unseen" }), thead, body);
  const wide = el("div", undefined, { class: "wide", tabindex: "0", role: "group", "aria-label": caption });
  wide.append(made);
  return wide;
}
// What the label "cause" of a wait means.
const causes = {
  producing: "the producer has not committed the step", fetching: "the store answers slowly",
  backpressure: "fetched late: the arena was full", arena_full: "the arena is full",
  held_frames: "it holds all its frames", store_unavailable: "the store does not answer",
  daemon_restarting: "this daemon restarted", short: "short waits",
};
const ranksAbout = "Steps committed but not yet received (behind), steps read ahead, frames held; waiting in the last ten seconds.";
function ranks(rows, caption = "Ranks") {
  if (!rows.length) return el("p", "no rank is connected", { class: "dim" });
  const row = r => {
    const waits = r.waiting >= 0.05, share = (r.waiting * 100).toFixed(waits ? 0 : 1) + " %";
    const why = r.waiting > 0 ? causes[r.why] ?? r.why.replaceAll("_", " ") : "";
    return [r.rank, ...[r.step, r.behind, r.ahead, r.held].map(n => short(n, "n")),
      waits ? { text: share, look: "warn" } : share, why];
  };
  return grid(caption, ["rank", "next step", "behind", "read ahead", "held", "waiting", "<why"], rows.map(row));
}
// The class of a state: amber for a daemon that waits on purpose, red for one that cannot work.
const look = state => ({ ready: "good", held: "warn" })[state] ?? "bad";
function age(seconds) {
  const hours = Math.floor(seconds / 3600), minutes = Math.floor(seconds / 60) % 60;
  return `${hours ? hours + " h " : ""}${hours || minutes ? minutes + " min " : ""}${Math.floor(seconds % 60)} s`;
}
// Requests `path` again and again, and shows each answer.
async function follow(path, show, every) {
  try {
    const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(10000) });
    show(await answer.json());
  } catch (why) {
    say("state", "does not answer", "state bad");
  }
  setTimeout(follow, every, path, show, every);
}
