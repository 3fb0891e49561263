// What every page needs: times in the zone of the reader, choices that submit, dialogs, set-up links.

const SHORT = new Intl.DateTimeFormat(undefined, {
  day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const EXACT = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23",
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

// A password that is set is typed once: *Show* says what it is.
function showPassword(event) {
  const button = event.target.closest?.("[data-show-password]");
  if (!button) return;
  const input = document.getElementById(button.dataset.showPassword);
  const isShown = input.type === "password";
  input.type = isShown ? "text" : "password";
  button.setAttribute("aria-pressed", String(isShown));
}

// A dialog whose form was refused is open again, with what is wrong.
function openRefused() {
  document.querySelector("dialog[data-open]")?.showModal();
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

// The box in the head of a table checks all of its column.
function checkAll(event) {
  const name = event.target.dataset?.checkAll;
  if (!name) return;
  for (const box of event.target.form.querySelectorAll(`input[name="${name}"]`)) box.checked = event.target.checked;
}

// Some answers of the API are files: a link cannot name the app, which is a header.
async function download(event) {
  const button = event.target.closest?.("[data-download]");
  if (!button) return;
  button.disabled = true;
  try {
    const answer = await fetch(button.dataset.download, { headers: { "Clarion-App": button.dataset.app } });
    if (!answer.ok) throw new Error((await answer.json()).detail);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = button.dataset.name;
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (error) {
    alert(error.message);
  } finally {
    button.disabled = false;
  }
}

// The second click of a double click would send a form again.
function ignoreDoubleClick(event) {
  const isRepeat = event.detail > 1 && event.target.closest?.("form[method=post] button:not([type=button])");
  if (isRepeat) event.preventDefault();
}

document.addEventListener("click", ignoreDoubleClick);
document.addEventListener("change", submitOnChange);
document.addEventListener("change", checkAll);
document.addEventListener("click", download);
document.addEventListener("click", useDialogs);
document.addEventListener("click", showPassword);
document.addEventListener("htmx:afterSwap", (event) => showTimes(event.detail.elt.parentElement ?? document));
showTimes(document);
openRefused();
takeFragment();
