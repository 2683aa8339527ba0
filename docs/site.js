// The search of the site: the words of each section and of each row of a table are in search.js.
"use strict";
const box = document.getElementById("search");
const list = document.getElementById("found");
const root = document.body.dataset.root;
let loading = null;

function load() {
  loading ??= new Promise((done) => {
    const script = document.createElement("script");
    script.src = root + "search.js";
    script.onload = done;
    document.head.append(script);
  });
  return loading;
}

// How well an entry fits the words: 0 if it lacks one of them.
function fit([, , title, where, text], words) {
  let sum = 0;
  for (const word of words) {
    const name = title.toLowerCase();
    if (name === word) sum += 100;
    else if (name.startsWith(word)) sum += 30;
    else if (name.includes(word)) sum += 20;
    else if (where.toLowerCase().includes(word)) sum += 5;
    else if (text.toLowerCase().includes(word)) sum += 1;
    else return 0;
  }
  return sum;
}

function around(text, words) {
  const places = words.map((word) => text.toLowerCase().indexOf(word)).filter((n) => n >= 0);
  const begin = Math.max(0, Math.min(...places, text.length) - 40);
  return (begin ? "… " : "") + text.slice(begin, begin + 160) + (begin + 160 < text.length ? " …" : "");
}

function item(entry, words) {
  const [path, anchor, title, where, text] = entry;
  const line = document.createElement("li");
  const link = document.createElement("a");
  link.href = root + path + (anchor && "#" + anchor);
  link.textContent = title === where ? title : `${title} (${where})`;
  const said = document.createElement("small");
  said.textContent = around(text, words);
  line.append(link, said);
  return line;
}

async function search() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length) await load();
  const found = (words.length ? window.ENTRIES : [])
    .map((entry, place) => [fit(entry, words), place, entry])
    .filter(([sum]) => sum)
    .sort((a, b) => b[0] - a[0] || a[1] - b[1])
    .slice(0, 25);
  list.replaceChildren(...found.map(([, , entry]) => item(entry, words)));
  if (words.length && !found.length) list.textContent = "Nothing has all of these words.";
  list.hidden = !words.length;
}

box.addEventListener("focus", load);
box.addEventListener("input", search);
list.addEventListener("click", (event) => {
  if (event.target.closest("a")) list.hidden = true;
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== box) {
    event.preventDefault();
    box.focus();
  }
  if (event.key === "Escape") list.hidden = true;
  if (event.key === "Enter" && document.activeElement === box) list.querySelector("a")?.click();
});
