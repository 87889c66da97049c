"use strict";
// The units of a report in memory: columns, texts, the query language and the sort orders. It knows nothing of the page.
// Data files call `openmaia.receive` and `openmaia.receiveTexts`: pages opened from a folder cannot use fetch().
const openmaia = { table: null, listeners: [] };

// The values of a column come before its other facts.
const arrived = new Map();
openmaia.receiveValues = (name, type, values) => arrived.set(name, unpacked(type, values));

openmaia.receive = (json) => {
  const data = JSON.parse(json);
  const columns = {};
  for (const [name, column] of Object.entries(data.columns)) columns[name] = { ...column, values: arrived.get(name) };
  arrived.clear();
  const size = columns.place.values.length;
  columns.unit = { values: Uint32Array.from({ length: size }, (_, row) => row) };
  columns.run = { values: columns.place.values };
  openmaia.table = { ...data, columns, size, orders: new Map(), excluded: new Map(), found: new Map(), loaded: 0 };
  shards.length = 0;
  read.clear();
  openmaia.tell("table");
};

const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array, f8: Float64Array };

// The array of a column, whose bytes are in base64. NaN is no value.
function unpacked(type, values) {
  const text = atob(values), bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return new ARRAYS[type](bytes.buffer);
}

// -- texts ----------------------------------------------------------------------------------------------------------

// The texts of the rows as they came, a line for each, and what is searched: names and texts in lower case, with the end of each
// row. Only the texts of rows that are shown become objects: those of 100,000 would take more memory than all else.
const shards = [], read = new Map();
const KEPT = 3000;

openmaia.receiveTexts = (shard, lines) => {
  const { shard: count, size } = openmaia.table, first = shard * count, rows = Math.min(count, size - first);
  const starts = new Uint32Array(rows + 1), ends = new Uint32Array(rows), pieces = [];
  for (let at = 0, length = 0; at < rows; at += 1) {
    const end = lines.indexOf("\n", starts[at]);
    starts[at + 1] = (end < 0 ? lines.length : end) + 1;
    const [labels, description, cause, , title] = JSON.parse(lines.slice(starts[at], starts[at + 1] - 1));
    const text = [openmaia.name(first + at), ...labels, description, cause, title].join("\n").toLowerCase();
    pieces.push(text);
    length += text.length + 1;
    ends[at] = length;
  }
  shards[shard] = { first, lines, starts, ends, search: `${pieces.join("\n")}\n` };
  read.clear();
  openmaia.table.loaded += 1;
  openmaia.table.excluded.clear();
  openmaia.table.found.clear();
  openmaia.tell("texts");
};

// The texts of a row; undefined while they are not loaded.
openmaia.text = (row) => {
  if (!read.has(row)) {
    const shard = shards[Math.floor(row / openmaia.table.shard)];
    if (!shard) return undefined;
    if (read.size >= KEPT) read.clear();
    read.set(row, textAt(shard, row - shard.first));
  }
  return read.get(row);
};

function textAt({ lines, starts }, at) {
  const [labels, description, cause, reason, title] = JSON.parse(lines.slice(starts[at], starts[at + 1] - 1));
  return { labels, description, cause, reason, title };
}

// The rows whose names or texts have these letters, as 1.
function rowsWith(letters) {
  const found = new Uint8Array(openmaia.table.size);
  for (const { first, ends, search } of shards.filter(Boolean)) {
    let row = 0;
    for (let at = search.indexOf(letters); at >= 0 && row < ends.length; at = search.indexOf(letters, ends[row])) {
      while (ends[row] <= at) row += 1;
      found[first + row] = 1;
    }
  }
  return found;
}

openmaia.receiveLive = (json) => { openmaia.live = JSON.parse(json); openmaia.tell("live"); };

openmaia.tell = (what) => openmaia.listeners.forEach((listener) => listener(what));

// Loads a data file of the report by a script element.
openmaia.load = (address) =>
  new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = () => { script.remove(); resolve(); };
    script.onerror = () => { script.remove(); reject(new Error(`${address} cannot be read`)); };
    document.head.append(script);
  });

