"use strict";
// The units as a table: DataTables draws a page of it, units.js chooses and orders the rows. The state of wall and table is in
// the address.
const VERDICTS = {
  supported: ["supported", "✓"], undecided: ["undecided", "~"], "not supported": ["refuted", "✕"], abstained: ["abstained", "–"],
  "not tested": ["untested", "?"], failed: ["failed", "!"],
};
const PAGE = 25;
const DEFAULT_SORT = { name: "verdict", down: false };
const state = { q: "", sort: DEFAULT_SORT, page: 0, cols: null, size: "large" };
const visible = new Set();
let shown = [];
let table = null;

function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "class") made.className = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function verdictChip(row) {
  const verdict = openmaia.word(row, "verdict"), [css, mark] = VERDICTS[verdict];
  const chip = element("span", { class: `verdict ${css}` }, element("span", { "aria-hidden": "true" }, `${mark} `), verdict);
  if (openmaia.text(row)?.reason) chip.title = openmaia.text(row).reason;
  return chip;
}

function unitName(row) {
  const name = openmaia.name(row), href = openmaia.href(row), title = openmaia.text(row)?.title;
  const link = href ? element("a", { href, class: "open hostile" }, name) : element("span", { class: "hostile" }, name);
  return title ? element("div", {}, link, " ", element("span", { class: "dim hostile" }, title)) : link;
}

function description(row) {
  const text = openmaia.text(row), cell = element("div", { class: "what" });
  if (!text) return element("span", { class: "dim" }, "loading …");
  if (text.labels.length) {
    cell.append(element("div", { class: "labels" }, ...text.labels.map((label) => element("span", { class: "chip" }, label))));
  }
  if (text.description) cell.append(element("p", { class: "hostile" }, text.description));
  if (text.cause) cell.append(element("p", { class: "cause hostile" }, text.cause.split("\n")[0]));
  if (!text.labels.length && !text.description && !text.cause) cell.append(element("span", { class: "dim" }, "n/a"));
  return cell;
}

// A number with a bar that starts at zero. Scores are between 0 and 1, and a mark stands at chance.
function score(row, name) {
  const value = openmaia.value(row, name);
  if (Number.isNaN(value)) return element("span", { class: "dim" }, "n/a");
  const cell = element("div", { class: "score" }, value.toFixed(2));
  const bar = element("meter", { min: 0, max: 1, value, "aria-hidden": "true" });
  cell.append(bar);
  if (name === "worst") {
    const [low, high] = ["low", "high"].map((end) => openmaia.value(row, end).toFixed(2));
    cell.append(element("small", {}, `${low}–${high}`));
    cell.title = `AUC against ${openmaia.word(row, "control")}, its worst control; 95 % interval ${low} to ${high}; `
      + `${openmaia.value(row, "images")} images of the description, ${openmaia.value(row, "controls")} of the control`;
  }
  if (name === "in_exemplars") {
    const base = openmaia.value(row, "in_photographs");
    const count = `${openmaia.value(row, "shown")} of ${openmaia.value(row, "known")}`;
    cell.append(element("small", {}, Number.isNaN(base) ? count : `${count}; base ${base.toFixed(2)}`));
  }
  return cell;
}

function number(row, name) {
  const value = openmaia.value(row, name);
  if (Number.isNaN(value)) return element("span", { class: "dim" }, "n/a");
  return document.createTextNode(String(Number(value.toPrecision(3))));
}

const SPECIAL = {
  tile: { title: "Best images", render: picture, css: "exemplars", order: false },
  unit: { title: "Unit", render: unitName, css: "unit" },
  verdict: { title: "Verdict", render: verdictChip },
  labels: { title: "Labels and description", render: description, css: "what" },
  run: { title: "Run", render: (row) => element("span", { class: "hostile" }, openmaia.place(row).run) },
};

// The columns of the table in order: name, title, function that makes a cell, CSS class.
function tableColumns() {
  const { columns } = openmaia.table;
  const several = new Set(openmaia.table.places.map((place) => place.run)).size > 1;
  const names = ["tile", ...(several ? ["run"] : []), "unit", "verdict", "labels"];
  const special = names.map((name) => ({ name, ...SPECIAL[name], visible: true }));
  const measured = openmaia.table.order.map((name) => [name, columns[name]]).filter(([name, column]) => column.title && !SPECIAL[name]);
  return special.concat(measured.map(([name, column]) => ({
    name, title: column.title, hint: column.hint, visible: Boolean(column.visible), css: column.names ? "" : "number",
    render: column.names
      ? (row) => element("span", { class: "stop" }, openmaia.word(row, name) || "n/a")
      : (row) => (column.score ? score(row, name) : number(row, name)),
  })));
}

// -- the address ----------------------------------------------------------------------------------------------------

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const sort = given.get("sort") ?? "";
  const name = sort.replace(/^-/, "");
  state.q = given.get("q") ?? "";
  state.sort = name in openmaia.table.columns ? { name, down: sort.startsWith("-") } : DEFAULT_SORT;
  state.page = Math.max(0, (parseInt(given.get("page"), 10) || 1) - 1);
  state.cols = given.has("cols") ? given.get("cols").split(",") : null;
  state.size = given.get("size") in SIZES || given.get("size") === "table" ? given.get("size") : "large";
}

