"use strict";
const form = document.querySelector(".filters");
const rows = [...document.querySelectorAll("tbody tr")].map((row) => ({
  row,
  cases: [...row.querySelectorAll(".cases li")],
  own: row.cells[0].textContent.toLowerCase(),
}));

// Shows the requirements and cases that fit all filters. A text fits a requirement with all its cases, or single cases.
const filter = () => {
  const value = Object.fromEntries(new FormData(form));
  const text = value.text.trim().toLowerCase();
  let requirements = 0;
  for (const { row, cases, own } of rows) {
    const fits = ["level", "kind", "specification"].every((name) => !value[name] || row.dataset[name] === value[name]);
    let some = false;
    for (const item of cases) {
      const has = !text || own.includes(text) || item.textContent.toLowerCase().includes(text);
      item.hidden = !(fits && has && (!value.verdict || item.className === value.verdict));
      some ||= !item.hidden;
    }
    row.hidden = !some;
    requirements += some ? 1 : 0;
  }
  form.querySelector("output").value = `${requirements} of ${rows.length} requirements`;
};
form.hidden = false;
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
filter();

if (navigator.clipboard) {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
      button.textContent = "Copied";
    });
  }
}

// A link to a failure opens it.
const open = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.matches("details")) {
    target.open = true;
    target.querySelector("summary").focus();
  }
};
addEventListener("hashchange", open);
open();

// On paper all failures are open.
const closed = () => document.querySelectorAll("details:not([open])");
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...closed()];
  for (const details of opened) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of opened) details.open = false;
});
