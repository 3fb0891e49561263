// The plots of the overview. They ask for new figures every few seconds, while the page is seen.

const EVERY_MS = 5000;
const KEPT = 720;
const place = document.getElementById("plots");
const plots = new Map();
const now = [[], [], [], []];

// A colour that follows light and dark: `light-dark()` is resolved by an element that has it.
function resolve(name) {
  const probe = document.createElement("span");
  probe.className = `ink-${name}`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

const pad = (number) => String(number).padStart(2, "0");
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

function showMoments(_plot, moments, _axis, _space, step) {
  return moments.map((each) => {
    const at = new Date(each * 1000);
    if (step >= 86400) return DAY.format(at);
    return `${pad(at.getHours())}:${pad(at.getMinutes())}${step < 60 ? `:${pad(at.getSeconds())}` : ""}`;
  });
}

function axis(unit) {
  const stroke = resolve("muted");
  const grid = { stroke: resolve("line"), width: 1 };
  return { stroke, grid, ticks: { show: false }, font: "12px system-ui", size: 42, values: unit };
}

// From the first sample to the last, at least a minute. For a single one uPlot would take 1,000 days.
function spanOf(plot) {
  const moments = plot.data[0];
  const last = moments.at(-1) ?? Date.now() / 1000;
  return [Math.min(moments[0] ?? last, last - 60), last];
}

// A line needs two points; with few of them they are drawn, too.
const isSparse = (column) => column.filter((each) => each !== null).length < 5;

function draw(id, labels, columns, { isShare = false } = {}) {
  const names = ["one", "two", "three", "four", "five"];
  const element = document.getElementById(id);
  const old = plots.get(id);
  if (old && old.series.length === columns.length) return old.setData(columns);
  old?.destroy();
  const range = isShare
    ? (_plot, low) => [Math.max(0, Math.floor(Math.min(low ?? 100, 100) / 10) * 10 - 10), 101]
    : (_plot, _low, high) => [0, Math.max(1, high ?? 1) * 1.1];
  const shown = (plot, values) => values.map((each) => (each >= 10000 ? `${each / 1000}k` : each));
  const options = {
    width: Math.max(200, element.clientWidth - 16),
    height: 190,
    cursor: { y: false, points: { size: 6 } },
    legend: { live: true },
    scales: { x: { range: spanOf }, y: { range } },
    axes: [{ ...axis(showMoments), size: 28, space: 70 }, axis(shown)],
    series: [{ value: (_plot, at) => (at === null ? "–" : new Date(at * 1000).toLocaleTimeString()) },
      ...labels.map((label, index) => ({
        label, stroke: resolve(names[index % names.length]), width: 2, spanGaps: true, points: { show: isSparse(columns[index + 1]), size: 6 },
        value: (_plot, value) => (value === null ? "–" : value.toLocaleString()),
      }))],
  };
  plots.set(id, new uPlot(options, columns, element));
}

function remember(live) {
  const row = [Date.parse(live.at) / 1000, live.devices_online, live.clients_online, live.queue_length];
  row.forEach((value, index) => now[index].push(value));
  if (now[0].length > KEPT) now.forEach((column) => column.shift());
}

function show(figures) {
  draw("throughput", ["Events", "Sent on channels", "Messages to devices"], figures.throughput);
  draw("rates", figures.channels.map((each) => each.replace("_", " ")), figures.rates, { isShare: true });
  draw("latency", ["p50", "p95"], figures.latency);
  remember(figures.live);
  draw("now", ["Devices", "Open inboxes", "Waiting jobs"], now);
}

async function update() {
  if (document.hidden) return;
  try {
    const answer = await fetch(place.dataset.figures, { headers: { "Clarion-Poll": "1" } });
    if (answer.redirected) location.reload();
    else if (answer.ok) show(await answer.json());
  } catch {
    // The server is away for a moment; the next time may succeed.
  }
}

function redraw() {
  for (const plot of plots.values()) plot.destroy();
  plots.clear();
  update();
}

let resizing;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(redraw, 150); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
document.addEventListener("visibilitychange", update);
setInterval(update, EVERY_MS);
update();
