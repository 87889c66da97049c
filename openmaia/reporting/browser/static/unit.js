"use strict";
// The page of a unit: neighbours in the order of the table, keys, enlarged images, collapsed turns, similar descriptions.
const openmaia = {};
const page = document.body.dataset;

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

// -- turns ----------------------------------------------------------------------------------------------------------

const turns = [...document.querySelectorAll("details.all")];
const expand = document.getElementById("expand");

function expandAll() {
  const isOpen = !turns.every((turn) => turn.open);
  for (const turn of turns) turn.open = isOpen;
  expand.textContent = isOpen ? "Collapse all turns" : "Expand all turns";
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
  const turn = document.getElementById(location.hash.slice(1))?.querySelector("details.all");
  if (turn) turn.open = true;
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

// -- similar descriptions -------------------------------------------------------------------------------------------

openmaia.receiveSimilar = (json) => {
  const found = JSON.parse(json)[page.page] ?? [];
  const list = document.querySelector("#similar ul");
  for (const [href, name, labels, verdict] of found) {
    const link = document.createElement("a"), item = document.createElement("li");
    link.href = page.top + href;
    link.className = "hostile";
    link.textContent = labels || name;
    item.append(link, ` ${name} · ${verdict}`);
    list.append(item);
  }
  document.getElementById("similar").hidden = !found.length;
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
  "/": () => { sessionStorage.setItem("openmaia.search", "1"); location.href = document.querySelector("a.back").href; },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea") || zoom.open) return;
  if (KEYS[event.key]) { event.preventDefault(); KEYS[event.key](); }
});

expand.addEventListener("click", expandAll);
window.addEventListener("hashchange", openTarget);
followTable();
openTarget();
loadSimilar();
