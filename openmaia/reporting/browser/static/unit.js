"use strict";
// The page of a unit: neighbours in the order of the table, keys, the axis, enlarged images, turns, units like it.
// Everything that has to be read is in the HTML; this adds what answers to pointer and keyboard.
const openmaia = {};
const page = document.body.dataset;
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

for (const image of document.querySelectorAll("img[data-same]")) {
  image.src = document.querySelector(`img[data-key="${image.dataset.same}"]`)?.src ?? "";
}

// The table that was last open says which units come before and after this one.
function followTable() {
  let order = null;
  try { order = JSON.parse(sessionStorage.getItem("openmaia.order")); } catch { return; }
  const at = order?.pages?.findIndex(([href]) => decodeURIComponent(href) === page.page) ?? -1;
  if (at < 0) return;
  for (const back of document.querySelectorAll("a.back")) back.href = `${page.top}index.html${order.address}`;
  point("previous", order.pages[at - 1], (name) => `‹ ${name}`);
  point("next", order.pages[at + 1], (name) => `${name} ›`);
}

function point(css, neighbour, text) {
  for (const link of document.querySelectorAll(`a.${css}`)) {
    link.hidden = !neighbour;
    if (!neighbour) { link.removeAttribute("href"); continue; }
    link.href = page.top + neighbour[0];
    link.textContent = text(neighbour[1]);
  }
}

// -- the part that excites the unit ---------------------------------------------------------------------------------

const parts = document.getElementById("parts");

function showParts(on) {
  document.body.classList.toggle("whole", !on);
  parts.checked = on;
}

// -- the axis -------------------------------------------------------------------------------------------------------

for (const one of all("[data-left]")) {
  if (one.classList.contains("span")) {
    one.style.marginLeft = `${one.dataset.left}%`;
    one.style.width = `${one.dataset.width}%`;
  } else one.style.setProperty("--l", `${one.dataset.left}%`);
}
const slide = document.querySelector(".slide"), film = document.querySelector(".film");
if (film) { film.style.marginLeft = slide.style.marginLeft; film.style.width = slide.style.width; }

const readout = document.getElementById("readout");

function read(source, title, ...lines) {
  const image = readout.querySelector("img"), [first, ...others] = readout.querySelector("p").children;
  image.hidden = !source;
  if (source) image.src = source;
  first.textContent = title;
  others.forEach((line, place) => { line.textContent = lines[place] ?? ""; });
}

const percentile = (text) => text ? `stronger than on ${text} % of the dataset` : "";
const bars = all("#bars rect"), level = document.getElementById("level");
const shelf = new Map(all("#shelf img").map((image) => [Number(image.dataset.level), image]));
const each = film ? bars.length / film.children.length : 1;

function showLevel(number) {
  const bar = bars[number], image = shelf.get(number), at = Math.floor(number / each);
  const counted = `${bar.dataset.count} ${bar.dataset.count === "1" ? "image" : "images"} at ${bar.dataset.from} to ${bar.dataset.to}`;
  bars.forEach((other, n) => {
    other.classList.toggle("on", n === number);
    if (image && Math.floor(n / each) === at) other.classList.toggle("seen", n === number);
  });
  [...film.children].forEach((figure, n) => figure.classList.toggle("on", Boolean(image) && n === at));
  if (image) {
    const shown = film.children[at].querySelector("img");
    shown.src = image.src;
    shown.alt = `activation ${image.dataset.a}`;
    film.children[at].querySelector("figcaption").textContent = image.dataset.a;
  }
  read(image?.src, image ? `An image at activation ${image.dataset.a}` : "No image at this level", counted, image && percentile(image.dataset.p));
  level.value = number;
  level.setAttribute("aria-valuetext", counted);
}

