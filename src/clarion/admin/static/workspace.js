// The preview of an email in its frame, copies of secrets, and what a browser remembers of a form.

function showMail() {
  const frame = document.querySelector("iframe[data-mail]");
  const button = document.getElementById("mail-button");
  if (frame && button) button.form.requestSubmit(button);
}

async function copyText(event) {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  source.select();
  try {
    await navigator.clipboard.writeText(source.value);
  } catch {
    return; // It is selected: the keys for copying do the rest.
  }
  button.textContent = "Copied";
}

// A field in `data-remember` is filled with what was last sent from this browser.
function remember() {
  for (const place of document.querySelectorAll("[data-remember]")) {
    const input = place.querySelector("input");
    if (!input.value) input.value = localStorage.getItem(place.dataset.remember) ?? "";
    input.addEventListener("change", () => localStorage.setItem(place.dataset.remember, input.value));
  }
}

// A form that was refused is shown again with what is wrong, as without htmx.
function showRefused(event) {
  if (event.detail.xhr.status < 400 || event.detail.xhr.status >= 500) return;
  event.detail.shouldSwap = true;
  event.detail.isError = false;
}

// The numbers of the lines beside a source; that of the line with the fault is marked.
function markFault() {
  const source = document.querySelector("textarea.source");
  if (!source) return;
  const fault = document.querySelector("#n-body.wrong, #preview .warning")?.textContent ?? "";
  const place = /\(line (\d+), column (\d+)\)/.exec(fault);
  const line = place ? Number(place[1]) : 0;
  const numbers = source.parentElement.querySelector(".line-numbers") ?? addNumbers(source);
  numbers.replaceChildren(...source.value.split("\n").map((_text, index) => {
    const number = document.createElement("li");
    number.textContent = String(index + 1);
    if (index + 1 === line) number.className = "marked";
    return number;
  }));
  const button = source.parentElement.querySelector(".go");
  button.hidden = !place;
  button.textContent = place ? `Go to line ${line}, column ${place[2]}` : "";
  button.dataset.place = place ? `${line}:${place[2]}` : "";
}

function addNumbers(source) {
  const numbers = document.createElement("ol");
  numbers.className = "line-numbers";
  numbers.setAttribute("aria-hidden", "true");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "link go";
  button.addEventListener("click", () => goTo(source, button.dataset.place));
  const frame = document.createElement("div");
  frame.className = "numbered";
  source.replaceWith(frame);
  source.wrap = "off";
  frame.append(numbers, source, button);
  source.addEventListener("scroll", () => (numbers.scrollTop = source.scrollTop));
  source.addEventListener("input", markFault);
  return numbers;
}

// Select from the place to the end of its line, so that it is seen.
function goTo(source, place) {
  const [line, column] = place.split(":").map(Number);
  const lines = source.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  // A column is a character, which is two units of the text for an emoji.
  const before = [...(lines[line - 1] ?? "")].slice(0, column - 1).join("").length;
  source.focus();
  source.setSelectionRange(start + before, start + (lines[line - 1] ?? "").length);
}

document.addEventListener("click", copyText);
document.addEventListener("htmx:beforeSwap", showRefused);
document.addEventListener("htmx:afterSettle", (event) => {
  if (event.detail.target?.id === "preview" || event.detail.elt?.id === "preview") showMail();
});
document.addEventListener("htmx:afterSettle", markFault);
showMail();
markFault();
remember();
