// Sorts a table by the column whose heading is pressed; what is absent stays at the end.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const key = (row, at) => {
    const { order } = row.cells[at].dataset, text = row.cells[at].textContent.trim();
    return order !== undefined ? Number(order) : text.startsWith("—") ? null : text;
  };
  const compare = (one, other) =>
    typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const one of heads) one.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const rows = [...body.rows].map((row) => [key(row, at), row]);
      const known = rows.filter(([one]) => one !== null).sort(([one], [other]) => sign * compare(one, other));
      body.append(...[...known, ...rows.filter(([one]) => one === null)].map(([, row]) => row));
    });
  });
}
document.documentElement.dataset.drawn = "0";
