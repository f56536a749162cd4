// Tables are sorted and filtered; all else is there without this file. Nothing is fetched, nothing is kept.
"use strict";
(() => {
  const MOST = 200; // rows of a filtered table that are drawn at once

  const value = (cell) => {
    const given = cell.dataset.order ?? cell.textContent.trim();
    const number = Number(given);
    return given !== "" && Number.isFinite(number) ? number : given.toLowerCase();
  };
  const compare = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);

  // Each result is a tbody of its own, so that what belongs to it moves along.
  const sort = (table, heads, head) => {
    const column = [...head.parentElement.children].indexOf(head);
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const bodies = [...table.tBodies].map((body) => [value(body.rows[0].cells[column]), body]);
    bodies.sort(([a], [b]) => (down ? compare(b, a) : compare(a, b)));
    table.append(...bodies.map(([, body]) => body));
    table.dispatchEvent(new Event("sorted"));
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells].filter((head) => !head.querySelector(".hidden, svg"));
    for (const head of heads) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sort(table, heads, head));
    }
  }

  for (const form of document.querySelectorAll("form.filters")) {
    const table = document.getElementById(form.getAttribute("data-for")); // fields hide properties of their names
    const search = form.querySelector("[type=search]");
    const selects = [...form.querySelectorAll("select")];
    const output = form.querySelector("output");
    let rows = [];
    const read = () => {
      rows = [...table.tBodies].map((body) => {
        const cells = [...body.rows[0].cells].map((cell) => cell.textContent.trim());
        return { body, cells, all: cells.join("\n").toLowerCase(), shown: !body.hidden };
      });
    };
    const filter = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const wanted = selects.filter((one) => one.value).map((one) => [Number(one.dataset.column), one.value]);
      let found = 0;
      for (const row of rows) {
        const fits = wanted.every(([column, said]) => row.cells[column] === said) && words.every((one) => row.all.includes(one));
        found += fits;
        const shown = fits && found <= MOST;
        if (shown !== row.shown) row.body.hidden = !shown;
        row.shown = shown;
      }
      output.textContent = `${found.toLocaleString("en")} results${found > MOST ? `, the first ${MOST} shown` : ""}`;
    };
    const address = () => {
      const kept = new URLSearchParams();
      for (const field of [search, ...selects]) if (field.value) kept.set(field.name, field.value);
      history.replaceState(null, "", kept.size ? `#${kept}` : location.pathname + location.search);
    };
    const restore = () => {
      const kept = new URLSearchParams(location.hash.slice(1));
      for (const field of [search, ...selects]) field.value = kept.get(field.name) ?? "";
      filter();
    };
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => {
      filter();
      address();
    });
    table.addEventListener("sorted", () => {
      read();
      filter();
    });
    window.addEventListener("hashchange", restore);
    read();
    restore();
    form.hidden = false;
  }
})();
