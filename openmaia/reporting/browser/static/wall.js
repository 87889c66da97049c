"use strict";
// The wall: a tile for each chosen unit. Only the lines near the visible part are in the document, so that 100,000 units scroll.
const SIZES = { // Width that a tile is near to, height of the text below it, gap between tiles and between lines.
  large: { side: 140, narrow: 104, text: 48, gap: 12, below: 14 },
  small: { side: 84, narrow: 72, text: 20, gap: 8, below: 8 },
  map: { side: 40, narrow: 36, text: 0, gap: 2, below: 2 },
};
const HEADING = 44;
const BEYOND = 700; // pixels above and below the visible part that are kept
const GROUPS = {
  supported: "Supported", undecided: "Undecided", "not supported": "Not supported",
  abstained: "What the agents could not say", "not tested": "Without a verdict", failed: "Failed",
};

const wall = { lines: [], shown: new Map(), height: 0, rows: [] };
const wallElement = () => document.getElementById("wall");

// The run that a unit is of, where a report has several.
function runOf(row) {
  const { run } = openmaia.place(row);
  return openmaia.table.places.some((one) => one.run !== run) ? `${run}: ` : "";
}

// -- groups ---------------------------------------------------------------------------------------------------------

function verdictGroup(row) {
  const stop = openmaia.word(row, "stop"), verdict = openmaia.word(row, "verdict");
  return { running: "Running", pending: "Waiting" }[stop] ?? GROUPS[verdict];
}

const GROUPED = {
  verdict: verdictGroup,
  concept: (row) => openmaia.word(row, "concept") || "Without a concept",
  unit: (row) => (openmaia.table.places.length > 1 ? `${runOf(row)}${openmaia.place(row).layer}` : ""),
};

// The lines of the wall: headings, and as many units as fit side by side.
function layOut(rows, size, sort) {
  const { side, narrow, text, gap, below } = SIZES[size], width = wallElement().clientWidth;
  const columns = Math.max(1, Math.floor((width + gap) / ((width < 600 ? narrow : side) + gap)));
  const height = (width - gap * (columns - 1)) / columns + text + below, group = GROUPED[sort] ?? (() => "");
  const lines = [];
  let top = 0, at = 0;
  while (at < rows.length) {
    const name = group(rows[at]);
    let end = at + 1;
    while (end < rows.length && group(rows[end]) === name) end += 1;
    if (name) { lines.push({ top, height: HEADING, name, count: end - at }); top += HEADING; }
    for (; at < end; at += columns) {
      lines.push({ top, height, from: at, to: Math.min(at + columns, end) });
      top += height;
    }
    at = end;
  }
  Object.assign(wall, { lines, height: top, rows, columns });
}

function drawWall(rows, size, sort) {
  const element = wallElement();
  wall.width = element.clientWidth;
  layOut(rows, size, sort);
  element.className = `is-${size}`;
  element.style.height = `${Math.max(wall.height, 40)}px`;
  element.style.setProperty("--columns", wall.columns);
  wall.shown.clear();
  element.replaceChildren(...(rows.length ? [] : [nothing()]));
  showLines();
}

function nothing() {
  const text = openmaia.table.size ? "No unit matches. Search for something else, or clear the search." : "There are no units.";
  return element("p", { class: "nothing" }, text);
}

// -- lines ----------------------------------------------------------------------------------------------------------

function lineAt(y) {
  let low = 0, high = wall.lines.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (wall.lines[middle].top + wall.lines[middle].height < y) low = middle + 1;
    else high = middle;
  }
  return low;
}

function showLines() {
  const element = wallElement(), above = -element.getBoundingClientRect().top;
  const first = lineAt(above - BEYOND), last = lineAt(above + innerHeight + BEYOND);
  for (const [at, line] of wall.shown) {
    // The focus would be lost with its line.
    if ((at < first || at > last) && !line.contains(document.activeElement)) { line.remove(); wall.shown.delete(at); }
  }
  let next = null; // Lines stand in their order, which is that of the tab key.
  for (let at = Math.min(last, wall.lines.length - 1); at >= first; at -= 1) {
    if (!wall.shown.has(at)) {
      const line = wall.lines[at].name ? heading(wall.lines[at]) : tiles(wall.lines[at]);
      line.style.top = `${wall.lines[at].top}px`;
      wall.shown.set(at, line);
      element.insertBefore(line, next);
    }
    next = wall.shown.get(at);
  }
}

