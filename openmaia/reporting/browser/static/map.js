"use strict";
// The layer map: a cell for each unit, coloured by its verdict. Units that do not match the query are pale. Arrow keys move
// from unit to unit, Enter opens one.
const layerMap = { layers: [], selected: null, current: null };

layerMap.build = () => {
  const groups = new Map();
  for (let row = 0; row < openmaia.table.size; row += 1) {
    const place = openmaia.value(row, "place");
    if (!groups.has(place)) groups.set(place, []);
    groups.get(place).push(row);
  }
  const index = openmaia.table.columns.index.values;
  const several = new Set(openmaia.table.places.map((each) => each.run)).size > 1;
  const holder = document.getElementById("map");
  holder.replaceChildren();
  layerMap.layers = [...groups].map(([place, rows], at) => {
    rows.sort((a, b) => index[a] - index[b]);
    const { layer, run } = openmaia.table.places[place];
    const canvas = element("canvas", {
      role: "slider", tabindex: at ? -1 : 0, "aria-label": layerMap.summary(layer, rows),
      "aria-valuemin": 1, "aria-valuemax": rows.length,
    });
    const caption = element("figcaption", { class: "hostile" }, several ? `${run}: ${layer}` : layer);
    holder.append(element("figure", {}, caption, element("div", { class: "cells" }, canvas)));
    return { canvas, rows, at: 0 };
  });
  layerMap.layers.forEach(layerMap.announce);
  layerMap.draw();
};

layerMap.summary = (layer, rows) => {
  const counts = {};
  for (const row of rows) counts[openmaia.word(row, "verdict")] = (counts[openmaia.word(row, "verdict")] ?? 0) + 1;
  return `${layer}, ${rows.length} units: ${Object.entries(counts).map(([name, count]) => `${count} ${name}`).join(", ")}`;
};

layerMap.name = (row) =>
  [openmaia.name(row), openmaia.word(row, "verdict"), openmaia.texts[row]?.labels.join(", ")].filter(Boolean).join(" · ");

// -- drawing --------------------------------------------------------------------------------------------------------

// The colour of each verdict as red, green and blue.
layerMap.colours = () => {
  const style = getComputedStyle(document.documentElement);
  const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  return openmaia.table.columns.verdict.names.map((name) => {
    pen.fillStyle = style.getPropertyValue(`--v-${VERDICTS[name][0]}`);
    pen.fillRect(0, 0, 1, 1);
    return pen.getImageData(0, 0, 1, 1).data;
  });
};

layerMap.draw = () => {
  const colours = layerMap.colours();
  const most = Math.max(...layerMap.layers.map(({ rows }) => rows.length));
  const side = most > 20000 ? 4 : most > 2000 ? 6 : most > 300 ? 10 : 16;
  const widths = layerMap.layers.map(({ canvas }) => canvas.parentElement.clientWidth);
  layerMap.layers.forEach((layer, number) => {
    Object.assign(layer, { side, across: Math.max(1, Math.floor(widths[number] / side)) });
    layerMap.paint(layer, colours);
  });
};

// Draws a pixel for each unit, enlarges that, and clears the gaps: one call per unit takes ten times as long.
layerMap.paint = ({ canvas, rows, side, across }, colours) => {
  const lines = Math.ceil(rows.length / across), scale = window.devicePixelRatio || 1;
  const verdicts = openmaia.table.columns.verdict.values, pixels = new ImageData(across, lines);
  rows.forEach((row, at) => {
    pixels.data.set(colours[verdicts[row]], 4 * at);
    if (layerMap.selected && !layerMap.selected[row]) pixels.data[4 * at + 3] = 46;
  });
  const small = new OffscreenCanvas(across, lines);
  small.getContext("2d").putImageData(pixels, 0, 0);
  Object.assign(canvas, { width: across * side * scale, height: lines * side * scale });
  Object.assign(canvas.style, { width: `${across * side}px`, height: `${lines * side}px` });
  const pen = canvas.getContext("2d"), gap = side > 5 ? 1.5 : 0.5;
  pen.scale(scale, scale);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, 0, 0, across * side, lines * side);
  for (let column = 1; column <= across; column += 1) pen.clearRect(column * side - gap, 0, gap, lines * side);
  for (let line = 1; line <= lines; line += 1) pen.clearRect(0, line * side - gap, across * side, gap);
};

