"""What Redis does in one step, in Lua. A script has one slot: that of its first key."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

# A value of a presence hash: since when, as 15 digits of milliseconds; the last heart-beat, as 11
# digits of seconds; then "NODE/INCARNATION/". So texts compare as the numbers do, and what belongs
# to a node, or to one incarnation of it, is found by how the text begins.
SINCE_DIGITS = 15
BEAT_DIGITS = 11
NODE_START = SINCE_DIGITS + BEAT_DIGITS
# Presence without a heart-beat for longer is that of a node that is gone.
EXPIRES_S = 60


class Script(NamedTuple):
    """A script, and the name by which a server runs it."""

    text: str
    digest: str


def _script(text: str) -> Script:
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


# KEYS: counters. ARGV: the seconds of the window, and the limit of each.
# Counts each key in turn, up to the first that is beyond its limit: one call for all of them.
TAKE_ALL = _script("""
local counts = {}
for i, key in ipairs(KEYS) do
  counts[i] = redis.call('INCR', key)
  if counts[i] == 1 then redis.call('EXPIRE', key, ARGV[1]) end
  if counts[i] > tonumber(ARGV[i + 1]) then break end
end
return counts
""")

# KEYS: a presence hash. ARGV: second, "NODE/", "INCARNATION/", and pairs: device, since when.
# The newest connection wins; of two that are as new, that of the node whose name sorts last.
# Returns pairs of a device and its former holder, or '' if it is the caller that loses it.
HOLD = _script(f"""
local changed = {{}}
for i = 4, #ARGV, 2 do
  local former = redis.call('HGET', KEYS[1], ARGV[i])
  local wins = true
  if former and string.sub(former, {NODE_START + 1}, {NODE_START} + #ARGV[2]) ~= ARGV[2] then
    local node = string.sub(former, {NODE_START + 1})
    local beat = tonumber(string.sub(former, {SINCE_DIGITS + 1}, {NODE_START}))
    local rank = string.sub(former, 1, {SINCE_DIGITS}) .. node
    wins = rank < ARGV[i + 1] .. ARGV[2] or beat + {EXPIRES_S} < tonumber(ARGV[1])
    changed[#changed + 1] = ARGV[i]
    changed[#changed + 1] = wins and node or ''
  end
  if wins then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1] .. ARGV[1] .. ARGV[2] .. ARGV[3])
  end
end
redis.call('EXPIRE', KEYS[1], {4 * EXPIRES_S})
return changed
""")

# KEYS: a presence hash. ARGV: "NODE/" or "NODE/INCARNATION/", and devices.
# Deletes entries that still belong to the node, or to that incarnation of it.
RELEASE = _script(f"""
for i = 2, #ARGV do
  local value = redis.call('HGET', KEYS[1], ARGV[i])
  if value and string.sub(value, {NODE_START + 1}, {NODE_START} + #ARGV[1]) == ARGV[1] then
    redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return 0
""")

# KEYS: a presence hash. ARGV: second, cursor, count. Deletes what has expired in a part of the
# hash, and returns the cursor of the next part.
SWEEP = _script(f"""
local part = redis.call('HSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
for i = 1, #part[2], 2 do
  local beat = tonumber(string.sub(part[2][i + 1], {SINCE_DIGITS + 1}, {NODE_START}))
  if not beat or beat + {EXPIRES_S} < tonumber(ARGV[1]) then
    redis.call('HDEL', KEYS[1], part[2][i])
  end
end
return part[1]
""")

SCRIPTS = (TAKE_ALL, HOLD, RELEASE, SWEEP)
