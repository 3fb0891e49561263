/**
 * `<clarion-inbox>`: a bell with the unread count, and the user's inbox and preferences behind it.
 *
 *     <script type="module" src="https://notify.example.com/static/clarion-inbox.js"></script>
 *     <clarion-inbox url="https://notify.example.com" token="…"></clarion-inbox>
 *
 * Attributes, properties and events are described in `clarion-inbox.d.ts`.
 */

import { ClarionError, Inbox } from "./clarion.js";

const PAGE = 20;
const MOST_SHOWN = 99;
/** How long a link waits for the server to take note that its notification was read. */
const READ_GRACE_MS = 800;
const MINUTE_MS = 60_000;
/** What is left between the panel and the edge of the window. */
const MARGIN = 8;

const TEXTS = {
  en: {
    notifications: "Notifications",
    unread: "{n} unread",
    none: "No notifications yet",
    readAll: "Mark all as read",
    settings: "Preferences",
    back: "Back to notifications",
    close: "Close",
    older: "Show older",
    dismiss: "Dismiss",
    isUnread: "Unread",
    markUnread: "Mark as unread",
    arrived: "New notification: {text}",
    failed: "The notifications cannot be loaded.",
    signedOut: "Your session has ended. Reload the page.",
    notSaved: "This could not be saved.",
    saved: "Saved",
    retry: "Try again",
    categories: "Notify me about",
    always: "Always on",
    quietHours: "Quiet hours",
    quietHelp: "Notifications that interrupt are sent after quiet hours.",
    from: "From",
    to: "To",
    now: "now",
    social: "Social",
    safety: "Safety",
    security: "Security",
    news: "News",
    marketing: "Offers",
    transactional: "Orders and account",
  },
  de: {
    notifications: "Mitteilungen",
    unread: "{n} ungelesen",
    none: "Noch keine Mitteilungen",
    readAll: "Alle als gelesen markieren",
    settings: "Einstellungen",
    back: "Zurück zu den Mitteilungen",
    close: "Schließen",
    older: "Ältere anzeigen",
    dismiss: "Entfernen",
    isUnread: "Ungelesen",
    markUnread: "Als ungelesen markieren",
    arrived: "Neue Mitteilung: {text}",
    failed: "Die Mitteilungen können nicht geladen werden.",
    signedOut: "Ihre Sitzung ist abgelaufen. Laden Sie die Seite neu.",
    notSaved: "Das konnte nicht gespeichert werden.",
    saved: "Gespeichert",
    retry: "Erneut versuchen",
    categories: "Benachrichtigen über",
    always: "Immer an",
    quietHours: "Ruhezeiten",
    quietHelp: "Störende Mitteilungen werden nach der Ruhezeit gesendet.",
    from: "Von",
    to: "Bis",
    now: "jetzt",
    social: "Soziales",
    safety: "Sicherheit von Personen",
    security: "Kontosicherheit",
    news: "Neuigkeiten",
    marketing: "Angebote",
    transactional: "Bestellungen und Konto",
  },
  es: {
    notifications: "Notificaciones",
    unread: "{n} sin leer",
    none: "Aún no hay notificaciones",
    readAll: "Marcar todo como leído",
    settings: "Preferencias",
    back: "Volver a las notificaciones",
    close: "Cerrar",
    older: "Mostrar anteriores",
    dismiss: "Descartar",
    isUnread: "Sin leer",
    markUnread: "Marcar como no leída",
    arrived: "Nueva notificación: {text}",
    failed: "No se pueden cargar las notificaciones.",
    signedOut: "La sesión ha terminado. Vuelva a cargar la página.",
    notSaved: "No se ha podido guardar.",
    saved: "Guardado",
    retry: "Reintentar",
    categories: "Notificarme sobre",
    always: "Siempre activo",
    quietHours: "Horas de silencio",
    quietHelp: "Las notificaciones que interrumpen se envían después de las horas de silencio.",
    from: "Desde",
    to: "Hasta",
    now: "ahora",
    social: "Social",
    safety: "Seguridad personal",
    security: "Seguridad de la cuenta",
    news: "Noticias",
    marketing: "Ofertas",
    transactional: "Pedidos y cuenta",
  },
  fr: {
    notifications: "Notifications",
    unread: "{n} non lues",
    none: "Aucune notification pour l’instant",
    readAll: "Tout marquer comme lu",
    settings: "Préférences",
    back: "Retour aux notifications",
    close: "Fermer",
    older: "Afficher les précédentes",
    dismiss: "Supprimer",
    isUnread: "Non lue",
    markUnread: "Marquer comme non lue",
    arrived: "Nouvelle notification : {text}",
    failed: "Impossible de charger les notifications.",
    signedOut: "Votre session a expiré. Rechargez la page.",
    notSaved: "L’enregistrement a échoué.",
    saved: "Enregistré",
    retry: "Réessayer",
    categories: "M’informer sur",
    always: "Toujours actif",
    quietHours: "Heures calmes",
    quietHelp: "Les notifications qui dérangent sont envoyées après les heures calmes.",
    from: "De",
    to: "À",
    now: "maintenant",
    social: "Social",
    safety: "Sécurité des personnes",
    security: "Sécurité du compte",
    news: "Actualités",
    marketing: "Offres",
    transactional: "Commandes et compte",
  },
  pt: {
    notifications: "Notificações",
    unread: "{n} não lidas",
    none: "Ainda não há notificações",
    readAll: "Marcar tudo como lido",
    settings: "Preferências",
    back: "Voltar às notificações",
    close: "Fechar",
    older: "Mostrar anteriores",
    dismiss: "Dispensar",
    isUnread: "Não lida",
    markUnread: "Marcar como não lida",
    arrived: "Nova notificação: {text}",
    failed: "Não é possível carregar as notificações.",
    signedOut: "A sessão terminou. Recarregue a página.",
    notSaved: "Não foi possível guardar.",
    saved: "Guardado",
    retry: "Tentar novamente",
    categories: "Notificar-me sobre",
    always: "Sempre ativo",
    quietHours: "Horas de silêncio",
    quietHelp: "As notificações que interrompem são enviadas depois das horas de silêncio.",
    from: "Das",
    to: "Às",
    now: "agora",
    social: "Social",
    safety: "Segurança pessoal",
    security: "Segurança da conta",
    news: "Notícias",
    marketing: "Ofertas",
    transactional: "Encomendas e conta",
  },
};

