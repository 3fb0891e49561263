// The bell and this page act for the customer with tokens that the shop's own server signs.
const getToken = async () => {
  const response = await fetch("/clarion-token");
  if (!response.ok) throw new Error(`/clarion-token answered ${response.status}`);
  return response.text();
};
document.querySelector("clarion-inbox").getToken = getToken;

const button = document.querySelector("#push");
const status = document.querySelector("#status");
button.addEventListener("click", async () => {
  try {
    await subscribe(button.dataset.clarion, button.dataset.key);
    status.textContent = "This device gets notifications.";
  } catch (error) {
    status.textContent = `This browser did not subscribe: ${error.message}`;
  }
});

/** Ask the browser for a subscription, and register it as a device of the customer. */
async function subscribe(clarion, applicationServerKey) {
  const registration = await navigator.serviceWorker.register("/worker.js");
  const subscription = await registration.pushManager.subscribe({
    userVisibleOnly: true,
    applicationServerKey,
  });
  const response = await fetch(`${clarion}/v1/devices`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${await getToken()}` },
    body: JSON.stringify({ platform: "web", subscription }),
  });
  if (!response.ok) throw new Error((await response.json()).detail);
}
