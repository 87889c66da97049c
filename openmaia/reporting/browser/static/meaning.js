"use strict";
// What words mean, as `openmaia/analysis/search.py` reads them: a thing is a set of names, and a label answers a thing of a question
// if both have a name in common. The words come with the data, because a page opened from a folder can ask nobody.
const PHRASE = 6, READ = 5000; // words of a phrase that is looked for, and characters of a text that are read, at most

// The language as sets, and how many words the longest phrase has that begins with a word. Texts have many words.
function prepared() {
  const { language } = openmaia.table;
  if (!language.prepared) {
    const longest = new Map();
    for (const phrase of Object.keys(language.lexicon)) {
      const [first, ...rest] = phrase.split(" ");
      longest.set(first, Math.max(longest.get(first) ?? 1, rest.length + 1));
    }
    language.prepared = { lexicon: language.lexicon, stop: new Set(language.stop), denials: new Set(language.denials), longest };
  }
  return language.prepared;
}

const stems = new Map();

function stemWord(word) {
  if (!stems.has(word)) stems.set(word, cutWord(word));
  return stems.get(word);
}

function cutWord(word) {
  if (word.length <= 3 || /(?:ss|us|is)$/.test(word)) return word;
  if (word.endsWith("ies")) return `${word.slice(0, -3)}y`;
  const singular = word.replace(/s$/, "");
  return singular.length > 3 ? singular.replace(/e$/, "") : singular;
}

openmaia.singular = (phrase) => phrase.split(/\s+/).filter(Boolean).map(stemWord).join(" ");

// The things that a text names, without what it denies ("boat without night"): [phrase, its names].
openmaia.things = (text) => {
  const { lexicon, stop, denials, longest } = prepared(), found = [];
  const words = text.slice(0, READ).toLowerCase().match(/[\p{L}\p{N}_]+|[,;.:!?]/gu) ?? [];
  let isDenied = false;
  for (let at = 0; at < words.length;) {
    if (/^[,;.:!?]$/.test(words[at])) { isDenied = false; at += 1; continue; }
    let length = Math.min(PHRASE, words.length - at, longest.get(stemWord(words[at])) ?? 1), phrase = "", names;
    for (; length > 0; length -= 1) {
      phrase = length === 1 ? words[at] : words.slice(at, at + length).join(" ");
      names = meaning(lexicon, length === 1 ? stemWord(phrase) : openmaia.singular(phrase));
      if (names || length === 1) break;
    }
    isDenied ||= denials.has(phrase);
    if (!isDenied && (names || !stop.has(phrase))) found.push([phrase, names ?? [openmaia.singular(phrase)]]);
    at += length;
  }
  return found;
};

const meaning = (lexicon, phrase) => (Object.hasOwn(lexicon, phrase) ? lexicon[phrase] : undefined);

// Whether a typed word means more than its letters: a longer word may then match where the shorter one does not.
openmaia.hasMeaning = (word) => Boolean(meaning(openmaia.table.language.lexicon, openmaia.singular(word)));

// The test of a word by its letters in names and texts, or by its meaning in a label.
openmaia.meansWord = (word) => {
  const names = meaning(openmaia.table.language.lexicon, openmaia.singular(word));
  return rowTest(`meaning ${word}`, () => {
    const found = rowsWith(word);
    if (names) eachStatement([new Set(names)], (row, hits) => { if (hits.some(Boolean)) found[row] = 1; });
    return found;
  });
};

// -- what all texts name --------------------------------------------------------------------------------------------

// The things of all texts that were read, each once. A thing of a text is a position in this list.
const known = { names: [], positions: new Map() };

function positionOf(names) {
  const key = names.length === 1 ? names[0] : names; // the list of a phrase of the lexicon is one object
  let at = known.positions.get(key);
  if (at === undefined) {
    at = known.names.push(names) - 1;
    known.positions.set(key, at);
  }
  return at;
}

// The things of the texts of a shard, one after the other; where each statement ends, which is a label, a description or a title;
// and where the statements of each row end.
function thingsOf(shard) {
  if (shard.things) return shard.things;
  const things = [], statements = [], rows = new Uint32Array(shard.ends.length);
  for (let at = 0; at < rows.length; at += 1) {
    const { labels, description, title } = textAt(shard, at);
    for (const text of [...labels, description, title]) {
      if (!text) continue;
      for (const [, names] of openmaia.things(text)) things.push(positionOf(names));
      statements.push(things.length);
    }
    rows[at] = statements.length;
  }
  shard.things = { things: Uint32Array.from(things), statements: Uint32Array.from(statements), rows };
  return shard.things;
}

