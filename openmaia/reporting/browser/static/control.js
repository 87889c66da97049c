"use strict";
// Follows the unit that is investigated, and gives orders to runs: pause, resume, stop, investigate a unit again.
// Only pages that a server renders have it, and buttons only those of `openmaia view --control`.
{
  const body = document.body.dataset;
  const FOLLOW = 3000;

  // Resolves to "" if the run got the order, otherwise to what is wrong.
  async function order(run, action, unit = "") {
    const request = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ run, action, unit }) };
    try {
      const answer = await fetch(`${body.top ?? ""}control`, request);
      return answer.ok ? "" : (await answer.json()).error;
    } catch {
      return "The server of this page does not answer.";
    }
  }

  function button(text, onPress) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", async () => {
      made.disabled = true;
      await onPress();
      made.disabled = false;
    });
    return made;
  }

  // -- the first page: a line of buttons for each run that goes on ----------------------------------------------------

  const lines = new Map();

  function addLine(name, isNamed) {
    const item = document.createElement("p"), said = document.createElement("output");
    const give = async (action, text) => { said.textContent = (await order(name, action)) || text; };
    const toggle = button("Pause", () => give(item.dataset.paused ? "resume" : "pause", "Ordered. The run follows within seconds."));
    const end = button("Stop", () => {
      if (confirm(`Stop ${name}? Finished turns are kept, and the same command continues it.`)) return give("stop", "Ordered. The run ends.");
      return undefined;
    });
    if (isNamed) { const title = document.createElement("b"); title.className = "hostile"; title.textContent = `${name} `; item.append(title); }
    said.className = "hostile";
    item.append(toggle, end, said);
    lines.set(name, { item, toggle, said });
    document.getElementById("orders").append(item);
  }

  function drawControl() {
    const runs = (openmaia.live?.runs ?? []).filter((run) => run.driven);
    for (const run of runs) {
      if (!lines.has(run.name)) addLine(run.name, openmaia.live.runs.length > 1);
      const { item, toggle, said } = lines.get(run.name);
      if (Boolean(item.dataset.paused) !== Boolean(run.paused)) said.textContent = "";
      item.dataset.paused = run.paused;
      toggle.textContent = run.paused ? "Resume" : "Pause";
    }
    for (const [name, { item }] of lines) item.hidden = !runs.some((run) => run.name === name);
    document.getElementById("orders").hidden = !runs.length;
  }

  if (document.getElementById("orders")) openmaia.listeners.push((what) => what === "live" && drawControl());

  // -- the page of a unit -----------------------------------------------------------------------------------------------

  const again = document.getElementById("again");
  if (again) {
    const said = again.querySelector("output");
    again.prepend(button("Investigate again", async () => {
      const problem = await order(again.dataset.run, "retry", again.dataset.unit);
      said.textContent = problem || "Ordered. A run that goes on begins within seconds, otherwise the next one does. The old record is kept.";
      if (!problem) follow();
    }));
  }

  // The page is rendered again for each new turn. What was open stays open, and nothing happens below an enlarged image.
  const KEPT = `openmaia.open ${body.page}`;

  function reload() {
    const open = [...document.querySelectorAll("details[id][open]")].map((one) => one.id);
    try { sessionStorage.setItem(KEPT, JSON.stringify({ open, y: scrollY })); } catch { /* It is rendered with all turns closed. */ }
    location.reload();
  }

  function restore() {
    const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
    sessionStorage.removeItem(KEPT);
    for (const id of kept?.open ?? []) document.getElementById(id)?.setAttribute("open", "");
    if (kept) scrollTo(0, kept.y);
  }

  async function followUnit() {
    const answer = await fetch(`${body.top}data/turns/${body.page.replace(/\.html$/, ".json").split("/").map(encodeURIComponent).join("/")}`).catch(() => null);
    if (!answer?.ok || document.getElementById("zoom").open || document.querySelector("#live.waits, #live .answer:not([hidden])")) return;
    const now = await answer.json();
    if (now.state !== body.state || now.turns !== Number(body.turns)) reload();
  }

  let timer = 0;
  function follow() { timer ||= setInterval(followUnit, FOLLOW); }

  if (body.state) { try { restore(); } catch { /* Nothing was kept. */ } }
  if (body.going) follow();
}
