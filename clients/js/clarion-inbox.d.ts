import type { Notification } from "./clarion.js";

/**
 * `<clarion-inbox>`: a bell with the unread count, and the user's inbox and preferences behind it.
 *
 * Attributes:
 * - `url`: where the server is; by default the server that the script was loaded from
 * - `token`: a user token; for a page that stays open for long, set `getToken` instead
 * - `lang`: `en`, `de`, `es`, `fr` or `pt`; by default the language of the page
 * - `theme`: `light`, `dark` or `auto` (as the system); by default the `color-scheme` of the page
 *
 * CSS variables: `--clarion-accent`, `--clarion-badge`, `--clarion-on-badge`, `--clarion-background`,
 * `--clarion-hover`, `--clarion-text`, `--clarion-muted`, `--clarion-border`, `--clarion-radius`,
 * `--clarion-width`, `--clarion-font`, `--clarion-z-index`. Parts: `bell`, `badge`, `panel`, `item`.
 */
export class ClarionInboxElement extends HTMLElement {
  /** Returns a user token. It is called for each request, so that an expired token is replaced. */
  getToken: (() => string | Promise<string>) | null;
  readonly unreadCount: number;
  readonly isOpen: boolean;
  /** Open the panel and move the focus into it. */
  show(): void;
  /** Close the panel. */
  hide(): void;
  /** Load the list again. */
  refresh(): void;
  addEventListener<K extends keyof ClarionInboxEvents>(
    type: K,
    listener: (event: ClarionInboxEvents[K]) => void,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject,
    options?: boolean | AddEventListenerOptions,
  ): void;
}

export interface ClarionInboxEvents {
  /** A notification was opened. With `preventDefault()` its link is not followed. */
  "clarion-click": CustomEvent<{ item: Notification }>;
  "clarion-count": CustomEvent<{ unreadCount: number }>;
  "clarion-error": CustomEvent<{ error: Error }>;
}

declare global {
  interface HTMLElementTagNameMap {
    "clarion-inbox": ClarionInboxElement;
  }
}
