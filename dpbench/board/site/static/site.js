// Glue between the page and its libraries: the theme's button, tables, filters, charts, copying. All content is text.
"use strict";
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const data = (id) => JSON.parse(document.getElementById(id).textContent);

  // Theme ------------------------------------------------------------------------------------------------------------
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const button = document.getElementById("theme");
  const themed = () => {
    button.setAttribute("aria-pressed", String(dark()));
    drawAll();
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try {
      localStorage.setItem("dpbench-theme", root.dataset.theme);
    } catch {
      // Storage is refused: the choice holds for this page.
    }
    themed();
  });
  system.addEventListener("change", themed);
  button.hidden = false;

  // Charts -----------------------------------------------------------------------------------------------------------
  const drawn = new Map();
  const look = (width) => {
    const style = getComputedStyle(root);
    const value = (name) => style.getPropertyValue(name).trim();
    const [ink, quiet, line, font] = [value("--ink-now"), value("--quiet-now"), value("--line-now"), value("--font")];
    const words = { labelColor: quiet, titleColor: ink, labelFont: font, titleFont: font };
    return {
      background: "transparent",
      view: { stroke: null },
      axis: {
        ...words, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", titlePadding: 10,
        gridColor: line, domainColor: line, tickColor: line,
      },
      legend: { ...words, labelFontSize: 12, labelLimit: 160, symbolSize: 80, rowPadding: 4, columnPadding: 12, columns: Math.max(1, Math.floor(width / 125)) },
      // Marks without a colour of their own.
      line: { color: quiet }, point: { color: ink }, rule: { color: quiet }, text: { color: quiet, font, fontSize: 12 },
    };
  };
  const draw = async (place) => {
    drawn.get(place)?.finalize();
    const result = await vegaEmbed(place, data(place.dataset.spec), {
      actions: false, ast: true, config: look(place.clientWidth), defaultStyle: false, mode: "vega-lite", renderer: "svg",
      tooltip: { disableDefaultStyle: true, theme: "page" },
    });
    drawn.set(place, result);
    const picture = place.querySelector("svg");
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", `Chart: ${place.dataset.label}. Its data are in the table below it.`);
    for (const part of picture.querySelectorAll("[role], [aria-label], [aria-roledescription]"))
      for (const name of ["role", "aria-label", "aria-roledescription"]) part.removeAttribute(name);
  };
  const watch = new IntersectionObserver((seen) => {
    for (const one of seen.filter((entry) => entry.isIntersecting)) {
      watch.unobserve(one.target);
      draw(one.target);
    }
  }, { rootMargin: "400px" });
  const drawAll = () => {
    for (const place of drawn.keys()) draw(place);
  };

  // Tables -----------------------------------------------------------------------------------------------------------
  const language = { search: "Search", info: "_START_–_END_ of _TOTAL_", infoEmpty: "nothing", infoFiltered: "(of _MAX_)" };
  const long = { topStart: "search", topEnd: null, bottomStart: "info", bottomEnd: "paging" };
  const short = { topStart: null, topEnd: null, bottomStart: null, bottomEnd: null };
  const enhance = (table) => {
    const count = table.tBodies[0].rows.length;
    const layout = count > 12 ? (count > 50 ? long : { ...long, bottomEnd: null }) : short;
    new DataTable(table, {
      autoWidth: false, language, layout, order: [], pageLength: 50, paging: count > 50,
      columnDefs: [{ targets: ".plain", orderable: false, searchable: false }],
    });
  };

  // All entries ------------------------------------------------------------------------------------------------------
  // DataTables takes strings for HTML, to show them and to search them: it gets them escaped, and nodes for links.
  const escaped = (value) => DataTable.render.text().display(value);
  const word = (value, type) => (type === "display" || type === "filter" ? escaped(value) : value);
  const budget = (value, type) => (type === "display" ? escaped(value) : Number(value.replace("∞", "Infinity")));
  const rank = (value, type) => (type === "display" ? (value ?? "–") : (value ?? 1e9));
  const seconds = (value, type) => (type === "display" ? value.toFixed(2) : value);
  const link = (columns) => (value, type, row) => {
    if (type !== "display") return word(value, type);
    const anchor = document.createElement("a");
    anchor.href = `entries/${encodeURIComponent(row[columns.board])}/${encodeURIComponent(row[columns.id])}.html`;
    anchor.textContent = value;
    return anchor;
  };
  const score = (half) => (value, type, row) => {
    if (type !== "display") return value ?? -1;
    if (value === null) return "–";
    return row[half] === null ? value.toFixed(2) : `${value.toFixed(2)} ± ${row[half].toFixed(2)}`;
  };
  const entries = (table) => {
    const { boards, rows } = data("rows");
    const columns = { learner: 0, score: 1, rank: 2, epsilon: 3, board: 4, dataset: 5, extractor: 6, selection: 7, seconds: 8, half: 9, id: 10 };
    const all = rows.map(([board, learner, mean, half, rank, selection, seconds, id]) => {
      const [name, dataset, extractor, epsilon] = boards[board];
      return [learner, mean, rank, epsilon, name, dataset, extractor, selection, seconds, half, id];
    });
    table.tBodies[0].replaceChildren();
    const shown = (data, render, more = {}) => ({ data, render, searchable: false, type: "string", ...more });
    const api = new DataTable(table, {
      autoWidth: false, data: all, deferRender: true, language, order: [], pageLength: 25,
      layout: { topStart: "search", topEnd: null, bottomStart: "info", bottomEnd: "paging" },
      columns: [
        shown(columns.learner, link(columns), { cellType: "th", searchable: true }),
        shown(columns.score, score(columns.half), { className: "number", type: "num" }),
        shown(columns.rank, rank, { className: "number", type: "num" }),
        shown(columns.epsilon, budget, { className: "number", type: "num" }),
        shown(columns.board, word, { className: "name", searchable: true }),
        shown(columns.dataset, word, { className: "name" }),
        shown(columns.extractor, word, { className: "name" }),
        shown(columns.selection, word, { className: "name" }),
        shown(columns.seconds, seconds, { className: "number", type: "num" }),
      ],
    });
    const form = document.getElementById("filters");
    const fields = [...form.querySelectorAll("select")];
    let wanted = [];
    api.search.fixed("filters", (_, row) => wanted.every(([column, value]) => row[column] === value));
    const filter = () => {
      wanted = fields.filter((field) => field.value !== "").map((field) => [Number(field.dataset.column), field.value]);
      api.draw();
    };
    form.addEventListener("change", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    const named = new URLSearchParams(location.hash.slice(1)).get("board");
    const boardField = fields.find((field) => Number(field.dataset.column) === columns.board);
    if (named !== null && boardField && [...boardField.options].some((option) => option.value === named)) {
      boardField.value = named;
      filter();
      document.getElementById("entries").scrollIntoView();
    }
  };

  // Copying ----------------------------------------------------------------------------------------------------------
  const copy = async (control) => {
    const text = control.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(text.textContent);
      control.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text); // the clipboard is refused: one key does the rest
      control.textContent = "Selected";
    }
    setTimeout(() => (control.textContent = "Copy"), 2000);
  };
  for (const control of document.querySelectorAll("button.copy")) {
    control.hidden = false;
    control.addEventListener("click", () => copy(control));
  }

  themed();
  for (const table of document.querySelectorAll("table.sortable")) enhance(table);
  const all = document.getElementById("all");
  if (all) entries(all);
  for (const place of document.querySelectorAll(".plot")) watch.observe(place);
})();
