// Drives @parse/node-apn: one JSON order a line on stdin, one JSON answer a line on stdout.
//
//   node driver.js FOLDER        FOLDER holds node_modules, as `npm ci` made it
//
// Orders: {"id", "do": "open" | "send" | "channels" | "broadcast" | "close", ...}.
// Answers: {"id", "sent": [...], "failed": [{"status", "reason", ...}]}, or {"id", "fault": text}.
'use strict';

const path = require('path');
const readline = require('readline');
const http2 = require('http2');
const { createRequire } = require('module');

const installed = createRequire(path.join(path.resolve(process.argv[2]), 'package.json'));

// Counted, so that a test can check that everything went over one session.
let sessions = 0;
const connect = http2.connect;
http2.connect = (...args) => {
  sessions += 1;
  return connect.apply(http2, args);
};

const apn = installed('@parse/node-apn');
const jwt = createRequire(installed.resolve('@parse/node-apn'))('jsonwebtoken');

let provider = null;
let identity = null;

const makeNotification = properties => Object.assign(new apn.Notification(), properties);

const flatten = failure => ({
  device: failure.device,
  status: failure.status,
  reason: failure.response ? failure.response.reason : undefined,
  timestamp: failure.response ? failure.response.timestamp : undefined,
  error: failure.error ? String(failure.error.message) : undefined,
  'apns-id': failure['apns-id'],
});

const summarise = results => ({
  sent: results.flatMap(result => result.sent),
  failed: results.flatMap(result => result.failed).map(flatten),
  sessions,
});

const orders = {
  open: async ({ options }) => {
    sessions = 0;
    identity = options.token;
    provider = new apn.Provider(options);
    return {};
  },
  // As if the client had been asleep: its token is of another hour.
  age: async ({ seconds }) => {
    const issued = Math.floor(Date.now() / 1000) - seconds;
    const header = { kid: identity.keyId };
    const options = { algorithm: 'ES256', issuer: identity.teamId, header };
    const token = provider.client.config.token;
    token.current = jwt.sign({ iat: issued }, identity.key, options);
    token.iat = issued + seconds;
    return {};
  },
  // One call of `send` for each notification, all of them at once.
  send: async ({ notifications, devices }) =>
    summarise(
      await Promise.all(notifications.map(each => provider.send(makeNotification(each), devices)))
    ),
  channels: async ({ action, bundleId, notification }) =>
    summarise([await provider.manageChannels(makeNotification(notification), bundleId, action)]),
  broadcast: async ({ bundleId, notification }) =>
    summarise([await provider.broadcast(makeNotification(notification), bundleId)]),
  close: async () => {
    await provider.client.shutdown();
    return {};
  },
};

const obey = async line => {
  const order = JSON.parse(line);
  let answer;
  try {
    answer = await orders[order.do](order);
  } catch (error) {
    answer = { fault: String(error.stack || JSON.stringify(error)) };
  }
  process.stdout.write(`${JSON.stringify({ id: order.id, ...answer })}\n`);
};

readline.createInterface({ input: process.stdin }).on('line', obey).on('close', () => process.exit(0));