function heading({ name, count }) {
  return element("h2", { class: "line hostile" }, name, " ", element("small", {}, `${count.toLocaleString("en")} unit${count === 1 ? "" : "s"}`));
}

function tiles({ from, to }) {
  return element("div", { class: "line" }, ...[...wall.rows.slice(from, to)].map(tile));
}

// -- tiles ----------------------------------------------------------------------------------------------------------

function tile(row) {
  const href = openmaia.href(row), text = openmaia.text(row), name = openmaia.name(row);
  const verdict = openmaia.word(row, "verdict"), [css, mark] = VERDICTS[verdict], group = verdictGroup(row);
  const labels = (text?.labels ?? []).join(", "), nothing = { failed: text?.cause.split("\n")[0], abstained: "no description" }[verdict] || "";
  const won = openmaia.value(row, "worst"), pairs = Number.isNaN(won) ? "" : String(countPairs(won));
  const said = [`${runOf(row)}${name}${text?.title ? ` (${text.title})` : ""}: ${labels || nothing || "no description"}`, group === "Running" || group === "Waiting" ? group.toLowerCase() : verdict, pairs && `${pairs} of 100 pairs`];
  const cell = element(href ? "a" : "span", { class: `tile ${css}`, title: said.filter(Boolean).join(", ") });
  if (href) cell.href = href;
  cell.dataset.row = row;
  cell.append(picture(row));
  if (state.size !== "map") cell.append(element("span", { class: `label hostile${labels ? "" : " none"}` }, labels || nothing), numbers(row, mark, css, text, pairs));
  return cell;
}

// An AUC as a number of pairs of 100, as the page of a unit says it: all or none only if it is exactly so.
const countPairs = (auc) => (auc === 0 || auc === 1 ? auc * 100 : Math.min(99, Math.max(1, Math.round(auc * 100))));

function picture(row) {
  if (!openmaia.value(row, "tile")) return element("span", { class: "four none" }, "no images");
  const image = element("img", { src: `${openmaia.stem(row)}${shownTile()}`, alt: "", decoding: "async", width: 146, height: 146 });
  return element("span", { class: "four" }, image);
}

const shownTile = () => (document.getElementById("parts").checked ? ".part.webp" : ".webp");

function showParts() {
  for (const image of document.querySelectorAll(".four img")) image.src = image.getAttribute("src").replace(/(\.part)?\.webp$/, shownTile());
}

function numbers(row, mark, css, text, pairs) {
  const isWhole = openmaia.table.places.length > 1 && state.size === "large";
  const name = isWhole ? openmaia.name(row) : String(openmaia.value(row, "index"));
  const sign = element("i", { class: `sign ${css}`, "aria-hidden": "true" }, mark);
  const title = element("span", { class: "hostile" }, `${runOf(row)}${name}${text?.title ? ` ${text.title}` : ""}`);
  return element("span", { class: "which" }, sign, title, element("b", {}, pairs), element("span", { class: "unseen" }, openmaia.word(row, "verdict")));
}

// -- moving through it ----------------------------------------------------------------------------------------------

let isDue = false;
addEventListener("scroll", () => {
  if (isDue || wallElement().hidden) return;
  isDue = true;
  requestAnimationFrame(() => { isDue = false; showLines(); });
}, { passive: true });

// Focuses the next unit, or with -1 the previous one, that has a page. Its line may not be in the document yet.
function focusTile(step) {
  const now = document.activeElement?.closest("#wall .tile");
  let at = now ? wall.rows.indexOf(Number(now.dataset.row)) + step : firstSeen();
  while (at >= 0 && at < wall.rows.length && !openmaia.href(wall.rows[at])) at += step;
  if (at < 0 || at >= wall.rows.length) return;
  const line = wall.lines.findIndex((one) => one.from <= at && at < one.to), { top, height } = wall.lines[line];
  const start = wallElement().getBoundingClientRect().top + scrollY + top;
  if (start < scrollY || start + height > scrollY + innerHeight) scrollTo({ top: start - innerHeight / 3 });
  showLines();
  wall.shown.get(line).children[at - wall.lines[line].from].focus({ preventScroll: true });
}

function firstSeen() {
  const line = wall.lines.slice(lineAt(-wallElement().getBoundingClientRect().top)).find((one) => !one.name);
  return line ? line.from : 0;
}
