// Runs the JavaScript client by commands: one JSON object a line in, one a line out.
import { createInterface } from "node:readline";

import { makeClient } from "./commands.mjs";

const [path, url, apiKey, appId, secret] = process.argv.slice(2);
const answer = makeClient(await import(path), { url, apiKey, appId, secret });

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
}
process.exit(0);
