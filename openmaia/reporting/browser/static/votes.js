"use strict";
// Votes on the description of a unit. Only pages of `openmaia view --votes` have it. Sent votes stand on the page when it is loaded again.
{
  const place = document.getElementById("votes"), form = place.querySelector("form"), said = form.querySelector("output");
  const NAME = "openmaia.person";
  try { form.person.value = localStorage.getItem(NAME) ?? ""; } catch { /* Nothing was kept. */ }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { person, fit, correction } = form;
    const vote = { run: place.dataset.run, unit: place.dataset.unit, person: person.value, fit: fit.value, correction: correction.value, seen: place.dataset.seen };
    try { localStorage.setItem(NAME, person.value); } catch { /* It is asked for again. */ }
    try {
      const request = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(vote) };
      const answer = await fetch(`${document.body.dataset.top}vote`, request);
      said.textContent = answer.ok ? "Stored. You may vote again; the last vote counts." : (await answer.json()).error;
    } catch {
      said.textContent = "The server of this page does not answer.";
    }
  });
}
