/**
 * Client of Clarion for Node (20 and later) and browsers. One module, no dependencies.
 *
 * `Clarion` sends events with an API key, on your server. `Inbox` is one user's own inbox, with a
 * user token, in their browser or app. Types are in `clarion.d.ts`.
 */

const ATTEMPTS = 5;
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 10_000;
const TIMEOUT_MS = 30_000;
/** The server sends something every 20 s; a stream that is silent for longer is dead. */
const SILENCE_MS = 50_000;
const REPEATABLE = new Set(["GET", "PUT", "DELETE"]);

/**
 * A response that is an error. Its message is one line with all that it says:
 * `422 invalid_fields: type: there is no such type`.
 */
export class ClarionError extends Error {
  constructor(status, problem, retryAfterMs = null) {
    const { code = "unknown", detail = problem.title || `HTTP ${status}`, errors = [] } = problem;
    const faults = errors.map(({ field, reason }) => `${field}: ${reason}`);
    const said = [detail, ...faults.filter((each) => !detail.includes(each))];
    super(`${status} ${code}: ${said.join("; ")}`.replace(/\s+/g, " "));
    this.name = "ClarionError";
    this.status = status;
    this.code = code;
    this.detail = detail;
    this.errors = errors;
    this.requestId = problem.request_id || null;
    this.retryAfterMs = retryAfterMs;
  }

  /** Whether the same request may succeed later. */
  get isTemporary() {
    return this.status === 429 || this.status >= 500;
  }
}

/** The API of one app, with an API key. Never put the key into a page: use `Inbox` there. */
export class Clarion {
  #http;

  constructor({ url, apiKey, ...options }) {
    this.#http = new Http(url, () => apiKey, options);
  }

  /** Send an event. It is accepted once, also if the request has to be repeated. */
  send(event, { idempotencyKey = newKey() } = {}) {
    return this.#http.request("POST", "/v1/events", { body: event, idempotencyKey });
  }

  /** Send up to 1,000 events; the result has one entry for each, in order. */
  sendBatch(events, { idempotencyKey = newKey() } = {}) {
    return this.#http.request("POST", "/v1/events/batch", { body: events, idempotencyKey });
  }

  /**
   * Send a text to the devices and the people that follow a topic, once. `fields` are `title`,
   * `priority` (1 to 5, or a name), `tags` (an array) and `click` (a link).
   */
  publish(topic, message, { idempotencyKey = newKey(), ...fields } = {}) {
    const body = { message, ...fields };
    return this.#http.request("POST", `/v1/publish/${encode(topic)}`, { body, idempotencyKey });
  }

  /** What would become of an event: the verdict for each channel, with its reason. */
  explain(event) {
    return this.#http.request("POST", "/v1/explain", { body: event, isRepeatable: true });
  }

  getEvent(id) {
    return this.#http.request("GET", `/v1/events/${encode(id)}`);
  }

  cancelEvent(id) {
    return this.#http.request("DELETE", `/v1/events/${encode(id)}`);
  }

  /** Create or replace a user. */
  putUser(id, user) {
    return this.#http.request("PUT", `/v1/users/${encode(id)}`, { body: user });
  }

  getUser(id) {
    return this.#http.request("GET", `/v1/users/${encode(id)}`);
  }

  getTimeline(notificationId) {
    return this.#http.request("GET", `/v1/notifications/${encode(notificationId)}/timeline`);
  }

  /** Call any other operation of the API: `request("GET", "/v1/types")`. */
  request(method, path, options) {
    return this.#http.request(method, path, options);
  }
}

/** One user's inbox, preferences and live updates. */
export class Inbox {
  #http;

  /** `token` is a user token, or a function that returns one (also as a promise). */
  constructor({ url, token, ...options }) {
    const get = typeof token === "function" ? token : () => token;
    this.#http = new Http(url, get, options);
  }

  list({ unread, category, limit, after } = {}) {
    return this.#http.request("GET", "/v1/me/notifications", {
      query: { unread, category, limit, after },
    });
  }

  unreadCount() {
    return this.#http.request("GET", "/v1/me/unread-count");
  }

  read(id) {
    return this.#act(id, "read");
  }

  unread(id) {
    return this.#act(id, "unread");
  }

  dismiss(id) {
    return this.#act(id, "dismiss");
  }

  /** Counts in the analytics, once. */
  click(id) {
    return this.#act(id, "click");
  }

  readAll() {
    return this.#http.request("POST", "/v1/me/notifications/read-all", { isRepeatable: true });
  }

  /** With `explain`, each value comes with its source. */
  preferences({ explain } = {}) {
    return this.#http.request("GET", "/v1/me/preferences", { query: { explain } });
  }

  changePreferences(changes) {
    return this.#http.request("PATCH", "/v1/me/preferences", { body: changes, isRepeatable: true });
  }

  /** The categories that the preferences have, each with its name and title. */
  async categories() {
    const page = await this.#http.request("GET", "/v1/categories", { query: { limit: 100 } });
    return page.items;
  }

  /**
   * Yield every change of the inbox, until `signal` aborts or the token is refused. The stream
   * reconnects automatically and resumes after the last change, so none is missed. `after` is the
   * `sequence` of a list that was loaded before.
   */
  async *updates({ after = null, signal } = {}) {
    let last = after;
    for (let failures = 0; !signal?.aborted; failures += 1) {
      try {
        for await (const update of this.#http.stream("/v1/me/stream", last, signal)) {
          failures = 0;
          if (typeof update.sequence === "number") last = update.sequence;
          yield update;
        }
      } catch (error) {
        if (signal?.aborted) return;
        if (error instanceof ClarionError && !error.isTemporary) throw error;
        await sleep(Math.max(error.retryAfterMs || 0, pauseMs(failures)), signal);
        continue;
      }
      await sleep(pauseMs(failures), signal);
    }
  }

  #act(id, action) {
    const path = `/v1/me/notifications/${encode(id)}/${action}`;
    return this.#http.request("POST", path, { isRepeatable: true });
  }
}

