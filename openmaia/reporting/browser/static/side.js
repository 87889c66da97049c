"use strict";
// Beside the wall: verdicts, scores, concepts and layers with their counts. A click writes a condition into the search box, which
// is the only state.
const HINTS = {
  supported: "beats every control", undecided: "not certain either way", "not supported": "no better than a control",
  abstained: "the agent found no words", "not tested": "no verdict yet, or none possible", failed: "the program failed",
};
const FIRST = 8; // concepts that are listed at first
const MOST = 200; // concepts that are listed at all: the search finds the others
const BINS = 20;
let isLong = false;

const byId = (id) => document.getElementById(id);

// -- conditions of the query ----------------------------------------------------------------------------------------

const withoutToken = (query, name) => query.replace(new RegExp(`(^|\\s)${name}(?::|>=)\\S*`, "gi"), "").trim();
const tokenOf = (name) => state.q.match(new RegExp(`(?:^|\\s)${name}(?::|>=)(\\S*)`, "i"))?.[1]?.toLowerCase();

function setToken(name, token) {
  const rest = withoutToken(state.q, name);
  state.q = [rest, token].filter(Boolean).join(" ");
  byId("search").value = state.q;
  redraw();
}

// -- counts ---------------------------------------------------------------------------------------------------------

// How often each category of a column occurs among the rows that the query chooses without its own condition on it, or on `token`.
function countBy(name, token = name, count = openmaia.table.columns[name].names.length) {
  const { values } = openmaia.table.columns[name], counts = new Uint32Array(count), excluded = openmaia.excluded(withoutToken(state.q, token));
  for (let row = 0; row < excluded.length; row += 1) if (!excluded[row] && values[row] < count) counts[values[row]] += 1;
  return counts;
}

let drawn = "";
function drawSide() {
  drawSort();
  const wanted = JSON.stringify([state.q, openmaia.table.loaded, openmaia.table.version, isLong]);
  if (wanted === drawn) return;
  drawn = wanted;
  drawVerdicts();
  drawScores();
  drawConcepts();
  drawLayers();
}

function chooser(name, value, count, ...content) {
  const isOn = tokenOf(name) === openmaia.spell(value);
  const button = element("button", { type: "button", "aria-pressed": String(isOn) }, ...content, element("b", {}, count.toLocaleString("en")));
  button.addEventListener("click", () => setToken(name, isOn ? "" : `${name}:${openmaia.spell(value)}`));
  return element("li", {}, button);
}

function drawVerdicts() {
  const { names } = openmaia.table.columns.verdict, items = [], bars = [], counts = countBy("verdict");
  for (const [at, name] of names.entries()) {
    if (!counts[at]) continue;
    const [css, mark] = VERDICTS[name], bar = element("i", { class: css });
    bar.style.flexGrow = counts[at];
    bars.push(bar);
    items.push(chooser("verdict", name, counts[at], element("i", { class: `sign ${css}`, "aria-hidden": "true" }, mark), element("span", {}, name, element("small", {}, HINTS[name]))));
  }
  byId("stack").replaceChildren(...bars);
  byId("verdicts").replaceChildren(...items);
}

