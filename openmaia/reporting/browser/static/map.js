"use strict";
// The layer map: a cell for each unit, coloured by its verdict. Units that do not match the query are pale.
const layerMap = { layers: [], selected: null };

layerMap.build = () => {
  const groups = new Map();
  for (let row = 0; row < openmaia.table.size; row += 1) {
    const place = openmaia.value(row, "place");
    if (!groups.has(place)) groups.set(place, []);
    groups.get(place).push(row);
  }
  const index = (row) => openmaia.value(row, "index");
  const holder = document.getElementById("map");
  holder.replaceChildren();
  layerMap.layers = [...groups].map(([place, rows]) => {
    rows.sort((a, b) => index(a) - index(b));
    const { layer, run } = openmaia.table.places[place];
    const several = new Set(openmaia.table.places.map((each) => each.run)).size > 1;
    const canvas = element("canvas", { role: "img", "aria-label": layerMap.summary(layer, rows) });
    holder.append(element("figure", {}, element("figcaption", { class: "hostile" }, several ? `${run}: ${layer}` : layer), canvas));
    canvas.addEventListener("mousemove", (event) => layerMap.point(event, canvas));
    canvas.addEventListener("click", (event) => layerMap.open(event, canvas));
    return { canvas, rows };
  });
  layerMap.draw();
};

layerMap.summary = (layer, rows) => {
  const counts = {};
  for (const row of rows) counts[openmaia.word(row, "verdict")] = (counts[openmaia.word(row, "verdict")] ?? 0) + 1;
  return `${layer}, ${rows.length} units: ${Object.entries(counts).map(([name, count]) => `${count} ${name}`).join(", ")}`;
};

layerMap.draw = () => {
  const style = getComputedStyle(document.documentElement);
  const colours = openmaia.table.columns.verdict.names.map((name) => style.getPropertyValue(`--v-${VERDICTS[name][0]}`));
  const most = Math.max(...layerMap.layers.map(({ rows }) => rows.length));
  const side = most > 20000 ? 4 : most > 2000 ? 6 : most > 300 ? 10 : 16;
  for (const { canvas, rows } of layerMap.layers) {
    const width = Math.max(side, Math.floor(canvas.parentElement.clientWidth / side) * side), across = width / side;
    const scale = window.devicePixelRatio || 1;
    const height = Math.ceil(rows.length / across) * side;
    Object.assign(canvas, { width: width * scale, height: height * scale });
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    Object.assign(canvas.dataset, { side, across });
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    rows.forEach((row, at) => {
      pen.globalAlpha = layerMap.selected && !layerMap.selected.has(row) ? 0.18 : 1;
      pen.fillStyle = colours[openmaia.value(row, "verdict")];
      const gap = side > 5 ? 1.5 : 0.5;
      pen.fillRect((at % across) * side, Math.floor(at / across) * side, side - gap, side - gap);
    });
  }
};

layerMap.at = (event, canvas) => {
  const { side, across } = canvas.dataset, box = canvas.getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left) / side), line = Math.floor((event.clientY - box.top) / side);
  return layerMap.layers.find((layer) => layer.canvas === canvas).rows[line * across + column];
};

layerMap.point = (event, canvas) => {
  const row = layerMap.at(event, canvas);
  canvas.title = row === undefined ? "" : [openmaia.name(row), openmaia.word(row, "verdict"), openmaia.texts[row]?.labels.join(", ")].filter(Boolean).join(" · ");
};

layerMap.open = (event, canvas) => {
  const row = layerMap.at(event, canvas);
  if (row !== undefined && openmaia.href(row)) {
    rememberOrder(row);
    location.href = openmaia.href(row);
  }
};

layerMap.select = (rows) => {
  clearTimeout(layerMap.timer);
  layerMap.timer = setTimeout(() => {
    layerMap.selected = rows.length === openmaia.table.size ? null : new Set(rows);
    layerMap.draw();
  }, 250);
};