// A number of 4 bytes has 7 digits.
openmaia.value = (row, name) => {
  const { values } = openmaia.table.columns[name];
  return values instanceof Float32Array ? Number(values[row].toPrecision(7)) : values[row];
};

// The name of a category, such as the verdict; "" if the column has no value.
openmaia.word = (row, name) => {
  const { names, values } = openmaia.table.columns[name];
  return names[values[row]] ?? "";
};

openmaia.place = (row) => openmaia.table.places[openmaia.value(row, "place")];

openmaia.name = (row) => {
  const replicate = openmaia.value(row, "replicate");
  return `${openmaia.place(row).layer}/${openmaia.value(row, "index")}${replicate ? ` #${replicate}` : ""}`;
};

// The address of the files of a row without suffix: the page, and the tile with its images.
openmaia.stem = (row) =>
  `${openmaia.place(row).folder}${openmaia.value(row, "index")}-${openmaia.value(row, "replicate")}`;

openmaia.href = (row) => (openmaia.value(row, "page") ? `${openmaia.stem(row)}.html` : "");

// -- queries --------------------------------------------------------------------------------------------------------

const COMPARISONS = {
  ">": (a, b) => a > b, "<": (a, b) => a < b, ">=": (a, b) => a >= b, "<=": (a, b) => a <= b, "=": (a, b) => a === b,
};

// Splits `stripes "on grass" auc>0.8 verdict:undecided -blue` into tests of rows. A word is searched in names and texts,
// by its meaning, too, where the words of the run are known (meaning.js).
openmaia.parse = (query) => {
  const tests = [], isQuestion = /\?\s*$/.test(query), words = [];
  for (const [, minus, quoted, plain] of query.replace(/\?\s*$/, "").matchAll(/(-?)(?:"([^"]*)"?|(\S+))/g)) {
    const test = quoted === undefined ? tokenTest(plain) : null;
    if (test) tests.push({ name: `${minus}test ${plain}`, test: minus && !test.problem ? (row) => !test(row) : test, problem: test.problem });
    else if (isQuestion && !minus) words.push(quoted ?? plain);
    else if (quoted ?? plain) tests.push(wordTest((quoted ?? plain).toLowerCase(), Boolean(minus)));
  }
  if (words.length) tests.push({ name: `question ${words.join(" ")}`, ...openmaia.question(words, tests.some((test) => !test.name.startsWith("-word"))) });
  return tests;
};

// The rows that the tests of a query exclude. Those of each beginning of the query are kept until the texts change, because
// typing changes its end: a row that lacks a word also lacks each longer one.
function excludedBy(tests) {
  const { excluded, size } = openmaia.table;
  let key = "", rows = new Uint8Array(size);
  for (const { name, test, shorter } of tests) {
    const start = excluded.get(`${key}\n${shorter}`) ?? rows;
    key = `${key}\n${name}`;
    if (!excluded.has(key)) {
      const found = start.slice();
      for (let row = 0; row < size; row += 1) if (!found[row] && !test(row)) found[row] = 1;
      if (excluded.size > 60) excluded.clear();
      excluded.set(key, found);
    }
    rows = excluded.get(key);
  }
  return rows;
}

// The rows that a query excludes, as 1: for counts, which need no order.
openmaia.excluded = (query) => excludedBy(openmaia.parse(query));

function wordTest(word, isMinus) {
  if (isMinus) return { name: `-word ${word}`, test: rowTest(`letters ${word}`, () => rowsWith(word), (found) => !found) };
  return { name: `word ${word}`, shorter: openmaia.hasMeaning(word) ? "" : `word ${word.slice(0, -1)}`, test: openmaia.meansWord(word) };
}

// A test that finds all rows when the first is asked for. `find` returns a number for each row, which is kept under `name` until
// the texts change: drawing the page asks several times.
function rowTest(name, find, passes = Boolean) {
  let own;
  return (row) => passes((own ??= remembered(name, find))[row]);
}

