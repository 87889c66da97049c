"use strict";
// The units of a report in memory: columns, texts, the query language and the sort orders. It knows nothing of the page.
// Data files call `openmaia.receive` and `openmaia.receiveTexts`: pages opened from a folder cannot use fetch().
const openmaia = { table: null, texts: [], listeners: [] };

openmaia.receive = (json) => {
  const data = JSON.parse(json);
  const columns = {};
  for (const [name, column] of Object.entries(data.columns)) columns[name] = { ...column, values: typed(column.values) };
  columns.unit = { values: columns.place.values.map((_, row) => row) };
  columns.run = { values: columns.place.values };
  openmaia.table = { ...data, columns, size: columns.place.values.length, orders: new Map(), excluded: new Map(), loaded: 0 };
  openmaia.texts = new Array(openmaia.table.size);
  openmaia.tell("table");
};

// A loop, because Float64Array.from with a function takes ten times as long.
function typed(values) {
  const made = new Float64Array(values.length);
  for (let row = 0; row < made.length; row += 1) made[row] = values[row] ?? NaN;
  return made;
}

openmaia.receiveTexts = (shard, json) => {
  const first = shard * openmaia.table.shard;
  for (const [at, [labels, description, cause, reason, title]] of JSON.parse(json).entries()) {
    const row = first + at;
    const search = [openmaia.name(row), ...labels, description, cause, title].join("\n").toLowerCase();
    openmaia.texts[row] = { labels, description, cause, reason, title, search };
  }
  openmaia.table.loaded += 1;
  openmaia.table.excluded.clear();
  openmaia.tell("texts");
};

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

openmaia.value = (row, name) => openmaia.table.columns[name].values[row];

// The name of a category, such as the verdict; "" if the column has no value.
openmaia.word = (row, name) => openmaia.table.columns[name].names[openmaia.value(row, name)] ?? "";

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

function wordTest(word, isMinus) {
  if (isMinus) return { name: `-word ${word}`, test: (row) => !(openmaia.texts[row]?.search.includes(word) ?? false) };
  return { name: `word ${word}`, shorter: openmaia.hasMeaning(word) ? "" : `word ${word.slice(0, -1)}`, test: openmaia.meansWord(word) };
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
  const [compare, limit, values] = [COMPARISONS[compared[2]], Number(compared[3]), column.values];
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

// All rows in ascending order of a column, those without a value last, and the number of those with one.
openmaia.order = (name) => {
  const { orders, columns, size } = openmaia.table;
  if (!orders.has(name)) {
    const { values } = columns[name];
    const known = [], missing = [];
    for (let row = 0; row < size; row += 1) (Number.isNaN(values[row]) ? missing : known).push(row);
    orders.set(name, { sorted: GROUPING.has(name) ? bestFirst(known, values) : ascending(known, values, size), missing });
  }
  return orders.get(name);
};

const GROUPING = new Set(["verdict", "concept"]);

// Rows by a column of groups. In a group the best verdict comes first, and of equal ones the most certain, as in the terminal.
// The state parts those that run from those that wait.
function bestFirst(rows, groups) {
  const { verdict, low, stop } = openmaia.table.columns;
  return Uint32Array.from(rows).sort((a, b) => groups[a] - groups[b] || verdict.values[a] - verdict.values[b]
    || low.values[b] - low.values[a] || stop.values[a] - stop.values[b] || a - b);
}

// Rows in ascending order of their values, and of their numbers where values are equal. Small whole numbers, such as the ranks
// of labels, are counted instead of compared.
function ascending(rows, values, size) {
  if (!rows.every((row) => values[row] >= 0 && values[row] < size && Number.isInteger(values[row]))) {
    return Uint32Array.from(rows).sort((a, b) => values[a] - values[b] || a - b);
  }
  const places = new Uint32Array(size + 1), sorted = new Uint32Array(rows.length);
  for (const row of rows) places[values[row] + 1] += 1;
  for (let value = 1; value < size; value += 1) places[value] += places[value - 1];
  for (const row of rows) sorted[places[values[row]]++] = row;
  return sorted;
}

// The numbers of the rows that match the query, sorted. Rows without a value come last, whichever way the others go.
openmaia.select = (query, name, isDescending) => {
  const { sorted, missing } = openmaia.order(name);
  const excluded = excludedBy(openmaia.parse(query));
  const rows = [];
  for (let at = 0; at < sorted.length; at += 1) {
    const row = sorted[isDescending ? sorted.length - 1 - at : at];
    if (!excluded[row]) rows.push(row);
  }
  for (const row of missing) if (!excluded[row]) rows.push(row);
  const focus = openmaia.parse(query).find((test) => test.focus)?.focus;
  return focus ? rows.map((row) => [focus(row), row]).sort(([a], [b]) => b - a).map(([, row]) => row) : rows;
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
    const place = openmaia.place(row), text = openmaia.texts[row] ?? { labels: [], description: "" };
    const values = names.map((name) => (columns[name].names ? openmaia.word(row, name) : openmaia.value(row, name)));
    lines.push([
      place.run, place.target, place.layer, openmaia.value(row, "index"), openmaia.value(row, "replicate"),
      text.labels.join("; "), text.description, ...values,
    ]);
  }
  return lines.map((cells) => cells.map(openmaia.csvCell).join(",")).join("\r\n");
};
