// Tables are sorted and filtered, and two learners compared; all else is there without this file. Nothing is fetched or kept.
"use strict";
(() => {
  const MOST = 100; // rows of a filtered table that are drawn at once

  const value = (cell) => {
    const given = cell.dataset.order ?? cell.textContent.trim();
    const number = Number(given);
    return given !== "" && Number.isFinite(number) ? number : given.toLowerCase();
  };
  const compare = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);

  // A column goes by its name; where it stands is looked up.
  const place = (table, name) =>
    [...table.tHead.rows[0].cells].findIndex((head) => head.getAttribute("data-column") === name);

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

  for (const form of document.querySelectorAll("form.filters[data-for]")) {
    const table = document.getElementById(form.getAttribute("data-for")); // fields hide properties of their names
    const search = form.querySelector("[type=search]");
    const selects = [...form.querySelectorAll("select")];
    const output = form.querySelector("output");
    const more = document.createElement("button");
    more.type = "button";
    more.hidden = true;
    output.after(more);
    let rows = [];
    let most = MOST;
    const read = () => {
      rows = [...table.tBodies].map((body) => {
        const cells = [...body.rows[0].cells].map((cell) => cell.textContent.trim());
        return { body, cells, all: cells.join("\n").toLowerCase(), shown: !body.hidden };
      });
    };
    const filter = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const wanted = selects.filter((one) => one.value).map((one) => [place(table, one.dataset.column), one.value]);
      let found = 0;
      for (const row of rows) {
        const fits = wanted.every(([column, said]) => row.cells[column] === said) && words.every((one) => row.all.includes(one));
        found += fits;
        const shown = fits && found <= most;
        if (shown !== row.shown) row.body.hidden = !shown;
        row.shown = shown;
      }
      output.textContent = `${found.toLocaleString("en")} results${found > most ? `, the first ${most} shown` : ""}`;
      more.hidden = found <= most;
      more.textContent = `Show all ${found.toLocaleString("en")}`;
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
      most = MOST;
      filter();
      address();
    });
    more.addEventListener("click", () => {
      most = Infinity;
      filter();
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

  for (const form of document.querySelectorAll("form[data-compare]")) {
    const table = document.getElementById(form.getAttribute("data-compare"));
    const answer = document.getElementById(`${table.id}-answer`);
    const selects = [...form.querySelectorAll("select")];
    const [board, gap, ranks] = ["board", "difference", "ranks"].map((name) => place(table, name));
    const points = (value) => Math.abs(value).toFixed(2);
    const show = () => {
      const [a, b] = selects.map((one) => place(table, `learner ${one.value}`));
      const names = selects.map((one) => one.selectedOptions[0].text);
      const gaps = [];
      let tied = 0;
      let mixed = false; // ranks of a learner that reads public labels, and of one that does not
      for (const row of [table.tHead.rows[0], ...[...table.tBodies].map((body) => body.rows[0])]) {
        [...row.cells].forEach((cell, at) => (cell.hidden = ![board, a, b, gap, ranks].includes(at)));
        if (row.parentElement === table.tHead) continue;
        const [first, second] = [row.cells[a].dataset, row.cells[b].dataset];
        const both = first.order !== undefined && second.order !== undefined;
        const difference = 100 * (first.order - second.order);
        row.cells[gap].textContent = both ? `${difference < 0 ? "\u2212" : "+"}${points(difference)}` : "\u2013";
        row.cells[gap].dataset.order = both ? difference : -1000;
        row.cells[ranks].textContent = both ? `${first.rank} and ${second.rank}` : "\u2013";
        if (both) gaps.push(difference);
        tied += both && first.rank === second.rank;
        mixed ||= both && first.rank.endsWith("with labels") !== second.rank.endsWith("with labels");
      }
      const higher = gaps.filter((one) => one > 0).length;
      const mean = gaps.reduce((sum, one) => sum + one, 0) / gaps.length;
      answer.textContent = gaps.length
        ? `${names[0]} scores higher than ${names[1]} on ${higher} of the ${gaps.length} boards that have both. ` +
          (mixed ? "" : `They share a rank on ${tied}. `) +
          `On average ${names[0]} is ${points(mean)} points ${mean < 0 ? "lower" : "higher"}.`
        : `No board has both ${names[0]} and ${names[1]}.`;
    };
    const restore = () => {
      const kept = new URLSearchParams(location.hash.slice(1));
      for (const one of selects) {
        const wanted = [...one.options].find((option) => option.text === kept.get(one.name));
        if (wanted) wanted.selected = true;
      }
      if (selects[0].value === selects[1].value) selects[1].selectedIndex = selects[0].selectedIndex ? 0 : 1;
      show();
    };
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => {
      show();
      const kept = new URLSearchParams(selects.map((one) => [one.name, one.selectedOptions[0].text]));
      history.replaceState(null, "", `#${kept}`);
    });
    window.addEventListener("hashchange", restore);
    restore();
    form.hidden = false;
  }
})();
