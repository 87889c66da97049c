"use strict";
const { page, pictures, items } = JSON.parse(document.getElementById("questions").textContent);
const at = (id) => document.getElementById(id);
const kept = "openmaia " + page;
let answers = {};
try { answers = JSON.parse(localStorage.getItem(kept)) || {}; } catch { /* no storage: the answers live as long as the page */ }
let number = items.findIndex((item) => !(item.name in answers));
if (number < 0) number = items.length;

function show() {
  const item = items[number];
  at("task").hidden = !item;
  at("end").hidden = !!item;
  if (!item) return finish();
  at("done").style.width = (100 * number) / items.length + "%";
  at("count").textContent = number + 1 + " of " + items.length;
  at("truth").hidden = !item.truth;
  at("truth").textContent = item.truth;
  at("pictures").replaceChildren(...item.pictures.map((name) => {
    const image = new Image();
    image.src = pictures[name];
    image.alt = "";
    return image;
  }));
  [at("one"), at("two")].forEach((button, n) => {
    button.querySelector("span").textContent = item.texts[n];
    button.setAttribute("aria-pressed", String(answers[item.name] === n + 1));
  });
  at("back").disabled = number === 0;
}

function choose(answer) {
  if (!items[number]) return;
  answers[items[number].name] = answer;
  try { localStorage.setItem(kept, JSON.stringify(answers)); } catch { /* as above */ }
  number += 1;
  show();
}

function document_() {
  return JSON.stringify({ page, person: at("person").value.trim(), answers }, null, 1);
}

function finish() {
  const count = Object.keys(answers).length;
  at("said").textContent = count + " of " + items.length + " questions are answered.";
  at("text").value = document_();
}

at("one").addEventListener("click", () => choose(1));
at("two").addEventListener("click", () => choose(2));
at("back").addEventListener("click", () => { number = Math.max(0, number - 1); show(); });
at("finish").addEventListener("click", () => { number = items.length; show(); });
at("again").addEventListener("click", () => { number = Math.max(0, items.findIndex((item) => !(item.name in answers))); show(); });
at("person").addEventListener("input", finish);
at("save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([document_()], { type: "application/json" }));
  link.download = "answers-" + page + ".json";
  link.click();
});
addEventListener("keydown", (event) => {
  if (at("task").hidden || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "1" || event.key === "2") choose(Number(event.key));
  if (event.key === "Backspace") at("back").click();
});
show();