// Calls `visit(row, hits, share)` for each statement: how many of its things have a name in common with each set of names, and the
// share of its things that have one with any. The array of hits is used again.
function eachStatement(asked, visit) {
  const loaded = shards.filter(Boolean).map((shard) => [shard.first, thingsOf(shard)]);
  const wanted = asked.map((names) => Uint8Array.from(known.names, (own) => Number(own.some((name) => names.has(name)))));
  const any = Uint8Array.from(known.names, (_, at) => Number(wanted.some((each) => each[at])));
  const hits = new Uint32Array(asked.length);
  for (const [first, { things, statements, rows }] of loaded) {
    for (let row = 0, statement = 0, at = 0; row < rows.length; row += 1) {
      for (; statement < rows[row]; statement += 1) {
        const start = at;
        let shared = 0;
        for (; at < statements[statement]; at += 1) shared += any[things[at]];
        if (!shared) continue;
        hits.fill(0);
        for (let again = start; again < at; again += 1) for (let each = 0; each < hits.length; each += 1) hits[each] += wanted[each][things[again]];
        visit(first + row, hits, shared / (at - start));
      }
    }
  }
}

// Reads what the texts name while the page has nothing else to do, so that the first search finds it.
openmaia.readAhead = (at = 0) => {
  if (at < shards.length) (window.requestIdleCallback ?? setTimeout)(() => { if (shards[at]) thingsOf(shards[at]); openmaia.readAhead(at + 1); });
};

// -- questions ------------------------------------------------------------------------------------------------------

// The test of a question, given by its words: its layers are conditions, and units answer of which one label covers what is asked.
// `focus` says how much of that label was asked for.
openmaia.question = (words, hasConditions) => {
  const layers = new Set(openmaia.table.places.map((place) => place.layer.toLowerCase()));
  const kept = [], chosen = new Set();
  for (const word of words) {
    const plain = word.replace(/^[?,;.!:]+|[?,;.!:]+$/g, "").toLowerCase();
    const isCued = /^(?:of|in|from|layers?)$/i.test(kept.at(-1) ?? "");
    if (layers.has(plain) && (isCued || !/^\p{L}+$/u.test(plain))) chosen.add(plain);
    else if (/^\d+$/.test(plain) && layers.has(`${kept.at(-1)?.toLowerCase()}${plain}`)) chosen.add(`${kept.pop().toLowerCase()}${plain}`); // "of layer 4"
    else kept.push(word);
  }
  const { asking, covered } = openmaia.table.language, found = openmaia.things(kept.join(" "));
  const things = found.filter(([phrase]) => !asking.includes(phrase)), asked = things.length || chosen.size || hasConditions ? things : found.slice(-1);
  const focused = rowTest(`question ${JSON.stringify(asked)}`, () => findFocus(asked, covered), (focus) => focus ?? 0);
  const problem = words.some((word) => openmaia.table.language.denials.includes(word.toLowerCase())) ? 'A question cannot deny; leave units out with a minus, such as "boats -night".' : "";
  return {
    problem,
    test: (row) => !problem && (!chosen.size || chosen.has(openmaia.place(row).layer.toLowerCase())) && (!asked.length || focused(row) > 0),
    focus: focused,
  };
};

// For each row the share of its best statement that was asked for, of those that cover what is asked; 0 if none does. A word that
// neither the lexicon nor any text has is not asked for.
function findFocus(asked, covered) {
  const found = new Float32Array(openmaia.table.size);
  shards.filter(Boolean).forEach(thingsOf);
  const names = asked.map(([, each]) => new Set(each));
  const wanted = names.filter((each, at) => openmaia.hasMeaning(asked[at][0]) || known.names.some((own) => own.some((name) => each.has(name))));
  eachStatement(wanted, (row, hits, share) => {
    if (hits.filter(Boolean).length >= covered * hits.length && share > found[row]) found[row] = share;
  });
  return found;
}
