"use strict";
(() => {
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, text: row.textContent.toLowerCase() }));
  const controls = ["search", "run", "layer", "stop"].map((id) => document.getElementById(id)).filter(Boolean);

  function filter() {
    const words = document.getElementById("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const { row, text } of rows) {
      const chosen = controls.every((c) => c.id === "search" || !c.value || row.dataset[c.id] === c.value);
      row.hidden = !(chosen && words.every((word) => text.includes(word)));
      shown += row.hidden ? 0 : 1;
    }
    document.getElementById("count").textContent = `${shown} of ${rows.length}`;
    document.getElementById("nothing").hidden = shown > 0;
  }

  function value(row, column) {
    const cell = row.cells[column];
    return cell.dataset.sort ?? cell.textContent.trim();
  }

  // Cells without a value come last, whichever way the others go.
  function sort(header) {
    const way = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    const isNumber = header.classList.contains("number");
    const sign = way === "ascending" ? 1 : -1;
    const keyed = rows.map(({ row }) => ({ row, key: value(row, header.cellIndex) }));
    keyed.sort((a, b) => {
      if (a.key === "" || b.key === "") return (a.key === "") - (b.key === "");
      return sign * (isNumber ? a.key - b.key : a.key.localeCompare(b.key, undefined, { numeric: true }));
    });
    for (const other of table.tHead.rows[0].cells) {
      if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", other === header ? way : "none");
    }
    body.append(...keyed.map(({ row }) => row));
  }

  for (const control of controls) control.addEventListener("input", filter);
  document.querySelector("form.filters").addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("clear").addEventListener("click", () => {
    for (const control of controls) control.value = "";
    filter();
  });
  for (const button of table.tHead.querySelectorAll("button")) {
    button.addEventListener("click", () => sort(button.closest("th")));
  }
  filter(); // a browser that comes back to the page has kept what was typed
})();
