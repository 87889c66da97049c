"use strict";
// The first page: loads the data, connects the search box and the keys with the table, and follows a running sweep.
const NEAR = 500; // units before and after the opened one whose order its page knows

// Unit pages go through the units in the order of the table. The address of the table comes back with them.
function rememberOrder(row) {
  const at = shown.indexOf(row);
  const rows = shown.slice(Math.max(0, at - NEAR), at + NEAR + 1).filter((each) => openmaia.href(each));
  const order = { address: location.hash, pages: rows.map((each) => [openmaia.href(each), openmaia.name(each)]) };
  try { sessionStorage.setItem("openmaia.order", JSON.stringify(order)); } catch { /* Pages then follow the layer. */ }
}

function goTo(step) {
  const links = [...document.querySelectorAll("#table a.open")];
  const now = links.indexOf(document.activeElement);
  links[Math.min(links.length - 1, Math.max(0, now + step))]?.focus();
}

const KEYS = {
  "/": () => search().focus(),
  j: () => goTo(1),
  k: () => goTo(-1),
  o: () => document.activeElement.matches("#table a.open") && document.activeElement.click(),
};

const search = () => document.getElementById("search");

function connectPage() {
  search().addEventListener("input", () => { state.q = search().value; redraw(); });
  document.getElementById("clear").addEventListener("click", () => { search().value = state.q = ""; redraw(); search().focus(); });
  for (const chip of document.querySelectorAll("[data-query]")) {
    chip.addEventListener("click", () => { search().value = state.q = chip.dataset.query; redraw(); document.getElementById("units").scrollIntoView(); });
  }
  document.getElementById("csv").addEventListener("click", saveCsv);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("#table a.open");
    if (link) rememberOrder(table.row(link.closest("tr")).data().row);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
    if (KEYS[event.key]) { event.preventDefault(); KEYS[event.key](); }
  });
  window.addEventListener("hashchange", () => { restore(); });
}

// Brings search box, order and page of the table into the state that the address names.
function restore() {
  readAddress();
  search().value = state.q;
  table.order([table.column(`${state.sort.name}:name`).index(), state.sort.down ? "desc" : "asc"]);
  redraw(state.page);
}

function saveCsv() {
  const data = new Blob(["\ufeff", openmaia.csv(shown)], { type: "text/csv;charset=utf-8" });
  const link = element("a", { href: URL.createObjectURL(data), download: "units.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function loadTexts(version = "") {
  const { shards } = openmaia.table;
  const first = Math.floor((state.page * PAGE) / openmaia.table.shard);
  const order = [...Array(shards).keys()].sort((a, b) => Math.abs(a - first) - Math.abs(b - first));
  for (const shard of order) await openmaia.load(`data/texts-${shard}.js${version}`);
}

// Sorts by all columns while the page has nothing else to do, so that a click on a heading finds the order.
function sortAhead([name, ...others] = Object.keys(openmaia.table.columns)) {
  if (name) (window.requestIdleCallback ?? setTimeout)(() => { openmaia.order(name); sortAhead(others); });
}

let due = 0;
function textsArrived() {
  clearTimeout(due);
  const isDone = openmaia.table.loaded === openmaia.table.shards;
  if (openmaia.table.loaded === 1 || isDone) { redraw(state.page); return; }
  due = setTimeout(() => redraw(state.page), 400);
}

async function start() {
  for (const image of document.querySelectorAll("img[data-same]")) {
    image.src = document.querySelector(`img[data-key="${image.dataset.same}"]`)?.src ?? "";
  }
  await openmaia.load("data/table.js");
  readAddress();
  search().value = state.q;
  makeTable();
  openmaia.listeners.push((what) => what === "texts" && textsArrived());
  connectPage();
  choose();
  document.body.dataset.ready = "table";
  sortAhead();
  if (sessionStorage.getItem("openmaia.search")) { sessionStorage.removeItem("openmaia.search"); search().focus(); }
  await loadTexts();
  document.body.dataset.ready = "texts";
  if (document.body.dataset.live) setInterval(follow, 4000);
}

// Where a server follows a running sweep: loads the data again when they have changed.
async function follow() {
  const before = openmaia.live?.version;
  await openmaia.load(`data/live.js?${Date.now()}`).catch(() => undefined);
  document.getElementById("live").textContent = openmaia.live?.text ?? "";
  if (!openmaia.live || openmaia.live.version === (before ?? openmaia.table.version)) return;
  await openmaia.load(`data/table.js?${openmaia.live.version}`);
  await loadTexts(`?${openmaia.live.version}`);
  redraw(state.page);
}

start().catch((error) => { document.getElementById("count").textContent = `The data cannot be shown: ${error.message}`; });
