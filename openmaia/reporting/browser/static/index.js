"use strict";
// The first page: loads the data, connects search box and keys with wall and table, and follows a running sweep.
const NEAR = 500; // units before and after the opened one whose order its page knows

// Unit pages go through the units in the order of the wall, whose address comes back with them. The place on it is kept, because
// the page is not high yet when the browser would restore it.
function rememberOrder(row) {
  const at = shown.indexOf(row);
  const rows = [...shown.slice(Math.max(0, at - NEAR), at + NEAR + 1)].filter((each) => openmaia.href(each));
  const order = { address: location.hash, pages: rows.map((each) => [openmaia.href(each), openmaia.name(each)]) };
  history.replaceState({ y: scrollY }, "");
  try { sessionStorage.setItem("openmaia.order", JSON.stringify(order)); } catch { /* Pages then follow the layer. */ }
}

function goTo(step) {
  if (state.size !== "table") { focusTile(step); return; }
  const links = [...document.querySelectorAll("#table a.open")];
  const now = links.indexOf(document.activeElement);
  links[Math.min(links.length - 1, Math.max(0, now + step))]?.focus();
}

const KEYS = {
  "/": () => search().focus(),
  j: () => goTo(1),
  k: () => goTo(-1),
  o: () => document.activeElement.matches("#table a.open, #wall a") && document.activeElement.click(),
  p: () => document.getElementById("parts").click(),
};

const search = () => document.getElementById("search");

function connectPage() {
  search().addEventListener("input", () => { state.q = search().value; redraw(); });
  document.getElementById("clear").addEventListener("click", () => { search().value = state.q = ""; redraw(); search().focus(); });
  const box = document.getElementById("sort");
  box.addEventListener("change", () => { state.sort = { name: box.value.replace(/^-/, ""), down: box.value.startsWith("-") }; redraw(); });
  document.getElementById("parts").addEventListener("change", showParts);
  for (const size of document.querySelectorAll("[name=size]")) size.addEventListener("change", () => { state.size = size.value; redraw(); });
  document.querySelector("form.bar").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("resize", () => { // A phone hides its bar while it scrolls, which changes the height alone.
    if (state.size !== "table" && wallElement().clientWidth !== wall.width) drawWall(shown, state.size, state.sort.name);
  });
  connectSide();
  document.getElementById("csv").addEventListener("click", saveCsv);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("#table a.open, #wall a");
    if (link) rememberOrder(link.dataset.row ? Number(link.dataset.row) : table.row(link.closest("tr")).data().row);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox], [type=radio], [type=range]), select, textarea")) return;
    if (KEYS[event.key]) { event.preventDefault(); KEYS[event.key](); }
  });
  window.addEventListener("hashchange", () => { restore(); });
}

// Brings search box, size, order and page into the state that the address names.
function restore() {
  readAddress();
  search().value = state.q;
  document.querySelector(`[name=size][value="${state.size}"]`).checked = true;
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

let due = 0;
function textsArrived() {
  clearTimeout(due);
  const isDone = openmaia.table.loaded === openmaia.table.shards;
  if (openmaia.table.loaded === 1 || isDone) { redraw(state.page); return; }
  due = setTimeout(() => redraw(state.page), 400);
}

async function start() {
  await openmaia.load("data/table.js");
  openmaia.listeners.push((what) => what === "texts" && textsArrived());
  connectPage();
  restore();
  if (history.state?.y) scrollTo(0, history.state.y);
  document.body.dataset.ready = "table";
  if (sessionStorage.getItem("openmaia.search")) { sessionStorage.removeItem("openmaia.search"); search().focus(); }
  await loadTexts();
  await openmaia.load("data/live.js");
  drawGoing();
  document.body.dataset.ready = "texts";
  openmaia.readAhead();
  if (document.body.dataset.live) setInterval(follow, 4000);
}

// Where a server follows a running sweep: loads the data again when they have changed.
async function follow() {
  await openmaia.load(`data/live.js?${Date.now()}`).catch(() => undefined);
  drawGoing();
  if (!openmaia.live || openmaia.live.version === openmaia.table.version) return;
  await openmaia.load(`data/table.js?${openmaia.live.version}`);
  await loadTexts(`?${openmaia.live.version}`);
  redraw(state.page);
  drawGoing();
}

start().catch((error) => { document.getElementById("count").textContent = `The data cannot be shown: ${error.message}`; });
