"use strict";
// A picture or a prompt for the network behind `openmaia view --live`: on the page of a unit its activation and what it does to the
// classes, on the first page the units that respond most and those that matter for the predicted class. Everything that comes back is set as text.
(() => {
  const box = document.getElementById("live"), form = box.querySelector("form.ask");
  const state = box.querySelector(".state"), answer = box.querySelector(".answer");
  const top = document.body.dataset.top ?? "", { layer, index, changes } = box.dataset;
  const unit = layer === undefined ? {} : { layer, index: Number(index) };
  const visitor = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const NOT_ASKED = "AbortError";
  let latest = new AbortController();

  function made(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  function short(value) {
    if (value && !(Math.abs(value) >= 1e-3 && Math.abs(value) < 1e6)) return value.toExponential(1).replaceAll("-", "−");
    const digits = value ? Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)))) : 0;
    return value.toFixed(digits).replace("-", "−");
  }

  // A percentage that is 0 or 100 only if it is so exactly, as far as two decimals allow.
  function percent(value) {
    if (value === 0 || value === 100) return String(value);
    return value > 99 || value < 1 ? Math.min(Math.max(value, 0.01), 99.99).toFixed(2) : value.toFixed(0);
  }

  const chance = (value) => `${percent(100 * value)} %`;

  // A new question takes the place of the one that is asked.
  async function ask(what, given) {
    latest.abort();
    latest = new AbortController();
    const reply = await fetch(`${top}live/${what}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...unit, ...given, visitor }),
      signal: latest.signal,
    });
    const found = await reply.json().catch(() => ({ error: `the server answers ${reply.status}` }));
    if (!reply.ok) throw new Error(found.error);
    return found;
  }

  function say(text, isWrong = false) {
    state.textContent = text;
    state.classList.toggle("wrong", isWrong);
  }

  // Asks, and shows the answer or what is wrong.
  async function follow(words, what, given, show) {
    say(words);
    box.classList.add("waits");
    try {
      const found = await ask(what, given);
      say(found.missing.length ? `Could not be drawn: ${found.missing.join(", ")}.` : "");
      show(found);
      box.classList.remove("waits");
      return true;
    } catch (error) {
      if (error.name === NOT_ASKED) return false;
      box.classList.remove("waits");
      say(error.message === "Failed to fetch" ? "The server does not answer; is openmaia view still running?" : error.message, true);
      return false;
    }
  }

  // -- pictures ------------------------------------------------------------------------------------------------------

  const NS = "http://www.w3.org/2000/svg";

  function part(found) {
    const svg = document.createElementNS(NS, "svg");
    for (const [name, value] of [["class", "lit"], ["viewBox", "0 0 1000 1000"], ["preserveAspectRatio", "none"], ["aria-hidden", "true"]]) svg.setAttribute(name, value);
    const lines = found.outline ? [["veil", `M0 0H1000V1000H0Z${found.outline}`], ["casing", found.outline], ["edge", found.outline]] : [];
    for (const [css, d] of found.frame ? [...lines, ["seen", found.frame]] : lines) {
      const path = document.createElementNS(NS, "path");
      path.setAttribute("class", css);
      path.setAttribute("d", d);
      svg.append(path);
    }
    return svg;
  }

  function yours(found) {
    const shot = made("span", { class: "shot" }, made("img", { src: found.shown, alt: "The picture that was measured" }));
    if (found.outline || found.frame) shot.append(part(found));
    const about = found.outline ? "Bright: the part that excites the unit." : found.placed ? "No part of it exceeds the unit’s threshold." : "The picture that was measured.";
    return made("figure", { class: "yours" }, shot, made("figcaption", {}, about));
  }

  // Images of the dataset from this page: the strongest one, and one at the same level.
  function beside(found) {
    const first = document.querySelector(".top .picture img"), level = document.querySelector(`#shelf img[data-level="${found.level}"]`);
    const shown = [[first, "the dataset’s strongest"], [level, "the dataset at this level"]].filter(([image]) => image?.src);
    return made("div", { class: "beside" }, ...shown.map(([image, text]) => {
      const value = image.dataset.a ?? image.closest("li")?.querySelector(".act")?.textContent ?? "";
      return made("figure", {}, made("img", { src: image.src, alt: "" }), made("figcaption", {}, `${value} ${text}`));
    }));
  }

  // -- the page of a unit --------------------------------------------------------------------------------------------

  function showActivation(found) {
    const stronger = found.percent === null ? "It is not known how strong that is beside the dataset, of which no exemplars are stored." : `stronger than on ${percent(found.percent)} % of the dataset.`;
    const reading = made("p", { class: "reading" }, made("b", {}, short(found.activation)), stronger);
    if (found.logit !== null) reading.append(` Logit ${short(found.logit)}.`);
    const side = made("div", {}, reading, beside(found));
    if (changes) {
      const button = made("button", { type: "button" }, "Switch it off, and make it four times as strong");
      button.addEventListener("click", () => follow("The network is asked …", "effect", { image: found.image }, (changed) => button.replaceWith(showClasses(changed))));
      side.append(button);
    }
    answer.replaceChildren(yours(found), side);
    answer.hidden = false;
    if (found.level !== null && typeof showLevel === "function" && document.getElementById("bars")) showLevel(found.level);
  }

  const WORDS = { 0: "switched off", 1: "as it is", 4: "four times as strong" };

  function showClasses(found) {
    if (!found.classes.length) return made("p", { class: "hint" }, "No class changes by a thousandth if the unit is switched off or four times as strong.");
    const head = made("tr", {}, made("th", { scope: "col" }, "Probability of the class"), ...found.scales.map((scale) => made("th", { scope: "col" }, WORDS[scale] ?? `times ${scale}`)));
    const rows = found.classes.map((one) => made("tr", {}, made("th", { scope: "row", class: "hostile" }, one.name), ...one.probabilities.map((value) => made("td", {}, chance(value)))));
    return made("table", { class: "changes" }, made("thead", {}, head), made("tbody", {}, ...rows));
  }

  // -- the first page ------------------------------------------------------------------------------------------------

  function rowOf(one) {
    const { values } = openmaia.table.columns.index;
    for (let row = 0; row < openmaia.table.size; row += 1) if (values[row] === one.index && openmaia.place(row).layer === one.layer) return row;
    return null;
  }

  function card(one, image, words) {
    const row = rowOf(one);
    if (row === null) return "";
    const verdict = openmaia.word(row, "verdict"), [css, mark] = VERDICTS[verdict];
    const sign = made("span", { class: css, role: "img", "aria-label": verdict }, mark);
    const tile = made("img", { src: `${openmaia.stem(row)}.webp`, alt: "", loading: "lazy" });
    tile.addEventListener("error", () => tile.remove());
    const label = made("span", { class: "lab hostile" }, openmaia.text(row)?.labels.join(", ") || "no description");
    const parts = [tile, label, made("span", { class: "sub hostile" }, sign, ` ${[openmaia.name(row), openmaia.text(row)?.title].filter(Boolean).join(" ")}`), made("span", { class: "sub" }, words)];
    const href = openmaia.href(row);
    return made("li", {}, href ? made("a", { href: `${href}#live-${image}` }, ...parts) : made("div", {}, ...parts));
  }

  function showUnits(found) {
    const left = found.count - found.ranked;
    const how = `Units whose dataset has the fewest images that excite them more; activations of two units cannot be compared. Equal ones by their distance from the unit’s mean in standard deviations (SD).${left ? ` ${left.toLocaleString("en")} of ${found.count.toLocaleString("en")} units are left out, because their dataset is not known or says nothing.` : ""}`;
    const strong = (one) => `above ${percent(one.percent)} % of its dataset${one.z === null ? "" : `, ${short(one.z)} SD`}`;
    const list = made("ol", { class: "ranked", "aria-label": "Units that respond most" }, ...found.units.slice(0, 10).map((one) => card(one, found.image, strong(one))));
    const side = made("div", {}, list, made("p", { class: "hint" }, how));
    if (changes) {
      const button = made("button", { type: "button" }, "Why does the network say what it says?");
      button.addEventListener("click", () => follow("The units are ablated one by one …", "why", { image: found.image }, (reasons) => button.replaceWith(showReasons(reasons))));
      side.append(button);
    }
    answer.replaceChildren(yours(found), side);
    answer.hidden = false;
  }

  function showReasons(found) {
    const says = made("p", { class: "reading" }, "The network says ", made("b", { class: "hostile" }, found.predicted), ` with a probability of ${chance(found.probability)}.`);
    const left = found.unchangeable.length ? ` Units of ${found.unchangeable.join(", ")} cannot be ablated.` : "";
    const how = `By how much the class’s logit falls, compared with the average class, without a unit, of the ${found.ablated.toLocaleString("en")} units of this run that are most active on the picture, ablated one by one.${left}`;
    const fall = (one) => `logit ${short(-one.effect)} without it`;
    const list = found.units.length
      ? made("ol", { class: "ranked", "aria-label": "Units that matter for the class" }, ...found.units.slice(0, 10).map((one) => card(one, found.image, fall(one))))
      : made("p", {}, "No unit of this run lowers the class when it is ablated.");
    return made("section", { class: "why", "aria-label": "Why the network says so" }, says, list, made("p", { class: "hint hostile" }, how));
  }

  // -- what is given -------------------------------------------------------------------------------------------------

  const question = layer === undefined ? ["units", showUnits] : ["probe", showActivation];
  const inquire = (words, given) => follow(words, question[0], given, question[1]);

  function reveal() { if (box.matches("details")) box.open = true; }

  function give(file) {
    if (!file) return;
    if (!file.type.startsWith("image/")) { say("This is no picture.", true); return; }
    const reader = new FileReader();
    reader.addEventListener("load", () => inquire("The picture is measured …", { picture: String(reader.result).split(",")[1] ?? "" }));
    reader.addEventListener("error", () => say("The file cannot be read.", true));
    reader.readAsDataURL(file);
  }

  const chooser = form.querySelector("[type=file]"), prompt = form.querySelector("[type=text]");
  chooser.addEventListener("change", () => { give(chooser.files[0]); chooser.value = ""; });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (prompt?.value.trim()) inquire("The picture is drawn and measured …", { prompt: prompt.value.trim() });
  });
  const holdsFile = (event) => event.dataTransfer.types.includes("Files"); // A dragged text belongs to the field of the search.
  const isOver = (on) => (event) => { if (!holdsFile(event)) return; event.preventDefault(); box.classList.toggle("over-live", on); };
  // Wherever it is dropped, or the browser would open it instead of the page.
  document.addEventListener("dragover", isOver(true));
  document.addEventListener("dragleave", isOver(false));
  document.addEventListener("drop", (event) => { if (!holdsFile(event)) return; isOver(false)(event); reveal(); give(event.dataTransfer.files[0]); });
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files].find((one) => one.type.startsWith("image/"));
    if (file) { reveal(); give(file); }
  });
  const earlier = /^#live-([0-9a-f]{64})$/.exec(location.hash);
  if (earlier && layer !== undefined) inquire("The picture is measured …", { image: earlier[1] }).then((isShown) => { if (isShown) box.scrollIntoView(); });
})();
