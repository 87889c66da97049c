"use strict";
// What words mean, as `openmaia/analysis/search.py` reads them: a thing is a set of names, and a label answers a thing of a question
// if both have a name in common. The words come with the data, because a page opened from a folder can ask nobody.
const PHRASE = 6, READ = 5000; // words of a phrase that is looked for, and characters of a text that are read, at most

function stemWord(word) {
  if (word.length <= 3 || /(?:ss|us|is)$/.test(word)) return word;
  if (word.endsWith("ies")) return `${word.slice(0, -3)}y`;
  const singular = word.replace(/s$/, "");
  return singular.length > 3 ? singular.replace(/e$/, "") : singular;
}

openmaia.singular = (phrase) => phrase.split(/\s+/).filter(Boolean).map(stemWord).join(" ");

// The things that a text names, without what it denies ("boat without night"): [phrase, its names].
openmaia.things = (text) => {
  const { lexicon, stop, denials } = openmaia.table.language, found = [];
  const words = text.slice(0, READ).toLowerCase().match(/[\p{L}\p{N}_]+|[,;.:!?]/gu) ?? [];
  let isDenied = false;
  for (let at = 0; at < words.length;) {
    if (/^[,;.:!?]$/.test(words[at])) { isDenied = false; at += 1; continue; }
    let length = Math.min(PHRASE, words.length - at), phrase = "", names;
    for (; length > 0; length -= 1) {
      phrase = words.slice(at, at + length).join(" ");
      names = meaning(lexicon, openmaia.singular(phrase));
      if (names || length === 1) break;
    }
    isDenied ||= denials.includes(phrase);
    if (!isDenied && (names || !stop.includes(phrase))) found.push([phrase, names ?? [openmaia.singular(phrase)]]);
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
  return (row) => {
    const text = openmaia.texts[row];
    return Boolean(text) && (text.search.includes(word) || (names.size > 0 && statements(text).some((each) => each.some((own) => own.some((name) => names.has(name))))));
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
openmaia.question = (words) => {
  const layers = new Set(openmaia.table.places.map((place) => place.layer.toLowerCase()));
  const kept = [], chosen = new Set();
  for (const word of words) {
    const plain = word.replace(/^[?,;.!:]+|[?,;.!:]+$/g, "").toLowerCase();
    const isCued = /^(?:of|in|from|layers?)$/i.test(kept.at(-1) ?? "");
    if (layers.has(plain) && (isCued || !/^\p{L}+$/u.test(plain))) chosen.add(plain);
    else kept.push(word);
  }
  const { asking, covered } = openmaia.table.language, found = openmaia.things(kept.join(" "));
  const things = found.filter(([phrase]) => !asking.includes(phrase)), asked = (things.length || chosen.size ? things : found.slice(-1)).map(([, names]) => names);
  const cover = (label) => asked.filter((names) => label.some((own) => own.some((name) => names.includes(name)))).length / (asked.length || 1);
  const focus = (label) => label.filter((own) => asked.some((names) => own.some((name) => names.includes(name)))).length / label.length;
  const answering = (row) => (openmaia.texts[row] ? statements(openmaia.texts[row]).filter((label) => cover(label) > 0 && cover(label) >= covered) : []);
  return {
    test: (row) => (!chosen.size || chosen.has(openmaia.place(row).layer.toLowerCase())) && (!asked.length || answering(row).length > 0),
    focus: (row) => Math.max(0, ...answering(row).map(focus)),
  };
};
