// Small additions to pages that also work without script: showing a password, and copying a command.
(() => {
  "use strict";
  for (const label of document.querySelectorAll("label[data-shows]")) {
    const field = document.getElementById(label.dataset.shows);
    const box = label.querySelector("input");
    const show = () => { field.type = box.checked ? "text" : "password"; };
    label.hidden = false;
    box.addEventListener("change", show);
    // Some browsers store what is typed in a visible field.
    field.form.addEventListener("submit", () => { box.checked = false; show(); });
  }
  for (const button of document.querySelectorAll("button[data-copies]")) {
    if (!navigator.clipboard) continue;
    const label = button.textContent;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
      button.textContent = button.dataset.done;
      setTimeout(() => { button.textContent = label; }, 2000);
    });
  }
})();
