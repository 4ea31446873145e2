const ago = seconds => seconds === null || seconds === undefined ? "–" : `${age(seconds)} ago`;
const whole = n => n === null || n === undefined ? "–" : short(n, "n");
const dim = text => el("p", text, { class: "dim" });
// The state of a producer: its daemon's, where that is named, else the log's.
function producerState(p) {
  if (p.daemon_state === null || p.state === "finished") return p.state;
  return { text: p.daemon_state === "ready" ? "producing" : p.daemon_state, look: look(p.daemon_state) };
}
function producers(rows) {
  if (!rows.length) return dim("no producer was opened yet");
  const row = p => {
    const place = el("span", p.position ?? (p.doing ? "" : "–"));
    // The limits are in the daemon's own words below.
    if (p.doing && p.daemon_state !== "ready") place.append(place.textContent && el("br"), el("span", p.doing.split(";")[0], { class: look(p.daemon_state) }));
    return [p.name, producerState(p), whole(p.epoch), whole(p.batches), ago(p.last_commit_seconds), p.left ?? "–", place];
  };
  return grid("Producers", ["producer", "<state", "term", "batches", "last commit", "<time left", "<position"], rows.map(row));
}
const waits = ["waits", "stands_still", "runs_dry"];
function jobs(rows) {
  if (!rows.length) return dim("no job is open: nothing reads the stream");
  const row = j => {
    const points = j.restart_points, last = points.at(-1);
    return [j.job, j.open ? "open" : { text: "closed", look: "dim-cell" }, whole(j.attempt), whole(j.step), whole(j.behind),
      j.steps_per_second === null ? "–" : short(j.steps_per_second, "_rate"), ago(j.progress_seconds),
      last === undefined ? "none" : `step ${whole(last)}${points.length > 1 ? ` (${points.length} points)` : ""}`,
      { text: j.outlook_text ?? "–", look: waits.includes(j.outlook) ? "warn" : "" }, j.retains];
  };
  return grid("Jobs", ["job", "<state", "attempt", "slowest rank", "behind", "steps/s", "progress", "<checkpoint", "<outlook",
    "<keeps from reclamation"], rows.map(row));
}
function daemon(d) {
  const s = d.status, card = el("article", undefined, { class: "daemon" }), head = el("h3");
  const of = s && (s.name || (s.job && `job ${s.job}`));
  const link = el("a", d.address, { href: `http://${d.address}/`, rel: "noreferrer" });
  head.append(s ? `${s.program.replace("batchweave-", "")} ${of} on ${s.host} `.replace("  ", " ") : "", link);
  head.append(" ", el("span", d.fault ?? s.state, { class: d.fault ? "bad" : look(s.state) }));
  card.append(head);
  if (!s || d.fault) return card;
  card.append(el("p", s.doing, { class: s.state === "ready" ? "" : look(s.state) }));
  const facts = el("dl");
  facts.append(...s.facts.flatMap(f => [el("dt", f.name), el("dd", f.text)]));
  if (s.facts.length) card.append(facts);
  if (s.ranks) card.append(ranks(s.ranks, `Ranks of ${s.host}`));
  return card;
}
function show(s) {
  const name = s.stream.root.replace(/\/+$/, "").split("/").at(-1);
  const mark = { bad: "(!) ", warn: "(waits) " }[s.state.level] ?? "";
  document.title = `${mark}${name} · ${s.state.text}`;
  at("name").textContent = name;
  at("where").textContent = `${s.stream.root} · BatchWeave ${s.version}`;
  at("read").textContent = `read ${age(s.read_seconds_ago)} ago`;
  fill("state", ...s.state.lines.map(line => el("p", line.text, { class: line.level })));
  fill("facts", ...s.stream.facts.flatMap(f => [el("dt", f.name), el("dd", f.text)]));
  fill("plots", ...s.plots.map(plot));
  fill("producers", producers(s.producers));
  fill("jobs", jobs(s.jobs));
  const none = "none is named: `batchweave ui --daemon HOST:PORT` shows what each waits for, and why";
  fill("daemons", ...(s.daemons.length ? [el("p", ranksAbout, { class: "dim" }), ...s.daemons.map(daemon)] : [dim(none)]));
}
follow("stream.json", show, 2000);