function drawScores() {
  const { worst, verdict } = openmaia.table.columns, kinds = ["supported", "undecided", "not supported"];
  const bins = Array.from({ length: BINS }, () => [0, 0, 0]), least = Number(tokenOf("worst")) || 0;
  const kindOf = verdict.names.map((name) => kinds.indexOf(name)), excluded = openmaia.excluded(withoutToken(state.q, "worst"));
  for (let row = 0; row < excluded.length; row += 1) {
    const kind = kindOf[verdict.values[row]] ?? -1, value = worst.values[row];
    // A number of 4 bytes that stands for 0.35 is a little less.
    if (!excluded[row] && kind >= 0 && !Number.isNaN(value)) bins[Math.min(BINS - 1, Math.floor(value * BINS + 1e-5))][kind] += 1;
  }
  const top = Math.max(1, ...bins.map((bin) => bin[0] + bin[1] + bin[2])), parts = [];
  for (const [at, bin] of bins.entries()) {
    let y = 64;
    for (const kind of [2, 1, 0]) {
      const height = (bin[kind] / top) * 60;
      y -= height;
      if (height) parts.push(drawnElement("rect", { class: `${VERDICTS[kinds[kind]][0]}${at / BINS < least ? " dim" : ""}`, x: `${at * 5 + 0.3}%`, width: "4.4%", y, height }));
    }
  }
  parts.push(drawnElement("line", { x1: "50%", x2: "50%", y1: 0, y2: 64, "stroke-dasharray": "2 3" }));
  for (const [x, anchor, text] of [["0", "start", "0"], ["50%", "middle", "50"], ["100%", "end", "100"]]) {
    const label = drawnElement("text", { x, y: 79, "text-anchor": anchor });
    label.textContent = text;
    parts.push(label);
  }
  byId("scores").replaceChildren(...parts);
  byId("least").value = Math.round(least * 100);
  byId("least-is").textContent = least ? `${Math.round(least * 100)} of 100` : "any";
}

