// Sends with npm `web-push`: one JSON order on stdin, one JSON answer on stdout.
//
//   node web_push.js FOLDER        FOLDER holds node_modules, as `npm ci` made it
//
// The order: {"subscription", "payload", "options"}. The answer: {"status", "headers", "body"}.
'use strict';

const path = require('path');
const { createRequire } = require('module');

const installed = createRequire(path.join(path.resolve(process.argv[2]), 'package.json'));
const webPush = installed('web-push');

const send = async text => {
  const { subscription, payload, options } = JSON.parse(text);
  const answer = await webPush
    .sendNotification(subscription, payload, options)
    .catch(error => (error.statusCode ? error : Promise.reject(error)));
  const { statusCode: status, headers, body } = answer;
  process.stdout.write(JSON.stringify({ status, headers, body }));
};

let text = '';
process.stdin.on('data', part => (text += part)).on('end', () => send(text));
