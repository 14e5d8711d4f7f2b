// Sorts tables, picks features and candidates, and shows single rows. The page works without it.
(function () {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";
  const data = JSON.parse(document.getElementById("data").textContent);

  // Names are data. They reach the page only as text, through this function.
  function make(tag, attributes, children) {
    const isSvg = ["svg", "rect", "text"].includes(tag);
    const element = isSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    element.append(...(children || []));
    return element;
  }

  function valueOf(row, column) {
    const cell = row.cells[column];
    const text = cell.dataset.value === undefined ? cell.textContent.trim() : cell.dataset.value;
    const number = Number(text);
    return text === "" ? null : Number.isNaN(number) ? text : number;
  }

  // Missing values stay last in both directions.
  function compare(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
  }

  function sortBy(table, header) {
    const direction = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    const sign = direction === "ascending" ? 1 : -1;
    const column = header.cellIndex;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", direction);
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, (row) => ({ row, value: valueOf(row, column) }));
    rows.sort((a, b) => compare(a.value, b.value, sign));
    body.append(...rows.map((item) => item.row));
  }

  function makeSortable(table) {
    for (const header of table.tHead.rows[0].cells) {
      if (!header.dataset.sort) continue;
      const button = make("button", { type: "button" }, Array.from(header.childNodes));
      button.addEventListener("click", () => sortBy(table, header));
      header.append(button);
    }
  }

  function showControl(id) {
    const control = document.getElementById(id);
    if (control) control.closest(".control").hidden = false;
    return control;
  }

  function pickFeature() {
    const select = showControl("pick-feature");
    if (!select) return;
    const figures = document.querySelectorAll("[data-effect]");
    const show = () => {
      for (const figure of figures) figure.hidden = figure.dataset.effect !== select.value;
    };
    select.addEventListener("change", show);
    show();
  }

  function pickMap() {
    const select = showControl("pick-map");
    if (!select) return;
    const cells = Array.from(document.querySelectorAll(".map .cell"), (group) => ({
      group,
      fill: group.querySelector(".fill"),
      text: group.querySelector("text"),
      title: group.querySelector("title"),
      before: [
        group.getAttribute("class"),
        group.querySelector(".fill").getAttribute("fill-opacity"),
        group.querySelector("text").textContent,
        group.querySelector("title").textContent,
      ],
    }));
    const draw = (cell, look) => {
      cell.group.setAttribute("class", look[0]);
      cell.fill.setAttribute("fill-opacity", look[1]);
      cell.text.textContent = look[2];
      cell.title.textContent = look[3];
    };
    const weightLook = (cell, candidate, weight) => {
      if (weight === null) return cell.before;
      const where = cell.before[3].slice(0, cell.before[3].lastIndexOf("):") + 1);
      return [
        `cell c${candidate.k}`,
        weight.toFixed(3),
        weight.toFixed(2).replace(/^0/, ""),
        `${where}: ${candidate.name} ${weight.toFixed(2)}`,
      ];
    };
    select.addEventListener("change", () => {
      cells.forEach((cell, place) => {
        if (select.value === "") return draw(cell, cell.before);
        const c = Number(select.value);
        draw(cell, weightLook(cell, data.map.series[c], data.map.weights[c][place]));
      });
    });
  }

  function chip(style) {
    const width = 12 + 8 * style.number.length;
    return make("svg", { class: "chip", width, height: 18, "aria-hidden": "true" }, [
      make("rect", { class: `fill ${style.colour}`, width: "100%", height: "100%", rx: 4 }),
      make("text", { class: `digit ${style.colour}`, x: "50%", y: "50%" }, [style.number]),
    ]);
  }

  function weightLine(style, weight) {
    const meter = make("svg", { class: "meter", height: 10, "aria-hidden": "true" }, [
      make("rect", { class: "track", width: "100%", height: "100%", rx: 3 }),
      make("rect", { class: `fill ${style.colour}`, width: `${100 * weight}%`, height: "100%", rx: 3 }),
    ]);
    const name = make("bdi", {}, [style.name]);
    return make("div", { class: "weight" }, [
      make("dt", {}, [chip(style), make("span", {}, [name])]),
      make("dd", {}, [meter, make("span", { class: "amount" }, [weight.toFixed(2)])]),
    ]);
  }

  function pair(name, value) {
    return make("div", {}, [
      make("dt", {}, [make("bdi", {}, [name])]),
      make("dd", {}, [make("bdi", {}, [value])]),
    ]);
  }

  function about(row) {
    const facts = [];
    if (row.prediction) facts.push(pair("prediction", row.prediction));
    if (row.target) facts.push(pair("target", row.target));
    facts.push(pair("support", row.support));
    row.features.forEach((value, k) => facts.push(pair(data.rows.features[k], value)));
    const ranked = row.weights
      .map((weight, c) => weightLine(data.rows.series[c], weight))
      .sort((a, b) => b.querySelector(".amount").textContent - a.querySelector(".amount").textContent);
    const region = data.rows.regions[row.region];
    return [
      make("p", { class: "title" }, ["Row ", make("bdi", {}, [row.index])]),
      ...(region ? [make("p", { class: "note" }, [`Region ${row.region + 1}: ${region}`])] : []),
      make("dl", {}, ranked),
      make("dl", { class: "facts" }, facts),
    ];
  }

  function pointAtRows() {
    const slider = showControl("pick-row");
    if (!slider) return;
    const panel = document.getElementById("row");
    const strip = document.querySelector(".strip");
    const pointer = strip.querySelector(".pointer");
    const n = data.rows.rows.length;
    let shown = -1;
    const show = (place) => {
      if (place === shown) return;
      shown = place;
      const row = data.rows.rows[place];
      slider.value = place;
      slider.setAttribute("aria-valuetext", `row ${row.index}`);
      pointer.setAttribute("x", `${(100 * place) / n}%`);
      pointer.setAttribute("visibility", "visible");
      panel.replaceChildren(...about(row));
    };
    slider.addEventListener("input", () => show(Number(slider.value)));
    strip.addEventListener("pointermove", (event) => {
      const box = strip.getBoundingClientRect();
      const place = Math.floor((n * (event.clientX - box.left)) / box.width);
      show(Math.min(n - 1, Math.max(0, place)));
    });
    panel.hidden = false;
    show(0);
  }

  // A click highlights one candidate in all charts; a second click shows all of them again.
  function pickCandidates() {
    const buttons = [];
    for (const item of document.querySelectorAll(".legend li[data-pick]")) {
      const button = make("button", { type: "button", "aria-pressed": "false" }, Array.from(item.childNodes));
      button.addEventListener("click", () => {
        const picked = document.body.dataset.pick === item.dataset.pick ? null : item.dataset.pick;
        if (picked === null) delete document.body.dataset.pick;
        else document.body.dataset.pick = picked;
        for (const [other, key] of buttons) other.setAttribute("aria-pressed", String(key === picked));
      });
      item.append(button);
      buttons.push([button, item.dataset.pick]);
    }
  }

  document.documentElement.classList.add("scripted");
  for (const element of document.querySelectorAll(".needs-script")) element.hidden = false;
  document.querySelectorAll("table.sortable").forEach(makeSortable);
  pickFeature();
  pickMap();
  pointAtRows();
  pickCandidates();
})();