if (level) {
  for (const figure of film.children) {
    const shown = figure.querySelector("img"), caption = figure.querySelector("figcaption").textContent;
    const from = shown && [...shelf].find(([, image]) => image.src === shown.src && image.dataset.a === caption);
    if (from) bars[from[0]].classList.add("seen");
  }
  level.addEventListener("input", () => showLevel(Number(level.value)));
  const point = (event) => {
    const place = slide.getBoundingClientRect(), number = Math.floor((event.clientX - place.left) / place.width * bars.length);
    showLevel(Math.max(0, Math.min(bars.length - 1, number)));
  };
  document.getElementById("bars").addEventListener("pointermove", point);
  document.getElementById("bars").addEventListener("pointerdown", point);
  showLevel(Math.max(...shelf.keys(), 0));
}

for (const one of all(".swarm button")) {
  one.dataset.x.split(" ").forEach((value, n) => one.style.setProperty(["--x", "--y", "--x2", "--y2"][n], value));
  const tell = () => read(one.querySelector("img")?.src, one.dataset.t, `${one.dataset.k}, activation ${one.dataset.a}`, percentile(one.dataset.p));
  for (const event of ["pointerenter", "focus", "click"]) one.addEventListener(event, tell);
}

// A label shows which of the images were drawn from it.
for (const chip of all("[data-label]")) {
  chip.addEventListener("click", () => {
    const on = chip.getAttribute("aria-pressed") !== "true", swarm = document.querySelector(".own .swarm");
    for (const other of all("[data-label]")) other.setAttribute("aria-pressed", String(on && other === chip));
    swarm?.classList.toggle("only", on);
    for (const one of all(".own .swarm button")) one.classList.toggle("hit", one.dataset.l === chip.dataset.label);
  });
}

// One stop of the tab key for a group of buttons, then arrow keys.
function rove(group, onMove = () => {}) {
  const buttons = all("button", group);
  buttons.forEach((one, n) => { one.tabIndex = n ? -1 : 0; });
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
    buttons.forEach((one) => { one.tabIndex = one === next ? 0 : -1; });
    next.focus();
    onMove(next);
  });
}

for (const group of all("[data-roving]")) rove(group);

// -- turns ----------------------------------------------------------------------------------------------------------

const turns = all("details.turn");
const expand = document.getElementById("expand");
// Of a long conversation the turns in the middle are one line on a telephone.
const middle = document.querySelector("details.middle");
if (middle && innerWidth > 820 && turns.length <= 14) middle.open = true;

function expandAll() {
  const isOpen = !turns.every((turn) => turn.open);
  for (const turn of turns) turn.open = isOpen;
  if (middle && isOpen) middle.open = true;
  if (!expand) return;
  expand.textContent = isOpen ? "Close all turns" : "Open all turns";
  expand.setAttribute("aria-expanded", String(isOpen));
}

const TOKENS = /(#.*)|("""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|\b(\d[\w.]*)|\b(False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)\b/g;
const CLASSES = ["c", "s", "m", "k"];

// Colours the Python code of a turn when it is opened. The text stays text.
function highlight(code) {
  const text = code.textContent, pieces = [];
  let end = 0;
  for (const found of text.matchAll(TOKENS)) {
    const piece = document.createElement("span");
    piece.className = CLASSES[found.slice(1).findIndex((group) => group !== undefined)];
    piece.textContent = found[0];
    pieces.push(text.slice(end, found.index), piece);
    end = found.index + found[0].length;
  }
  code.replaceChildren(...pieces, text.slice(end));
}

for (const turn of turns) {
  turn.addEventListener("toggle", () => {
    const code = turn.querySelector("pre.source code");
    if (turn.open && code && !code.dataset.coloured) { code.dataset.coloured = "1"; highlight(code); }
  });
}

function openTarget() {
  const target = document.getElementById(location.hash.slice(1));
  if (!target?.matches("details")) return;
  target.open = true;
  if (middle?.contains(target) && !middle.open) { middle.open = true; target.scrollIntoView(); }
}

// -- enlarged images ------------------------------------------------------------------------------------------------

const zoom = document.getElementById("zoom");

function enlarge(button) {
  const shown = button.cloneNode(true), caption = document.createElement("figcaption");
  caption.className = "hostile";
  caption.textContent = button.querySelector("img").alt;
  const holder = document.createElement("span");
  holder.className = "picture";
  holder.append(...shown.childNodes);
  zoom.querySelector("figure").replaceChildren(holder, caption);
  zoom.showModal();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button.picture");
  if (button) enlarge(button);
  else if (event.target === zoom) zoom.close();
});