const STYLE = `
:host {
  --_accent: var(--clarion-accent, light-dark(#2856d6, #8fb0ff));
  --_badge: var(--clarion-badge, light-dark(#c62333, #ff8a93));
  --_on-badge: var(--clarion-on-badge, light-dark(#fff, #22060a));
  --_background: var(--clarion-background, light-dark(#fff, #1c1f26));
  --_hover: var(--clarion-hover, light-dark(#f1f3f8, #282c36));
  --_text: var(--clarion-text, light-dark(#1a1d24, #eceef3));
  --_muted: var(--clarion-muted, light-dark(#5b6270, #a9b0be));
  --_border: var(--clarion-border, light-dark(#d9dde6, #3a3f4b));
  display: inline-block;
  position: relative;
  font: 14px/1.45 var(--clarion-font, system-ui, sans-serif);
}
:host([theme="auto"]) { color-scheme: light dark; }
:host([theme="light"]) { color-scheme: light; }
:host([theme="dark"]) { color-scheme: dark; }
:host([hidden]), [hidden] { display: none !important; }
* { box-sizing: border-box; }
button, input { font: inherit; color: inherit; }
button { background: none; border: 0; padding: 0; border-radius: 6px; cursor: pointer; }
:focus-visible { outline: 2px solid var(--_accent); outline-offset: 2px; }
.bell { position: relative; inline-size: 40px; block-size: 40px; border-radius: 50%; color: inherit; }
.bell:hover { background: color-mix(in srgb, currentColor 10%, transparent); }
.icon:hover { background: var(--_hover); }
svg { display: block; margin: auto; }
.badge {
  position: absolute; inset-block-start: 0; inset-inline-end: -2px; min-inline-size: 18px;
  padding: 0 5px; border-radius: 9px; font-size: 11px; line-height: 18px; font-weight: 600;
  text-align: center; background: var(--_badge); color: var(--_on-badge);
}
.panel {
  position: absolute; inset-block-start: calc(100% + 8px); inset-inline-end: 0;
  z-index: var(--clarion-z-index, 1000); display: flex; flex-direction: column;
  inline-size: min(var(--clarion-width, 380px), calc(100vw - 16px)); max-block-size: min(560px, 80vh);
  background: var(--_background); color: var(--_text); border: 1px solid var(--_border);
  border-radius: var(--clarion-radius, 12px); box-shadow: 0 12px 32px rgb(0 0 0 / 22%); overflow: hidden;
}
header {
  display: flex; align-items: center; gap: 4px; padding: 10px 8px 10px 16px;
  border-block-end: 1px solid var(--_border);
}
.tools { display: flex; }
h2 { flex: 1; margin: 0; outline: none; font-size: 15px; font-weight: 600; }
.icon { inline-size: 32px; block-size: 32px; border-radius: 50%; color: var(--_muted); flex: none; }
.scroll { overflow-y: auto; overscroll-behavior: contain; }
ul { list-style: none; margin: 0; padding: 0; }
li { display: flex; align-items: flex-start; gap: 4px; padding-inline-end: 8px; border-block-end: 1px solid var(--_border); }
li:last-child { border: 0; }
li:hover { background: var(--_hover); }
.entry {
  flex: 1; min-inline-size: 0; display: grid; grid-template-columns: 10px auto 1fr; column-gap: 8px;
  padding: 12px 4px 12px 12px; text-align: start; color: inherit; text-decoration: none; border-radius: 0; align-items: start;
}
.dot { inline-size: 8px; block-size: 8px; margin-block-start: 7px; border-radius: 50%; }
.is-unread .dot { background: var(--_accent); }
.is-unread .title { font-weight: 600; }
img { inline-size: 36px; block-size: 36px; border-radius: 8px; object-fit: cover; }
.words { grid-column: 3; min-inline-size: 0; overflow-wrap: anywhere; }
.title { display: block; }
.body { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; color: var(--_muted); }
.title:empty + .body { color: inherit; }
time { font-size: 12px; color: var(--_muted); }
.row-actions { display: flex; padding-block-start: 8px; opacity: 0; }
li:hover .row-actions, li:focus-within .row-actions { opacity: 1; }
@media (hover: none) { .row-actions { opacity: 1; } }
.message { padding: 32px 24px; text-align: center; color: var(--_muted); }
.message button, .older { color: var(--_accent); padding: 6px 12px; }
.older { display: block; inline-size: 100%; padding: 12px; }
.older:hover { background: var(--_hover); }
form { padding: 8px 16px 16px; }
fieldset { border: 0; margin: 8px 0 0; padding: 0; }
legend { font-weight: 600; padding: 0; margin-block-end: 4px; }
label { display: flex; align-items: center; justify-content: space-between; gap: 12px; min-block-size: 36px; }
label small { color: var(--_muted); margin-inline-start: auto; }
input[type="checkbox"] { inline-size: 18px; block-size: 18px; accent-color: var(--_accent); flex: none; }
input[type="time"] { padding: 4px 6px; border: 1px solid var(--_border); border-radius: 6px; background: transparent; }
.help { margin: 0 0 4px; color: var(--_muted); font-size: 13px; }
.spoken { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
@media (max-width: 480px) {
  .panel { position: fixed; inset: auto 8px 8px; inline-size: auto; max-block-size: 85vh; }
}
@media (forced-colors: active) { .is-unread .dot { background: Highlight; } .badge { border: 1px solid; } }
`;

