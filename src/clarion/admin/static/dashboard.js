// What every page needs: times in the zone of the reader, choices that submit, dialogs, set-up links.

const SHORT = new Intl.DateTimeFormat(undefined, {
  day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit",
});
const EXACT = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3,
});

function showTimes(root) {
  for (const element of root.querySelectorAll("time[data-show]")) {
    const moment = new Date(element.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    element.title = element.dateTime;
    element.textContent = (element.dataset.show === "exact" ? EXACT : SHORT).format(moment);
    delete element.dataset.show;
  }
}

function submitOnChange(event) {
  const element = event.target.closest?.("[data-submit]");
  if (element) element.form.requestSubmit();
}

// A button with `data-dialog="id"` opens that dialog; one with `data-close` closes its own.
function useDialogs(event) {
  const button = event.target.closest?.("[data-dialog], [data-close]");
  if (!button) return;
  if (button.dataset.dialog) document.getElementById(button.dataset.dialog).showModal();
  else button.closest("dialog").close();
}

// The token of a set-up link is in the fragment: into the form, and out of the address.
function takeFragment() {
  const place = document.querySelector("[data-fragment]");
  if (!place || location.hash.length < 2) return;
  place.querySelector("input").value = decodeURIComponent(location.hash.slice(1));
  place.hidden = true;
  history.replaceState(null, "", location.pathname);
  document.querySelector("#f-username").focus();
}

document.addEventListener("change", submitOnChange);
document.addEventListener("click", useDialogs);
document.addEventListener("htmx:afterSwap", (event) => showTimes(event.detail.elt.parentElement ?? document));
showTimes(document);
takeFragment();
