// Labels whose value alone says nothing; they stand first.
const named = { dp_rank: "rank", training_job: "job", producer: "producer", attempt: "attempt" };
const own = key => key in named ? 1 : 0;
const spoken = ([key, value]) => key in named ? `${named[key]} ${value}` : value.replaceAll("_", " ");
function table(t) {
  const card = el("section"), body = el("tbody"), made = el("table");
  card.append(el("h2", t.title), el("p", t.about, { class: "dim" }));
  made.append(el("caption", t.title, { class: "unseen" }), body);
  // A table of one metric has said in its title what its rows are.
  const one = new Set(t.rows.map(row => row.name)).size === 1;
  const rows = t.rows.filter(r => r.value || !r.name.includes("_errors_"));
  for (const row of rows) {
    const labels = Object.entries(row.labels).sort(([a], [b]) => own(b) - own(a)).map(spoken).join(", ");
    const title = one && labels ? labels : row.text + (labels ? `: ${labels}` : "");
    const line = el("tr");
    line.append(el("th", title, { scope: "row", title: row.help }), el("td", row.name.endsWith("_leading") ? (row.value ? "yes" : "no") : short(row.value, row.name)));
    body.append(line);
  }
  if (rows.length > 8) {
    const more = el("details");
    more.append(el("summary", `${rows.length} rows`), made);
    card.append(more);
  } else {
    card.append(rows.length ? made : el("p", "nothing yet", { class: "dim" }));
  }
  return card;
}
function show(s) {
  const name = s.name || (s.job && `job ${s.job}`), state = s.state === "ready" ? "" : `(${s.state}) `;
  document.title = `${state}${s.program.replace("batchweave-", "")} ${name} · ${s.stream} · ${s.host}`.replace("  ", " ");
  at("program").textContent = s.program;
  at("name").textContent = name;
  at("where").textContent = `stream ${s.stream} · host ${s.host}`;
  say("state", s.state, `state ${look(s.state)}`);
  fill("facts", ...s.facts.flatMap(f => [el("dt", f.name), el("dd", f.text)]));
  at("sample").hidden = !s.sample;
  if (s.sample) {
    at("sample-source").textContent = `Beginning of batch ${short(s.sample.batch, "n")} of this producer, from ${s.sample.source}`;
    at("sample-text").textContent = s.sample.text;
  }
  at("ranks").hidden = !s.ranks;
  if (s.ranks) fill("ranks", el("h2", "Ranks", { id: "ranks-title" }), el("p", ranksAbout, { class: "dim" }), ranks(s.ranks));
  at("up").textContent = `version ${s.version}, up ${age(s.up_seconds)}`;
  say("doing", s.doing, s.state === "ready" ? "" : look(s.state));
  fill("plots", ...s.plots.map(plot));
  const open = [...at("tables").children].map(card => card.querySelector("details")?.open);
  at("tables").replaceChildren(...s.tables.map(table));
  [...at("tables").children].forEach((card, i) => { if (open[i]) card.querySelector("details")?.setAttribute("open", "") });
  const messages = s.messages.map(m => {
    const line = el("li");
    line.append(el("strong", m.level, { class: m.level === "error" ? "bad" : "warn" }),
      ` ${m.at} ${m.text}${m.times > 1 ? ` (${m.times} times)` : ""}`);
    return line;
  });
  fill("messages", ...(messages.length ? messages : [el("li", "none since the start", { class: "dim" })]));
}
follow("status.json", show, 2000);
