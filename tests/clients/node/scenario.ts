// What a program does with a client that was generated from the OpenAPI document.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

type Problem = components["schemas"]["Problem"];
type InboxItem = components["schemas"]["InboxItem"];

declare const process: { argv: string[] };
const [url, key, user] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });
const DEADLINE_MS = 30_000;

async function findItem(): Promise<InboxItem> {
  const path = { user_id: user };
  const end = Date.now() + DEADLINE_MS;
  while (Date.now() < end) {
    const { data } = await client.GET("/v1/users/{user_id}/notifications", { params: { path } });
    const item = data?.items[0];
    if (item) return item;
  }
  throw new Error("The notification did not arrive.");
}

async function main(): Promise<object> {
  const event = {
    type: "POST_LIKE",
    recipient: { user_id: user },
    actor: { id: "ben", name: "Ben" },
    target: { id: "42", type: "post" },
  };
  const headers = { "Idempotency-Key": `${user}-1` };
  const sent = await client.POST("/v1/events", { params: { header: headers }, body: event });
  if (!sent.data) throw new Error(JSON.stringify(sent.error));
  const item = await findItem();
  const path = { user_id: user, notification_id: item.id };
  const read = await client.POST("/v1/users/{user_id}/notifications/{notification_id}/read", {
    params: { path },
  });
  const refused = await client.POST("/v1/events", { body: { ...event, type: "NO_SUCH_TYPE" } });
  const problem: Problem | undefined = refused.error;
  return {
    accepted: sent.data.status,
    title: item.body.includes("Ben"),
    unread_before: item.read_at === null,
    read_at: typeof read.data?.read_at,
    unread_count: read.data?.unread_count,
    status: refused.response.status,
    code: problem?.code,
    fields: problem?.errors.map((each) => each.field),
  };
}

console.log(JSON.stringify(await main()));
