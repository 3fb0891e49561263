// Runs without a page: shows what Clarion pushes.
self.addEventListener("push", (event) => {
  const { id, title, body, deeplink } = event.data.json();
  // The same id can arrive twice: as the tag it is shown once.
  const options = { body, tag: id, data: { deeplink } };
  event.waitUntil(self.registration.showNotification(title || "", options));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(clients.openWindow(event.notification.data.deeplink || "/"));
});