function address() {
  const given = new URLSearchParams();
  if (state.q) given.set("q", state.q);
  const { name, down } = state.sort;
  if (name !== DEFAULT_SORT.name || down) given.set("sort", `${down ? "-" : ""}${name}`);
  if (state.page) given.set("page", state.page + 1);
  if (state.cols) given.set("cols", state.cols.join(","));
  if (state.size !== "large") given.set("size", state.size);
  return given.size ? `#${given}` : "";
}

function writeAddress() {
  history.replaceState(history.state, "", address() || location.pathname + location.search);
}

// -- what is chosen -------------------------------------------------------------------------------------------------

let chosen = "";
function choose() {
  const wanted = JSON.stringify([state.q, state.sort, openmaia.table.loaded, openmaia.table.version]);
  if (wanted === chosen) return;
  chosen = wanted;
  shown = openmaia.select(state.q, state.sort.name, state.sort.down);
  const { table: all } = openmaia, isPartial = all.loaded < all.shards && openmaia.parse(state.q).length;
  const rest = isPartial ? `, ${Math.round((100 * all.loaded) / all.shards)} % of the texts are loaded` : "";
  document.getElementById("count").textContent = openmaia.problem(state.q) || `${shown.length.toLocaleString("en")} of ${all.size.toLocaleString("en")}${rest}`;
}

function redraw(page = 0) {
  choose();
  const isTable = state.size === "table";
  for (const id of ["tabled", "choice"]) document.getElementById(id).hidden = !isTable;
  wallElement().hidden = isTable;
  if (isTable) {
    ordered = "";
    if (!table) makeTable();
    state.page = Math.min(page, Math.max(0, Math.ceil(shown.length / PAGE) - 1));
    table.order([table.column(`${state.sort.name}:name`).index() ?? table.column("unit:name").index(), state.sort.down ? "desc" : "asc"]);
    table.page(state.page).draw("page");
  } else {
    state.page = 0;
    drawWall(shown, state.size, state.sort.name);
  }
  drawSide();
  writeAddress();
}

// -- the table ------------------------------------------------------------------------------------------------------

// The order that the page gave to the table. Another one is a click on a heading. The likeness of units is no column.
let ordered = "";

function makeTable() {
  const columns = tableColumns(), names = columns.map((column) => column.name);
  const isVisible = (column) => (state.cols ? state.cols.includes(column.name) : column.visible);
  columns.filter(isVisible).forEach((column) => visible.add(column.name));
  table = new DataTable("#table", {
    serverSide: true, searching: false, processing: false, autoWidth: false, pageLength: PAGE, lengthChange: false,
    deferLoading: null, displayStart: state.page * PAGE, order: [[Math.max(0, names.indexOf(state.sort.name)), state.sort.down ? "desc" : "asc"]],
    layout: { topStart: null, topEnd: null, bottomStart: null, bottomEnd: "paging" },
    language: { zeroRecords: "No unit matches.", emptyTable: "There are no units." },
    columns: columns.map((column) => ({
      title: column.title, name: column.name, orderable: column.order !== false, className: column.css ?? "", data: null,
      orderSequence: column.css === "number" ? ["desc", "asc"] : ["asc", "desc"], visible: isVisible(column),
      render: (data, kind, { row }) => (kind === "display" && visible.has(column.name) ? column.render(row, column.name) : ""),
      createdCell: (cell) => { cell.dataset.name = column.title; },
    })),
    ajax: (request, answer) => {
      const [{ column, dir } = { column: names.indexOf("unit"), dir: "asc" }] = request.order;
      if (ordered && ordered !== column + dir && names[column] !== "tile") state.sort = { name: names[column], down: dir === "desc" };
      ordered = column + dir;
      choose();
      drawSort();
      state.page = Math.floor(request.start / PAGE);
      writeAddress();
      const data = [...shown.slice(request.start, request.start + PAGE)].map((row) => ({ row }));
      answer({ draw: request.draw, recordsTotal: openmaia.table.size, recordsFiltered: shown.length, data });
    },
  });
  table.on("page", () => document.getElementById("units").scrollIntoView());
  addHints(columns);
  addChoice(columns, isVisible);
}

function addHints(columns) {
  columns.forEach((column, at) => {
    if (column.hint) table.column(at).header().title = column.hint;
  });
}

function addChoice(columns, isVisible) {
  const list = document.getElementById("columns");
  columns.forEach((column, at) => {
    const box = element("input", { type: "checkbox" });
    box.checked = isVisible(column);
    box.addEventListener("change", () => {
      visible[box.checked ? "add" : "delete"](column.name);
      table.column(at).visible(box.checked);
      state.cols = columns.filter((each) => visible.has(each.name)).map((each) => each.name);
      table.draw("page"); // The cells of a hidden column were not made.
    });
    list.append(element("label", {}, box, ` ${column.title}`));
  });
}