layerMap.select = (rows) => {
  clearTimeout(layerMap.timer);
  layerMap.timer = setTimeout(() => {
    layerMap.selected = rows.length === openmaia.table.size ? null : new Uint8Array(openmaia.table.size);
    if (layerMap.selected) for (const row of rows) layerMap.selected[row] = 1;
    layerMap.draw();
  }, 250);
};

// -- pointing and keys ----------------------------------------------------------------------------------------------

layerMap.connect = (holder) => {
  const of = (event) => layerMap.layers.find(({ canvas }) => canvas === event.target);
  const placed = (event, layer) => {
    const box = layer.canvas.getBoundingClientRect(), cell = (length) => Math.floor(length / layer.side);
    return cell(event.clientY - box.top) * layer.across + cell(event.clientX - box.left);
  };
  holder.addEventListener("mousemove", (event) => {
    const layer = of(event), row = layer?.rows[placed(event, layer)];
    if (row !== undefined) { layer.canvas.title = layerMap.name(row); layerMap.tell(row); }
  });
  holder.addEventListener("click", (event) => {
    const layer = of(event);
    if (layer) layerMap.open(layer.rows[placed(event, layer)]);
  });
  holder.addEventListener("focusin", (event) => of(event) && layerMap.moveTo(of(event), of(event).at));
  holder.addEventListener("focusout", () => layerMap.cursor().remove());
  holder.addEventListener("keydown", (event) => {
    const layer = of(event), step = layer && layerMap.steps(layer)[event.key];
    if (step === undefined) return;
    event.preventDefault();
    if (step === "open") layerMap.open(layer.rows[layer.at]);
    else layerMap.moveTo(layer, layer.at + step);
  });
};

layerMap.steps = ({ across, at, rows }) => ({
  ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -at, End: rows.length - 1 - at, Enter: "open", " ": "open",
});

// Moves the cursor to a unit; beyond the ends of a layer, to the nearest unit of the layer beside it.
layerMap.moveTo = (layer, at) => {
  const next = layerMap.layers[layerMap.layers.indexOf(layer) + (at < 0 ? -1 : at >= layer.rows.length ? 1 : 0)] ?? layer;
  const isSame = next === layer;
  next.at = isSame ? Math.min(Math.max(at, 0), layer.rows.length - 1) : at < 0 ? next.rows.length - 1 : 0;
  for (const { canvas } of layerMap.layers) canvas.tabIndex = canvas === next.canvas ? 0 : -1;
  layerMap.announce(next);
  if (!isSame) { next.canvas.focus(); return; }
  const cursor = layerMap.cursor(), [left, top] = [next.at % next.across, Math.floor(next.at / next.across)];
  Object.assign(cursor.style, { left: `${left * next.side}px`, top: `${top * next.side}px`, width: `${next.side}px`, height: `${next.side}px` });
  next.canvas.parentElement.append(cursor);
  cursor.scrollIntoView({ block: "nearest" });
  layerMap.tell(next.rows[next.at]);
};

layerMap.cursor = () => document.getElementById("cursor") ?? element("span", { id: "cursor", "aria-hidden": "true" });

layerMap.announce = ({ canvas, rows, at }) => {
  canvas.setAttribute("aria-valuenow", at + 1);
  canvas.setAttribute("aria-valuetext", layerMap.name(rows[at]));
};

layerMap.tell = (row) => { document.getElementById("pointed").textContent = layerMap.name(row); };

layerMap.open = (row) => {
  if (row === undefined || !openmaia.href(row)) return;
  rememberOrder(row);
  location.href = openmaia.href(row);
};