function drawnElement(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// The best unit with images of each concept.
function bestOfConcepts() {
  const { values } = openmaia.table.columns.concept;
  if (!openmaia.table.best) {
    openmaia.table.best = new Map();
    for (const row of openmaia.order("verdict").sorted) {
      if (!openmaia.table.best.has(values[row]) && openmaia.value(row, "tile")) openmaia.table.best.set(values[row], row);
    }
  }
  return openmaia.table.best;
}

function drawConcepts() {
  const { names } = openmaia.table.columns.concept, best = bestOfConcepts(), counts = countBy("concept");
  const order = [...names.keys()].filter((at) => counts[at]).sort((a, b) => counts[b] - counts[a] || a - b);
  const items = order.slice(0, isLong ? MOST : FIRST).map((at) => {
    const row = best.get(at), image = row === undefined ? "" : element("img", { src: `${openmaia.stem(row)}.webp`, alt: "", loading: "lazy", decoding: "async" });
    return chooser("concept", names[at], counts[at], element("span", { class: "one" }, image), element("span", { class: "label hostile" }, names[at]));
  });
  byId("concepts").replaceChildren(...items);
  byId("concepts").closest("section").hidden = !names.length;
  byId("concept-count").textContent = order.length.toLocaleString("en");
  byId("all-concepts").hidden = order.length <= FIRST;
  byId("all-concepts").textContent = isLong ? "Fewer concepts" : order.length > MOST ? `The ${MOST} largest` : "All concepts";
}

function drawLayers() {
  const { places } = openmaia.table, counts = new Map(), kind = new Set(places.map((one) => one.run)).size > 1 ? "run" : "layer";
  for (const [at, count] of countBy("place", kind, places.length).entries()) {
    if (count) counts.set(places[at][kind], (counts.get(places[at][kind]) ?? 0) + count);
  }
  byId("layers").replaceChildren(...[...counts].map(([name, count]) => chooser(kind, name, count, element("span", { class: "hostile" }, name))));
  byId("by-layer").textContent = kind === "run" ? "Runs" : "Layers";
  byId("layers").closest("section").hidden = places.length < 2;
}

// The order of the table may be one that the box does not offer.
function drawSort() {
  const wanted = `${state.sort.down ? "-" : ""}${state.sort.name}`, box = byId("sort");
  box.querySelector("[data-more]")?.remove();
  if (![...box.options].some((one) => one.value === wanted)) {
    const title = openmaia.table.columns[state.sort.name].title ?? state.sort.name;
    box.append(element("option", { value: wanted, "data-more": "1" }, `by ${title}`));
  }
  box.value = wanted;
}

// -- a run that is going on -----------------------------------------------------------------------------------------

const WORDS = [["done", "done"], ["count", "running"], ["waiting", "waiting"], ["failed", "failed"]];

function drawGoing() {
  const runs = openmaia.live?.runs ?? [], failures = causes();
  const section = byId("going"), title = byId("going-on");
  section.hidden = !runs.length && !failures.length;
  const words = runs.map((run) => `${runs.length > 1 ? `${run.name}: ` : ""}${run.done.toLocaleString("en")} of ${run.planned.toLocaleString("en")} units done${run.paused ? `, paused since ${run.paused}` : ""}`);
  const text = runs.length ? words.join("; ") : "", isOpen = section.querySelector("details.failures")?.open;
  if (title.textContent !== text) title.textContent = text; // It is read aloud when it changes.
  title.hidden = !runs.length;
  section.replaceChildren(title, ...runs.flatMap(progress), ...(failures.length ? [failed(failures)] : []));
  if (isOpen) section.querySelector("details.failures").open = true;
}

function progress(run) {
  const bar = element("div", { class: "bars", "aria-hidden": "true" }), list = element("dl");
  for (const [key, word] of WORDS) {
    if (!run[key] && key === "failed") continue;
    const part = element("i", { class: key });
    part.style.flexGrow = run[key];
    bar.append(part);
    list.append(element("div", { class: key }, element("dt", {}, word), element("dd", {}, run[key].toLocaleString("en"))));
  }
  const note = [run.left, `${run.tested.toLocaleString("en")} tested`, "verdicts follow the last test"].filter(Boolean).join(" · ");
  return [bar, list, element("p", { class: "hint" }, note), ...(run.running.length ? [running(run)] : [])];
}

function running(run) {
  const items = run.running.map(([name, stem, turn, seconds]) => {
    const time = seconds === null ? "" : ` · ${seconds < 60 ? `${Math.round(seconds)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`}`;
    const image = element("img", { src: `${stem}.webp`, alt: "", decoding: "async" });
    image.addEventListener("error", () => image.remove()); // Not every unit has images.
    return element("li", {}, element("span", { class: "one" }, image), element("span", { class: "hostile" }, begun(name, stem), element("small", {}, `turn ${turn}${time}`)));
  });
  const rest = run.count - run.running.length;
  if (rest > 0) items.push(element("li", {}, `and ${rest} more`));
  return element("ul", { class: "now", "aria-label": "Running" }, ...items);
}

// The name of a unit that has begun, which has a page where a server renders it.
function begun(name, stem) {
  return document.body.dataset.live ? element("a", { href: `${stem}.html` }, name) : name;
}

// The units that failed by their cause, the most frequent cause first.
function causes() {
  const { verdict } = openmaia.table.columns, at = verdict.names.indexOf("failed"), found = new Map();
  for (let row = 0; row < openmaia.table.size; row += 1) {
    if (verdict.values[row] !== at) continue;
    const cause = openmaia.text(row)?.cause.split("\n")[0] ?? "";
    if (cause) found.set(cause, [...(found.get(cause) ?? []), begun(openmaia.name(row), openmaia.stem(row))]);
  }
  return [...found].sort((a, b) => b[1].length - a[1].length).slice(0, 20);
}

function failed(found) {
  const count = found.reduce((sum, [, names]) => sum + names.length, 0);
  const items = found.map(([cause, names]) => {
    const rest = names.length > 6 ? ` and ${names.length - 6} more` : "";
    return element("li", { class: "hostile" }, cause, element("small", {}, ...names.slice(0, 6).flatMap((name, at) => (at ? [", ", name] : [name])), rest));
  });
  return element("details", { class: "failures" }, element("summary", {}, `${count.toLocaleString("en")} failed`), element("ul", {}, ...items), element("p", { class: "hint" }, "The next run of the same command repeats them."));
}

// -- connections ----------------------------------------------------------------------------------------------------

function connectSide() {
  byId("least").addEventListener("input", () => {
    const least = Number(byId("least").value) / 100;
    setToken("worst", least ? `worst>=${least}` : "");
  });
  byId("all-concepts").addEventListener("click", () => {
    isLong = !isLong;
    byId("all-concepts").setAttribute("aria-expanded", String(isLong));
    drawSide();
  });
  // On a telephone pictures come first. What is searched for is seen, though.
  if (!matchMedia("(max-width: 820px)").matches) return;
  byId("side").open = Boolean(new URLSearchParams(location.hash.slice(1)).get("q"));
  for (const one of document.querySelectorAll("details.beyond")) one.open = false;
}
