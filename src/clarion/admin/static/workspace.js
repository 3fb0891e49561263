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

document.addEventListener("click", copyText);
document.addEventListener("htmx:beforeSwap", showRefused);
document.addEventListener("htmx:afterSettle", (event) => {
  if (event.detail.target?.id === "preview" || event.detail.elt?.id === "preview") showMail();
});
showMail();
remember();