function remembered(name, find) {
  const { found } = openmaia.table;
  if (!found.has(name)) {
    if (found.size > 20) found.clear();
    found.set(name, find());
  }
  return found.get(name);
}

// Names in queries have underscores for spaces.
openmaia.spell = (text) => text.toLowerCase().replaceAll(/\s+/g, "_");

// The test of a comparison or of a category; null if the token is a word. Python reads the same (`reporting/query.py`).
function tokenTest(token) {
  const compared = token.match(/^([a-z_]+)(>=|<=|>|<|=)(-?[\d.]+(?:e-?\d+)?)$/i), named = token.match(/^([a-z_]+):(.+)$/i);
  if (!compared && !named) return null;
  const given = (compared ?? named)[1].toLowerCase(), name = Object.hasOwn(openmaia.table.fields, given) ? openmaia.table.fields[given] : "";
  if (!name) return refusal(`There is no field ${given}; the nearest is ${nearestField(given)}. Quotes search for the text itself.`);
  const column = openmaia.table.columns[name], isWord = name === "layer" || name === "run" || Boolean(column.names);
  if (isWord === Boolean(compared)) {
    return refusal(`${token}: ask for ${given} in the form ${isWord ? `${given}:${openmaia.spell(column?.names?.[0] ?? "NAME")}` : `${given}>0.5`}`);
  }
  if (named) return categoryTest(name, openmaia.spell(named[2]));
  const { values } = column, compare = COMPARISONS[compared[2]];
  const limit = values instanceof Float32Array ? Math.fround(Number(compared[3])) : Number(compared[3]);
  return (row) => compare(values[row], limit);
}

// A test that no row passes, because it cannot be understood.
const refusal = (problem) => Object.assign(() => false, { problem });

// What is wrong with a query, in one line; "" if nothing is.
openmaia.problem = (query) => openmaia.parse(query).find((test) => test.problem)?.problem ?? "";

function nearestField(given) {
  const [nearest] = Object.keys(openmaia.table.fields).map((name) => [edits(given, name), name]).sort(([a], [b]) => a - b);
  return nearest[1];
}

// How many letters have to be added, left out or replaced to make one word of the other.
function edits(one, other) {
  let last = [...other].map((_, at) => at + 1);
  for (const [row, letter] of [...one].entries()) {
    const next = [];
    for (const [at, each] of [...other].entries()) {
      const diagonal = at ? last[at - 1] : row, before = at ? next[at - 1] : row + 1;
      next.push(Math.min(diagonal + (letter === each ? 0 : 1), last[at] + 1, before + 1));
    }
    last = next;
  }
  return last.at(-1) ?? one.length;
}

function categoryTest(name, wanted) {
  if (name === "layer" || name === "run") {
    const chosen = openmaia.table.places.map((place) => openmaia.spell(place[name]) === wanted);
    return (row) => chosen[openmaia.value(row, "place")];
  }
  const column = openmaia.table.columns[name];
  const chosen = column.names.map((each) => openmaia.spell(each) === wanted);
  return (row) => chosen[column.values[row]] === true;
}

// -- order ----------------------------------------------------------------------------------------------------------

// All rows in ascending order of a column, and the number of those with a value, which come first. In a group of a column of
// groups the best verdict comes first, and of equal ones the most certain, as in the terminal. The state parts those that run from
// those that wait.
openmaia.order = (name) => {
  const { orders, columns, size } = openmaia.table;
  if (!orders.has(name)) {
    const { values } = columns[name], { low, stop } = columns, verdicts = verdictKeys(columns);
    const first = name === "verdict" ? verdicts : values;
    const keys = GROUPING.has(name) ? [sortKeys(stop.values), sortKeys(low.values, true), sortKeys(verdicts), sortKeys(first)] : [sortKeys(values)];
    let rows = Uint32Array.from({ length: size }, (_, row) => row), known = size;
    for (const each of keys) rows = sortedBy(rows, each);
    while (known > 0 && Number.isNaN(values[rows[known - 1]])) known -= 1;
    orders.set(name, { sorted: rows.subarray(0, known), missing: rows.subarray(known) });
  }
  return orders.get(name);
};

