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
  const names = new Set(meaning(openmaia.table.language.lexicon, openmaia.singular(word)));
  // Only texts with the beginning of a phrase of that meaning are read, because reading 100,000 takes seconds.
  const begins = Object.entries(openmaia.table.language.lexicon).filter(([, own]) => own.some((name) => names.has(name))).map(([phrase]) => phrase.split(" ")[0].replace(/y$/, ""));
  const may = new RegExp(`(?<![\\p{L}\\p{N}_])(?:${[...new Set(begins)].map((each) => each.replaceAll(/[^\p{L}\p{N}_]/gu, "\\$&")).join("|")})`, "u");
  return (row) => {
    const text = openmaia.texts[row];
    return Boolean(text) && (text.search.includes(word) || (names.size > 0 && may.test(text.search) && statements(text).some((each) => each.some((own) => own.some((name) => names.has(name))))));
  };
};

// The names of the things of each label, and of the description and title.
function statements(text) {
  text.things ??= [...text.labels, text.description, text.title].filter(Boolean).map((each) => openmaia.things(each).map(([, names]) => names));
  return text.things;
}

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
  const things = found.filter(([phrase]) => !asking.includes(phrase)), asked = (things.length || chosen.size || hasConditions ? things : found.slice(-1)).map(([, names]) => names);
  const cover = (label) => asked.filter((names) => label.some((own) => own.some((name) => names.includes(name)))).length / (asked.length || 1);
  const focus = (label) => label.filter((own) => asked.some((names) => own.some((name) => names.includes(name)))).length / label.length;
  const answering = (row) => (openmaia.texts[row] ? statements(openmaia.texts[row]).filter((label) => cover(label) > 0 && cover(label) >= covered) : []);
  const problem = words.some((word) => openmaia.table.language.denials.includes(word.toLowerCase())) ? 'A question cannot deny; leave units out with a minus, such as "boats -night".' : "";
  return {
    problem,
    test: (row) => !problem && (!chosen.size || chosen.has(openmaia.place(row).layer.toLowerCase())) && (!asked.length || answering(row).length > 0),
    focus: (row) => Math.max(0, ...answering(row).map(focus)),
  };
};
