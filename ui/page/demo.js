// What the page does without asking the server: open and close the origin of a hint, keys, and nothing else.
(() => {
  let chosen = ""; // the number of the hint whose origin is open
  let opener = null; // what had the focus when it was opened

  const set = (element, name, value) => {
    if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  };

  // The server draws everything closed: after each drawing the open one is opened again.
  const draw = () => {
    const text = document.querySelector("#source textarea");
    if (text) set(text, "dir", "auto"); // its own letters say which way the text runs
    const swap = document.getElementById("swap");
    if (swap) set(swap, "aria-label", "Swap the languages");
    for (const panel of document.querySelectorAll("[data-origin]")) {
      const hidden = panel.dataset.origin !== chosen;
      if (panel.hidden !== hidden) panel.hidden = hidden;
    }
    for (const button of document.querySelectorAll("[data-hint]")) {
      set(button, "aria-expanded", String(button.dataset.hint === chosen));
    }
    for (const row of document.querySelectorAll("[data-hint-row]")) {
      row.classList.toggle("mt-chosen", row.dataset.hintRow === chosen);
    }
  };

  const close = () => {
    chosen = "";
    draw();
    if (opener && opener.isConnected) opener.focus();
    opener = null;
  };

  const open = (button) => {
    chosen = button.dataset.hint;
    opener = button;
    draw();
    const panel = document.querySelector(`[data-origin="${chosen}"]`);
    if (!panel) return;
    panel.focus({ preventScroll: true });
    panel.scrollIntoView({ block: "nearest" });
  };

  // The clipboard of the browser needs a secure page; the old way works on any.
  const copy = async (button) => {
    const text = button.dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      button.focus();
    }
    button.textContent = "✓ Copied";
    setTimeout(() => {
      button.textContent = "Copy";
    }, 2000);
  };

  // Files that are too large are refused here, in one sentence: the server would cut their upload off.
  const refuse = (event, files) => {
    const field = event.target.closest("#document-file, #index-files");
    const notice = field && document.querySelector(`[data-refusal="${field.id}"]`);
    if (!notice || !files || !files.length) return;
    const bytes = [...files].reduce((sum, file) => sum + file.size, 0);
    const most = Number(notice.dataset.mostBytes);
    notice.hidden = bytes <= most;
    if (notice.hidden) return;
    const what = files.length > 1 ? `${files.length} files` : files[0].name;
    notice.textContent = `Not done: ${what} of ${megabytes(bytes)} MB cannot be taken: choose at most ${megabytes(most)} MB.`;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (event.target.matches("input")) event.target.value = "";
  };

  const megabytes = (bytes) => String(Math.ceil(bytes / 1e5) / 10);

  const stay = (event) => {
    const start = event.target.closest("#document-start, #index-start");
    const refusal = start && start.closest('[role="tabpanel"]').querySelector("[data-refusal]:not([hidden])");
    if (refusal) event.stopImmediatePropagation(); // the reason stands there already
  };

  window.addEventListener("click", stay, true);
  window.addEventListener("change", (event) => refuse(event, event.target.files), true);
  window.addEventListener("drop", (event) => refuse(event, event.dataTransfer && event.dataTransfer.files), true);

  const press = (id) => {
    const button = document.getElementById(id);
    if (button && !button.disabled) button.click();
  };

  document.addEventListener("click", (event) => {
    const row = event.target.closest("button") ? null : event.target.closest("[data-hint-row]");
    const pressed = event.target.closest("[data-hint], [data-close], [data-copy]");
    const button = row ? row.querySelector("[data-hint]") : pressed; // a row is pressed wherever it has no button
    if (button && button.dataset.copy) {
      copy(button);
    } else if (button) {
      if (button.dataset.close || button.dataset.hint === chosen) close();
      else open(button);
    } else if (event.target.closest("#translate, #swap")) {
      chosen = "";
      opener = null;
    }
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.closest("#source")) {
      event.preventDefault();
      press("translate");
    } else if (event.key === "Escape") {
      if (chosen) close();
      else press("stop");
    }
  });

  new MutationObserver(draw).observe(document.documentElement, {
    subtree: true,
    childList: true,
    attributeFilter: ["hidden", "dir", "aria-expanded", "data-hint", "data-origin"],
  });
})();