/**
 * Sign a user token with the app's user secret (HS256). Only on your server: anyone with the
 * secret can read every inbox of the app.
 */
export async function signUserToken({ appId, userId, secret, hours = 1 }) {
  const bytes = new TextEncoder();
  const now = Math.floor(Date.now() / 1000);
  const claims = { sub: userId, aud: appId, iat: now, exp: now + Math.round(hours * 3600) };
  const parts = [{ alg: "HS256", typ: "JWT" }, claims].map((part) =>
    base64Url(bytes.encode(JSON.stringify(part))),
  );
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", bytes.encode(secret), algorithm, false, ["sign"]);
  const signed = await crypto.subtle.sign("HMAC", key, bytes.encode(parts.join(".")));
  return [...parts, base64Url(new Uint8Array(signed))].join(".");
}

/** Requests with credentials, and with retries where these are safe and can help. */
class Http {
  constructor(url, getToken, { fetch: send, attempts = ATTEMPTS, timeoutMs = TIMEOUT_MS } = {}) {
    this.url = String(url).replace(/\/+$/, "");
    this.getToken = getToken;
    this.send = send || ((...given) => fetch(...given));
    this.attempts = attempts;
    this.timeoutMs = timeoutMs;
  }

  async request(method, path, { body, query, idempotencyKey, isRepeatable } = {}) {
    const mayRepeat = isRepeatable || Boolean(idempotencyKey) || REPEATABLE.has(method);
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#once(method, path + queryOf(query), body, idempotencyKey);
      } catch (error) {
        const isFinal = error instanceof ClarionError && !error.isTemporary;
        if (isFinal || !mayRepeat || attempt >= this.attempts) throw error;
        await sleep(Math.max(error.retryAfterMs || 0, pauseMs(attempt - 1)));
      }
    }
  }

  async #once(method, path, body, idempotencyKey) {
    const headers = { authorization: `Bearer ${await this.getToken()}` };
    if (body !== undefined) headers["content-type"] = "application/json";
    if (idempotencyKey) headers["idempotency-key"] = idempotencyKey;
    const response = await this.send(this.url + path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(this.timeoutMs),
    });
    const text = await response.text();
    if (!response.ok) throw errorOf(response, text);
    return text ? JSON.parse(text) : null;
  }

  /** Yield the events of a stream until it ends. */
  async *stream(path, after, signal) {
    const silence = new AbortController();
    const abort = () => silence.abort();
    signal?.addEventListener("abort", abort, { once: true });
    let timer = setTimeout(abort, SILENCE_MS);
    try {
      const headers = { authorization: `Bearer ${await this.getToken()}` };
      if (after !== null) headers["last-event-id"] = String(after);
      const response = await this.send(this.url + path, { headers, signal: silence.signal });
      if (!response.ok) throw errorOf(response, await response.text());
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(abort, SILENCE_MS);
        const events = (text + value).split("\n\n");
        text = events.pop();
        for (const event of events) {
          const data = event.split("\n").find((line) => line.startsWith("data: "));
          if (data) yield JSON.parse(data.slice("data: ".length));
        }
      }
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      abort();
    }
  }
}

function errorOf(response, text) {
  const seconds = Number(response.headers.get("retry-after"));
  let problem;
  try {
    problem = JSON.parse(text);
  } catch {
    problem = { detail: `HTTP ${response.status}, not an answer of Clarion` };
  }
  return new ClarionError(response.status, problem || {}, seconds > 0 ? seconds * 1000 : null);
}

/** Twice as long after each failure, with jitter, so that clients do not come back all at once. */
function pauseMs(failures) {
  const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** failures);
  return longest / 2 + (Math.random() * longest) / 2;
}

function sleep(ms, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end, { once: true });
    if (signal?.aborted) end();
  });
}

function queryOf(query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

function newKey() {
  // `randomUUID` is missing in pages that are not served over HTTPS.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function base64Url(bytes) {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}

const encode = encodeURIComponent;