const ICONS = {
  bell: "M12 3a6 6 0 0 0-6 6v3.6L4.4 15.4a1 1 0 0 0 .9 1.5h13.4a1 1 0 0 0 .9-1.5L18 12.6V9a6 6 0 0 0-6-6Zm-2.4 15.4a2.5 2.5 0 0 0 4.8 0Z",
  checks: "m2 13 4 4 8-9M10 15l2 2 9-10",
  gear: "M4 7h9m4 0h3M4 17h3m4 0h9M15 5v4M9 15v4",
  back: "m14 6-6 6 6 6",
  close: "m6 6 12 12M18 6 6 18",
  unread: "M4 6h16v12H4zm0 1 8 6 8-6",
};

export class ClarionInboxElement extends HTMLElement {
  static observedAttributes = ["url", "token", "lang"];

  /** Returns a user token; called for each request, so that an expired one is replaced. */
  #getToken = null;
  #client = null;
  #stop = null;
  #items = new Map();
  #rows = new Map();
  #next = null;
  #count = 0;
  #problem = null;
  #timer = null;
  #parts = {};
  #isQueued = false;

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
    root.adoptedStyleSheets = [sheet];
  }

  get getToken() {
    return this.#getToken;
  }

  set getToken(value) {
    this.#getToken = value;
    this.#restart();
  }

  get unreadCount() {
    return this.#count;
  }

  get isOpen() {
    return Boolean(this.#parts.panel) && !this.#parts.panel.hidden;
  }

  connectedCallback() {
    this.#build();
    document.addEventListener("pointerdown", this.#onOutside);
    addEventListener("resize", this.#keepInside);
    this.#timer = setInterval(() => this.#showTimes(), MINUTE_MS);
    this.#restart();
  }

  disconnectedCallback() {
    document.removeEventListener("pointerdown", this.#onOutside);
    removeEventListener("resize", this.#keepInside);
    clearInterval(this.#timer);
    this.#stop?.abort();
  }

  attributeChangedCallback(name) {
    if (!this.isConnected || !this.#parts.panel) return;
    if (name === "lang") {
      const isOpen = this.isOpen;
      this.#build();
      this.#parts.panel.hidden = !isOpen;
      this.#showAll();
    } else {
      this.#restart();
    }
  }

  /** Open the panel and move the focus into it. */
  show() {
    this.#toggle(true);
    this.#parts.heading.focus();
  }

  /** Close the panel. */
  hide() {
    const hadFocus = this.#parts.panel.contains(this.shadowRoot.activeElement);
    this.#toggle(false);
    if (hadFocus) this.#parts.bell.focus();
  }

  /** Load the list again. */
  refresh() {
    this.#restart();
  }

  // The connection to the server.

  /** Attributes are often set one after the other: connect once, after the last. */
  #restart() {
    if (this.#isQueued || !this.isConnected) return;
    this.#isQueued = true;
    queueMicrotask(() => {
      this.#isQueued = false;
      this.#stop?.abort();
      if (!this.isConnected) return;
      const token = this.#getToken ?? this.getAttribute("token");
      if (!token) return;
      this.#client = new Inbox({ url: this.#url(), token });
      this.#stop = new AbortController();
      this.#follow(this.#stop.signal);
    });
  }

  #url() {
    return (this.getAttribute("url") || new URL(import.meta.url).origin).replace(/\/+$/, "");
  }

  async #follow(signal) {
    try {
      const after = await this.#load(signal);
      for await (const update of this.#client.updates({ after, signal })) {
        if (signal.aborted) return;
        if (update.type === "resync") await this.#load(signal);
        else this.#apply(update);
      }
    } catch (error) {
      if (!signal.aborted) this.#fail(error);
    }
  }

  async #load(signal) {
    const page = await this.#client.list({ limit: PAGE });
    if (signal.aborted) return null;
    this.#problem = null;
    this.#items = new Map(page.items.map((item) => [item.id, item]));
    this.#next = page.next;
    this.#setCount(page.unread_count);
    this.#showAll();
    return page.sequence;
  }

  async #loadOlder() {
    const page = await this.#client.list({ limit: PAGE, after: this.#next });
    const first = page.items[0];
    for (const item of page.items) this.#items.set(item.id, item);
    this.#next = page.next;
    this.#showAll();
    if (first) this.#rows.get(first.id)?.querySelector(".entry").focus();
  }

  #apply(update) {
    if (typeof update.unread_count === "number") this.#setCount(update.unread_count);
    const { item } = update;
    if (!item) return;
    const known = this.#items.get(item.id);
    if (known && known.sequence > item.sequence) return;
    const isNew = !known && !item.read_at && !item.dismissed_at;
    if (item.dismissed_at) this.#remove(item.id);
    else if (known || this.#isInRange(item)) this.#items.set(item.id, item);
    if (isNew) this.#announce(this.#text("arrived", { text: item.title || item.body }));
    this.#showAll();
  }

  /** Items older than the last one shown come with "Show older". */
  #isInRange(item) {
    const last = this.#sorted().at(-1);
    return !this.#next || !last || isNewer(item, last);
  }

  #remove(id) {
    const row = this.#rows.get(id);
    const hadFocus = row?.contains(this.shadowRoot.activeElement);
    const neighbour = row?.nextElementSibling || row?.previousElementSibling;
    this.#items.delete(id);
    if (hadFocus) (neighbour?.querySelector(".entry") || this.#parts.heading).focus();
  }

  async #act(action, item) {
    try {
      const changed = await this.#client[action](item.id);
      this.#apply({ item: changed, unread_count: changed.unread_count });
    } catch (error) {
      this.#announce(this.#text("notSaved"));
      this.#emit("clarion-error", { error });
    }
  }

  async #readAll() {
    try {
      const { unread_count: count } = await this.#client.readAll();
      const now = new Date().toISOString();
      for (const [id, item] of this.#items) {
        if (!item.read_at) this.#items.set(id, { ...item, read_at: now });
      }
      this.#setCount(count);
      this.#showAll();
    } catch (error) {
      this.#announce(this.#text("notSaved"));
      this.#emit("clarion-error", { error });
    }
  }

  #fail(error) {
    const isRefused = error instanceof ClarionError && error.status === 401;
    this.#problem = this.#text(isRefused ? "signedOut" : "failed");
    if (error.code === "origin_not_allowed") warnOfOrigin(this.#url());
    this.#showAll();
    this.#emit("clarion-error", { error });
  }

  #setCount(count) {
    if (count !== this.#count) {
      this.#count = count;
      this.#emit("clarion-count", { unreadCount: count });
    }
    const { badge, bell } = this.#parts;
    badge.hidden = count === 0;
    badge.textContent = count > MOST_SHOWN ? `${MOST_SHOWN}+` : String(count);
    const unread = count ? `, ${this.#text("unread", { n: count })}` : "";
    bell.setAttribute("aria-label", this.#text("notifications") + unread);
  }

  #open(item, event) {
    const isPlain = !(event.metaKey || event.ctrlKey || event.shiftKey || event.button);
    // For the analytics alone: whether it works or not, the user sees no difference.
    const clicking = this.#client.click(item.id).catch(() => {});
    const reading = item.read_at ? clicking : Promise.all([clicking, this.#act("read", item)]);
    const isHandled = !this.#emit("clarion-click", { item }, true);
    if (isHandled) event.preventDefault();
    const href = event.currentTarget.href;
    if (!href || !isPlain || isHandled) return;
    event.preventDefault();
    const patience = new Promise((resolve) => setTimeout(resolve, READ_GRACE_MS));
    Promise.race([reading, patience]).then(() => location.assign(href));
  }

  #emit(name, detail, cancelable = false) {
    return this.dispatchEvent(
      new CustomEvent(name, { detail, cancelable, bubbles: true, composed: true }),
    );
  }

  // What is shown.

  #build() {
    const parts = (this.#parts = {});
    this.#rows = new Map();
    parts.badge = make("span", { class: "badge", part: "badge", "aria-hidden": "true" });
    parts.bell = make(
      "button",
      { class: "bell", part: "bell", type: "button", "aria-expanded": "false", "aria-haspopup": "dialog" },
      icon("bell", 24, true),
      parts.badge,
    );
    parts.bell.addEventListener("click", () => (this.isOpen ? this.hide() : this.show()));
    parts.status = make("div", { class: "spoken", role: "status" });
    parts.heading = make("h2", { tabindex: "-1", id: "heading" });
    parts.lead = make("div");
    parts.tools = make("div", { class: "tools" });
    parts.content = make("div", { class: "scroll" });
    parts.panel = make(
      "div",
      { class: "panel", part: "panel", role: "dialog", "aria-labelledby": "heading", hidden: "" },
      make("header", {}, parts.lead, parts.heading, parts.tools),
      parts.content,
    );
    parts.panel.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.hide();
    });
    this.shadowRoot.replaceChildren(parts.bell, parts.panel, parts.status);
    this.#setCount(this.#count);
    this.#showList();
  }

  #toggle(isOpen) {
    this.#parts.panel.hidden = !isOpen;
    this.#parts.bell.setAttribute("aria-expanded", String(isOpen));
    if (!isOpen) return;
    this.#showList();
    this.#keepInside();
  }

  /** The panel ends where the bell ends, unless it would leave the window there. */
  #keepInside = () => {
    const { panel } = this.#parts;
    panel.style.translate = "none";
    const { left, right } = panel.getBoundingClientRect();
    const shift = Math.max(0, MARGIN - left) + Math.min(0, innerWidth - MARGIN - right);
    panel.style.translate = `${shift}px`;
  };

  #onOutside = (event) => {
    if (this.isOpen && !event.composedPath().includes(this)) this.#toggle(false);
  };

  #setHeader(title, tools, lead = "") {
    this.#parts.heading.textContent = title;
    this.#parts.tools.replaceChildren(...tools);
    this.#parts.lead.replaceChildren(lead);
  }

  #showList() {
    const parts = this.#parts;
    this.#rows = new Map();
    parts.list = make("ul", {});
    parts.message = make("div", { class: "message" });
    parts.older = this.#button("older", "older", () => this.#loadOlder());
    parts.content.replaceChildren(parts.list, parts.message, parts.older);
    this.#setHeader(this.#text("notifications"), [
      this.#iconButton("readAll", "checks", () => this.#readAll()),
      this.#iconButton("settings", "gear", () => this.#showPreferences()),
      this.#iconButton("close", "close", () => this.hide()),
    ]);
    this.#showAll();
  }

  #showAll() {
    const { list, message, older } = this.#parts;
    if (!list.isConnected) return;
    const sorted = this.#sorted();
    const wanted = new Set(this.#items.keys());
    for (const [id, row] of this.#rows) {
      if (!wanted.has(id)) {
        row.remove();
        this.#rows.delete(id);
      }
    }
    sorted.forEach((item, position) => this.#placeRow(item, position));
    older.hidden = !this.#next || Boolean(this.#problem);
    message.hidden = sorted.length > 0 && !this.#problem;
    message.replaceChildren(this.#problem || this.#text("none"));
    if (this.#problem) {
      message.append(make("br"), this.#button("retry", "", () => this.refresh()));
    }
  }

  /** Rows stay in the document while their items do, so that the focus is not lost. */
  #placeRow(item, position) {
    const { list } = this.#parts;
    let row = this.#rows.get(item.id);
    if (!row || row.item !== item) {
      const fresh = this.#makeRow(item);
      const active = row?.contains(this.shadowRoot.activeElement);
      row?.replaceWith(fresh);
      if (active) fresh.querySelector(".entry").focus();
      row = fresh;
      this.#rows.set(item.id, row);
    }
    if (list.children[position] !== row) list.insertBefore(row, list.children[position] || null);
  }

  #makeRow(item) {
    const isUnread = !item.read_at;
    const href = toSafeUrl(item.deeplink);
    const picture = toSafeUrl(item.image_url);
    const spoken = isUnread ? make("span", { class: "spoken" }, `${this.#text("isUnread")}. `) : "";
    const entry = make(
      href ? "a" : "button",
      href ? { class: "entry", href } : { class: "entry", type: "button" },
      make("span", { class: "dot" }),
      picture
        ? make("img", { src: picture, alt: "", loading: "lazy", referrerpolicy: "no-referrer" })
        : make("span"),
      make(
        "span",
        { class: "words" },
        spoken,
        make("span", { class: "title", dir: "auto" }, item.title || ""),
        make("span", { class: "body", dir: "auto" }, item.body),
        make("time", { datetime: item.created_at }, this.#relativeTime(item.created_at)),
      ),
    );
    entry.addEventListener("click", (event) => this.#open(item, event));
    const actions = make("div", { class: "row-actions" });
    const name = item.title || item.body;
    if (!isUnread) {
      actions.append(this.#iconButton("markUnread", "unread", () => this.#act("unread", item), name));
    }
    actions.append(this.#iconButton("dismiss", "close", () => this.#act("dismiss", item), name));
    const row = make("li", { class: isUnread ? "is-unread" : "", part: "item" }, entry, actions);
    row.item = item;
    return row;
  }

  #showTimes() {
    for (const time of this.shadowRoot.querySelectorAll("time")) {
      time.textContent = this.#relativeTime(time.dateTime);
    }
  }

  async #showPreferences() {
    const back = this.#iconButton("back", "back", () => {
      this.#showList();
      this.#parts.heading.focus();
    });
    const close = this.#iconButton("close", "close", () => this.hide());
    this.#setHeader(this.#text("settings"), [close], back);
    const form = make("form", {});
    form.addEventListener("submit", (event) => event.preventDefault());
    this.#parts.content.replaceChildren(form);
    this.#parts.heading.focus();
    try {
      const [preferences, known] = await Promise.all([
        this.#client.preferences({ explain: true }),
        this.#client.categories(),
      ]);
      // Built-in categories are translated; the app's own have the title that it gave them.
      const titles = new Map(
        known.map(({ name, title, origin }) => [name, origin === "own" ? title : this.#text(name)]),
      );
      const categories = this.#makeCategories(preferences.categories, titles);
      form.append(categories, this.#makeQuietHours(preferences));
    } catch (error) {
      form.append(make("div", { class: "message" }, this.#text("failed")));
      this.#emit("clarion-error", { error });
    }
  }

  #makeCategories(categories, titles) {
    const set = make("fieldset", {}, make("legend", {}, this.#text("categories")));
    for (const [category, setting] of Object.entries(categories)) {
      const box = make("input", { type: "checkbox" });
      box.checked = setting.value;
      box.disabled = setting.source === "mandatory";
      box.addEventListener("change", () => this.#save(box, { categories: { [category]: box.checked } }));
      const note = box.disabled ? make("small", {}, this.#text("always")) : "";
      set.append(make("label", {}, titles.get(category) ?? category, note, box));
    }
    return set;
  }

  #makeQuietHours({ quiet_hours: { value } }) {
    const range = toRange(value);
    const isOn = make("input", { type: "checkbox" });
    const from = make("input", { type: "time", required: "" });
    const to = make("input", { type: "time", required: "" });
    isOn.checked = Boolean(range);
    [from.value, to.value] = range || ["22:00", "07:00"];
    const times = make(
      "div",
      {},
      make("label", {}, this.#text("from"), from),
      make("label", {}, this.#text("to"), to),
    );
    times.hidden = !isOn.checked;
    const save = (changed) => {
      times.hidden = !isOn.checked;
      if (isOn.checked && !(from.value && to.value)) return;
      const hours = isOn.checked ? { from: from.value, to: to.value } : Array(24).fill(false);
      this.#save(changed, { quiet_hours: hours });
    };
    for (const input of [isOn, from, to]) input.addEventListener("change", () => save(input));
    return make(
      "fieldset",
      {},
      make("legend", {}, this.#text("quietHours")),
      make("p", { class: "help" }, this.#text("quietHelp")),
      make("label", {}, this.#text("quietHours"), isOn),
      times,
    );
  }

  async #save(input, changes) {
    try {
      await this.#client.changePreferences(changes);
      this.#announce(this.#text("saved"));
    } catch (error) {
      if (input.type === "checkbox") input.checked = !input.checked;
      this.#announce(this.#text("notSaved"));
      this.#emit("clarion-error", { error });
    }
  }

  #announce(text) {
    // A screen reader says only what has changed.
    this.#parts.status.textContent = "";
    requestAnimationFrame(() => {
      this.#parts.status.textContent = text;
    });
  }

  #button(text, classes, act) {
    const button = make("button", { type: "button", class: classes }, this.#text(text));
    button.addEventListener("click", act);
    return button;
  }

  #iconButton(text, name, act, subject = "") {
    const label = this.#text(text);
    const spoken = subject ? `${label}: ${subject}` : label;
    const attributes = { type: "button", class: "icon", "aria-label": spoken, title: label };
    const button = make("button", attributes, icon(name, 20));
    button.addEventListener("click", act);
    return button;
  }

  #sorted() {
    return [...this.#items.values()].sort((a, b) => (isNewer(a, b) ? -1 : 1));
  }

  #language() {
    const wanted = this.lang || document.documentElement.lang || navigator.language || "en";
    return wanted.toLowerCase().split("-")[0] in TEXTS ? wanted : "en";
  }

  #text(name, values = {}) {
    const texts = TEXTS[this.#language().toLowerCase().split("-")[0]];
    const text = texts[name] ?? name;
    return text.replace(/\{(\w+)\}/g, (_, key) => String(values[key]));
  }

  #relativeTime(timestamp) {
    const seconds = (Date.parse(timestamp) - Date.now()) / 1000;
    const language = this.#language();
    for (const [unit, length] of [["day", 86_400], ["hour", 3600], ["minute", 60]]) {
      if (Math.abs(seconds) < length) continue;
      if (unit === "day" && Math.abs(seconds) > 7 * length) {
        return new Intl.DateTimeFormat(language, { dateStyle: "medium" }).format(new Date(timestamp));
      }
      const format = new Intl.RelativeTimeFormat(language, { numeric: "auto" });
      return format.format(Math.round(seconds / length), unit);
    }
    return this.#text("now");
  }
}

/** For the developer of the page: the user cannot change it. */
function warnOfOrigin(url) {
  console.warn(
    `<clarion-inbox>: ${url} answered 403 origin_not_allowed, because the app does not allow the ` +
      `origin of this page, ${origin}. Allow it with an API key that has the scope keys:write ` +
      "(the list replaces the one that is there):\n\n" +
      `curl -X PATCH ${url}/v1/app -H "Authorization: Bearer $KEY" ` +
      `-H "Content-Type: application/json" -d '${JSON.stringify({ allowed_origins: [origin] })}'`,
  );
}

function isNewer(one, other) {
  if (one.created_at !== other.created_at) return one.created_at > other.created_at;
  return one.id > other.id;
}

/** Text is always set as text: nothing that a notification holds is ever read as HTML. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function icon(name, size, isFilled = false) {
  const namespace = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(namespace, "svg");
  const path = document.createElementNS(namespace, "path");
  const look = isFilled
    ? { fill: "currentColor" }
    : { fill: "none", stroke: "currentColor", "stroke-width": "1.8", "stroke-linecap": "round", "stroke-linejoin": "round" };
  for (const [key, value] of Object.entries({ d: ICONS[name], ...look })) path.setAttribute(key, value);
  const frame = { viewBox: "0 0 24 24", width: size, height: size, "aria-hidden": "true" };
  for (const [key, value] of Object.entries(frame)) svg.setAttribute(key, value);
  svg.append(path);
  return svg;
}

/** Links and pictures of other schemes could run code; the page gets them in `clarion-click`. */
function toSafeUrl(text) {
  if (!text) return null;
  try {
    const url = new URL(text, document.baseURI);
    return url.protocol === "https:" || url.protocol === "http:" ? url.href : null;
  } catch {
    return null;
  }
}

/** The quiet hours as one range of times, or null if there are none. */
function toRange(hours) {
  const windows = [hours].flat();
  if (typeof windows[0] === "object") return [windows[0].from, windows[0].to];
  const first = windows.findIndex((isQuiet, hour) => isQuiet && !windows.at(hour - 1));
  if (first < 0) return windows[0] ? ["00:00", "00:00"] : null;
  let last = first;
  while (windows[last % 24]) last += 1;
  return [first, last % 24].map((hour) => `${String(hour).padStart(2, "0")}:00`);
}

if (!customElements.get("clarion-inbox")) customElements.define("clarion-inbox", ClarionInboxElement);
