// What a client is told to do, one command at a time; in Node and in a page of a browser.

// Enough for a server that starts on a busy machine.
const attempts = 10;

/** Return a function that carries out a command and returns its answer. */
export function makeClient({ Clarion, ClarionError, Inbox, signUserToken }, { url, apiKey, appId, secret }) {
  const clarion = new Clarion({ url, apiKey, attempts });
  const inboxes = new Map();
  const updates = new Map();

  function inboxOf(userId) {
    if (!inboxes.has(userId)) {
      const token = () => signUserToken({ appId, userId, secret });
      inboxes.set(userId, new Inbox({ url, token, attempts }));
    }
    return inboxes.get(userId);
  }

  const commands = {
    put_user: ({ user }) => clarion.putUser(user, {}),
    send: ({ event, key }) => clarion.send(event, key ? { idempotencyKey: key } : {}),
    explain: ({ event }) => clarion.explain(event),
    get: ({ name, id }) => clarion[name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase())](id),
    explained_preferences: ({ user }) => inboxOf(user).preferences({ explain: true }),
    send_batch: async ({ events }) => (await clarion.sendBatch(events)).results,
    publish: ({ topic, message, ...fields }) => clarion.publish(topic, message, fields),
    categories: ({ user }) => inboxOf(user).categories(),
    list: ({ user, ...filter }) => inboxOf(user).list(filter),
    unread_count: ({ user }) => inboxOf(user).unreadCount(),
    read: ({ user, id }) => inboxOf(user).read(id),
    unread: ({ user, id }) => inboxOf(user).unread(id),
    dismiss: ({ user, id }) => inboxOf(user).dismiss(id),
    read_all: ({ user }) => inboxOf(user).readAll(),
    change_preferences: ({ user, changes }) => inboxOf(user).changePreferences(changes),
    preferences: ({ user }) => inboxOf(user).preferences(),
    watch: ({ user, after }) => {
      updates.set(user, inboxOf(user).updates({ after: after ?? null }));
      return null;
    },
    next: async ({ user }) => (await updates.get(user).next()).value,
  };

  return async ({ do: name, ...given }) => {
    try {
      return { ok: await commands[name](given) };
    } catch (error) {
      if (!(error instanceof ClarionError)) throw error;
      const { status, code, errors } = error;
      return { error: { status, code, fields: errors.map((each) => each.field) } };
    }
  };
}
