/** Signs both users in, and sends what they do. */

const ACTS = {
  POST_LIKE: (name) => `Like ${name}’s post`,
  POST_COMMENT: (name) => `Comment on ${name}’s post`,
  FOLLOWER_NEW: (name) => `Follow ${name}`,
  SECURITY_NEW_DEVICE: (name) => `Sign in to ${name}’s account from a new device`,
  NEWS_SYSTEM_UPDATE: (name) => `Send ${name} some news`,
};
const status = document.querySelector("#status");

async function post(path, body) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.detail);
  return answer;
}

async function act(to, name, type) {
  try {
    const { event_id: id } = await post("/demo/events", { to, type });
    status.textContent = `Stored as event ${id}. ${name}’s bell shows what became of it.`;
  } catch (error) {
    status.textContent = error.message;
  }
}

for (const group of document.querySelectorAll(".acts")) {
  const { to, name } = group.dataset;
  for (const [type, describe] of Object.entries(ACTS)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = describe(name);
    button.addEventListener("click", () => act(to, name, type));
    group.append(button);
  }
}

for (const bell of document.querySelectorAll("clarion-inbox")) {
  bell.getToken = async () => (await post("/demo/token", { user_id: bell.dataset.user })).token;
}

for (const place of document.querySelectorAll(".origin")) place.textContent = location.origin;