const GROUPING = new Set(["verdict", "concept"]);

// Verdicts from the best. While a run goes on, descriptions without a verdict stand before the units that have none to say.
function verdictKeys({ verdict, stop }) {
  const untested = verdict.names.indexOf("not tested"), silent = verdict.names.indexOf("abstained"), answered = stop.names.indexOf("answer");
  return verdict.values.map((value, row) => (value === untested && stop.values[row] === answered ? 2 * silent - 1 : 2 * value));
}

// Whole numbers of 32 bits in the order of numbers, NaN last. Of a float its bits: those of a negative one are turned, and the sign
// of a positive one is set.
function sortKeys(values, isDown = false) {
  if (!(values instanceof Float32Array || values instanceof Float64Array)) return Uint32Array.from(values);
  const floats = Float32Array.from(values), keys = new Uint32Array(floats.buffer);
  for (let at = 0; at < keys.length; at += 1) {
    if (Number.isNaN(floats[at])) { keys[at] = 0xffffffff; continue; }
    const up = keys[at] & 0x80000000 ? ~keys[at] >>> 0 : keys[at] | 0x80000000;
    keys[at] = isDown ? ~up : up;
  }
  return keys;
}

// Rows in ascending order of their keys, and in their present order where these are equal. Counts the lower and then the upper 16
// bits: comparing would take ten times as long.
function sortedBy(rows, keys) {
  let from = rows;
  for (const shift of [0, 16]) {
    const places = new Uint32Array(65537), to = new Uint32Array(rows.length);
    for (let at = 0; at < from.length; at += 1) places[((keys[from[at]] >>> shift) & 0xffff) + 1] += 1;
    for (let key = 1; key < places.length; key += 1) places[key] += places[key - 1];
    for (let at = 0; at < from.length; at += 1) to[places[(keys[from[at]] >>> shift) & 0xffff]++] = from[at];
    from = to;
  }
  return from;
}

// The numbers of the rows that match the query, sorted. Rows without a value come last, whichever way the others go.
openmaia.select = (query, name, isDescending) => {
  const { sorted, missing } = openmaia.order(name), tests = openmaia.parse(query), excluded = excludedBy(tests);
  const rows = new Uint32Array(openmaia.table.size);
  let count = 0;
  for (let at = 0; at < sorted.length; at += 1) {
    const row = sorted[isDescending ? sorted.length - 1 - at : at];
    if (!excluded[row]) rows[count++] = row;
  }
  for (const row of missing) if (!excluded[row]) rows[count++] = row;
  const chosen = rows.subarray(0, count), focus = tests.find((test) => test.focus)?.focus;
  if (!focus) return chosen;
  const shares = new Float32Array(openmaia.table.size);
  for (const row of chosen) shares[row] = focus(row);
  return sortedBy(chosen, sortKeys(shares, true));
};

// -- CSV ------------------------------------------------------------------------------------------------------------

// Texts that a spreadsheet would take for a formula get an apostrophe.
openmaia.csvCell = (value) => {
  if (typeof value === "number") return Number.isNaN(value) ? "" : String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

openmaia.csv = (rows) => {
  const { columns } = openmaia.table;
  const names = openmaia.table.order.filter((name) => columns[name].title);
  const lines = [["run", "target", "layer", "index", "replicate", "labels", "description", ...names]];
  for (const row of rows) {
    const place = openmaia.place(row), text = openmaia.text(row) ?? { labels: [], description: "" };
    const values = names.map((name) => (columns[name].names ? openmaia.word(row, name) : openmaia.value(row, name)));
    lines.push([
      place.run, place.target, place.layer, openmaia.value(row, "index"), openmaia.value(row, "replicate"),
      text.labels.join("; "), text.description, ...values,
    ]);
  }
  return lines.map((cells) => cells.map(openmaia.csvCell).join(",")).join("\r\n");
};
