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