// -- units like it ---------------------------------------------------------------------------------------------------

const SIGNS = { supported: ["supported", "✓"], undecided: ["undecided", "~"], "not supported": ["refuted", "✕"], abstained: ["", "–"], "not tested": ["", "?"], failed: ["", "!"] };
const HINTS = { images: "Units that the same images excite most.", words: "Units with a similar description.", activations: "Units with similar activations on the images of all tests of the layer, and on those that agents share." };

function card([href, name, labels, verdict, degree]) {
  const item = document.createElement("li"), link = document.createElement("a"), image = document.createElement("img");
  const label = document.createElement("span"), below = document.createElement("span"), sign = document.createElement("span");
  link.href = page.top + href;
  image.alt = "";
  image.addEventListener("error", () => image.remove());
  image.src = `${page.top}${href.replace(/\.html$/, ".webp")}`;
  label.className = "lab hostile";
  label.textContent = labels || "no description";
  [sign.className, sign.textContent] = SIGNS[verdict] ?? ["", "?"];
  sign.setAttribute("role", "img");
  sign.setAttribute("aria-label", verdict);
  below.className = "sub hostile";
  below.append(sign, ` ${name}${degree ? ` · ${degree}` : ""}`);
  link.append(image, label, below);
  item.append(link);
  return item;
}

function addPanel(tabs, by, near) {
  const tab = document.createElement("button"), panel = document.createElement("div"), list = document.createElement("ul"), hint = document.createElement("p");
  tab.type = "button";
  tab.id = `tab-${by}`;
  tab.textContent = `by ${by}`;
  for (const [name, value] of [["role", "tab"], ["aria-controls", `panel-${by}`]]) tab.setAttribute(name, value);
  panel.id = `panel-${by}`;
  panel.setAttribute("role", "tabpanel");
  panel.setAttribute("aria-labelledby", tab.id);
  list.className = "near";
  list.append(...near.map(card));
  hint.className = "hint";
  hint.textContent = HINTS[by];
  panel.append(list, hint);
  tabs.append(tab);
  document.querySelector("#similar .panels").append(panel);
}

openmaia.receiveSimilar = (json) => {
  const found = JSON.parse(json)[page.page] ?? {}, tabs = document.querySelector("#similar .tabs");
  const kinds = ["images", "words", "activations"].filter((by) => found[by]?.length);
  for (const by of kinds) addPanel(tabs, by, found[by]);
  const choose = (chosen) => all("button", tabs).forEach((tab) => {
    tab.setAttribute("aria-selected", String(tab === chosen));
    document.getElementById(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
  });
  for (const tab of all("button", tabs)) tab.addEventListener("click", () => choose(tab));
  rove(tabs, choose);
  choose(tabs.firstElementChild);
  document.getElementById("similar").hidden = !kinds.length;
};

function loadSimilar() {
  if (!page.near) return;
  const script = document.createElement("script");
  script.src = `${page.top}data/${page.near}`;
  document.head.append(script);
}

// -- keys -----------------------------------------------------------------------------------------------------------

const follow = (css) => document.querySelector(`a.${css}[href]`)?.click();
const KEYS = {
  j: () => follow("next"),
  k: () => follow("previous"),
  o: expandAll,
  p: () => showParts(!parts.checked),
  "/": () => { sessionStorage.setItem("openmaia.search", "1"); location.href = document.querySelector("a.back").href; },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox], [type=range]), textarea") || zoom.open) return;
  if (KEYS[event.key]) { event.preventDefault(); KEYS[event.key](); }
});

expand?.addEventListener("click", expandAll);
parts.addEventListener("change", () => showParts(parts.checked));
window.addEventListener("hashchange", openTarget);
followTable();
openTarget();
loadSimilar();
