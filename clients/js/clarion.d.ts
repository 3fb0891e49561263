/** A time as the API writes it: ISO 8601 in UTC. */
export type Timestamp = string;
export type Channel = "in_app" | "push" | "email" | "sms" | "webhook";
export type Priority = "low" | "medium" | "high" | "critical";
export type Recipient =
  | { user_id: string }
  | { user_ids: string[] }
  | { topic: string }
  | { segment: string }
  | { all: true };

export interface Event {
  type: string;
  recipient: Recipient;
  data?: Record<string, unknown>;
  actor?: { id: string; name?: string };
  target?: { id: string; type?: string };
  priority?: Priority;
  channels?: Channel[];
  dedupe_key?: string;
  scheduled_at?: Timestamp;
  ttl_s?: number;
  expires_at?: Timestamp;
  deeplink?: string;
  image_url?: string;
}

export interface AcceptedEvent {
  event_id: string;
  status: string;
  created_at: Timestamp;
}

/** What was published: the message to the devices, and the event for the followers. */
export interface Published {
  event_id: string;
  message_id: string;
  topic: string;
  created_at: Timestamp;
}

/** What a type of notification is about; users can turn categories off. */
export interface Category {
  name: string;
  title: string;
  description: string | null;
  default_channels: Channel[];
  user_can_disable: boolean;
  origin: "built_in" | "own";
}

/** One fault of a request: the field, and what it must be. */
export interface FieldFault {
  field: string;
  reason: string;
}

export type BatchResult = AcceptedEvent | { status: "invalid"; code: string; errors?: FieldFault[] };

export interface Notification {
  id: string;
  type: string;
  category: string;
  priority: Priority;
  title: string | null;
  body: string;
  deeplink: string | null;
  image_url: string | null;
  actor: { id: string; name: string | null } | null;
  target: { id: string; type: string | null } | null;
  data: Record<string, unknown>;
  count: number;
  read_at: Timestamp | null;
  dismissed_at: Timestamp | null;
  created_at: Timestamp;
  sequence: number;
}

export interface UnreadCount {
  unread_count: number;
  sequence: number;
}

export interface NotificationPage extends UnreadCount {
  items: Notification[];
  next: string | null;
}

/** A change of the inbox; `item` is the whole notification as it is now. */
export type Update =
  | ({ type: "state" | "count" | "resync" } & UnreadCount)
  | ({ type: "notification" | "read" | "dismissed"; item: Notification } & UnreadCount)
  | { type: "end"; reason: string };

export interface Preferences {
  timezone: string;
  language: string;
  quiet_hours: boolean[];
  categories: Record<string, boolean>;
  types: Record<string, Partial<Record<Channel, boolean>>>;
}

/** A value, where it comes from, and what the user has set. */
export interface Setting<T> {
  value: T;
  source: string;
  set_to: T | null;
}

export interface ExplainedPreferences {
  timezone: Setting<string>;
  language: Setting<string>;
  quiet_hours: Setting<Preferences["quiet_hours"]>;
  categories: Record<string, Setting<boolean>>;
  types: Record<string, Record<Channel, Setting<boolean>>>;
}

export interface Options {
  /** Where the server is, like `https://notify.example.com`. */
  url: string;
  /** How often a request is tried; 5 by default. */
  attempts?: number;
  /** How long one try may take; 30,000 by default. */
  timeoutMs?: number;
  /** In place of the global `fetch`. */
  fetch?: typeof globalThis.fetch;
}

export interface RequestOptions {
  body?: unknown;
  query?: Record<string, string | number | boolean | null | undefined>;
  idempotencyKey?: string;
  /** Whether a retry is safe; GET, PUT and DELETE are retried in any case. */
  isRepeatable?: boolean;
}

/** A response that is an error. Its message is one line with status, code, detail and fields. */
export class ClarionError extends Error {
  readonly status: number;
  readonly code: string;
  /** What is wrong, in the server's own words. */
  readonly detail: string;
  readonly errors: FieldFault[];
  readonly requestId: string | null;
  readonly retryAfterMs: number | null;
  /** Whether the same request may succeed later. */
  get isTemporary(): boolean;
}

/** The API of one app, with an API key. Never put the key into a page: use `Inbox` there. */
export class Clarion {
  constructor(options: Options & { apiKey: string });
  /** Send an event. It is accepted once, also if the request has to be repeated. */
  send(event: Event, options?: { idempotencyKey?: string }): Promise<AcceptedEvent>;
  /** Send up to 1,000 events; the result has one entry for each, in order. */
  sendBatch(
    events: Event[],
    options?: { idempotencyKey?: string },
  ): Promise<{ results: BatchResult[] }>;
  /** Send a text to the devices and the people that follow a topic, once. */
  publish(
    topic: string,
    message: string,
    options?: {
      title?: string;
      priority?: 1 | 2 | 3 | 4 | 5 | "min" | "low" | "default" | "high" | "max" | "urgent";
      tags?: string[];
      click?: string;
      idempotencyKey?: string;
    },
  ): Promise<Published>;
  /** What would become of an event: the verdict for each channel, with its reason. */
  explain(event: Event & { at?: Timestamp }): Promise<Record<string, unknown>>;
  getEvent(id: string): Promise<Record<string, unknown>>;
  cancelEvent(id: string): Promise<Record<string, unknown>>;
  /** Create or replace a user. */
  putUser(id: string, user: Record<string, unknown>): Promise<Record<string, unknown>>;
  getUser(id: string): Promise<Record<string, unknown>>;
  getTimeline(notificationId: string): Promise<Record<string, unknown>>;
  /** Call any other operation of the API: `request("GET", "/v1/types")`. */
  request<T = unknown>(method: string, path: string, options?: RequestOptions): Promise<T>;
}

/** One user's inbox, preferences and live updates. */
export class Inbox {
  /** `token` is a user token, or a function that returns one (also as a promise). */
  constructor(options: Options & { token: string | (() => string | Promise<string>) });
  list(filter?: {
    unread?: boolean;
    category?: string;
    limit?: number;
    after?: string;
  }): Promise<NotificationPage>;
  unreadCount(): Promise<UnreadCount>;
  read(id: string): Promise<Notification & UnreadCount>;
  unread(id: string): Promise<Notification & UnreadCount>;
  dismiss(id: string): Promise<Notification & UnreadCount>;
  /** Counts in the analytics, once. */
  click(id: string): Promise<Notification & UnreadCount>;
  readAll(): Promise<UnreadCount>;
  preferences(): Promise<Preferences>;
  /** With `explain`, each value comes with its source. */
  preferences(options: { explain: true }): Promise<ExplainedPreferences>;
  changePreferences(changes: Partial<Preferences>): Promise<Preferences>;
  /** The categories that the preferences have, each with its name and title. */
  categories(): Promise<Category[]>;
  /**
   * Yield every change of the inbox, until `signal` aborts or the token is refused. The stream
   * reconnects automatically and resumes after the last change, so that none is missed.
   */
  updates(options?: {
    after?: number | null;
    signal?: AbortSignal;
  }): AsyncGenerator<Update, void, undefined>;
}

/** Sign a user token with the app's user secret (HS256). On your server only. */
export function signUserToken(options: {
  appId: string;
  userId: string;
  secret: string;
  hours?: number;
}): Promise<string>;
