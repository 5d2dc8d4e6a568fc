// The page: decodes the data, connects the filters with the timeline, the charts, the trees and the tables.

const KINDS = { step: "steps", device: "card", compilation: "compilation", annotation: "annotations", operator: "operators", frame: "stacks" };
const HIDDEN_KINDS = new Set(["frame"]);
const byId = (id) => document.getElementById(id);

async function decodeColumns(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint32Array(await new Response(stream).arrayBuffer());
}

function addOptions(select, entries) {
  for (const [value, text] of entries) select.add(new Option(text, value));
}

function addKinds(traces, onChange) {
  const present = new Set(traces.flatMap((trace) => trace.tracks.map((track) => track.kind)));
  for (const [kind, title] of Object.entries(KINDS)) {
    if (!present.has(kind)) continue;
    const label = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.value = kind;
    box.checked = !HIDDEN_KINDS.has(kind);
    box.addEventListener("change", onChange);
    label.append(box, title);
    byId("kinds").append(label);
  }
}

/** Show what belongs to the chosen trace and stage: sections and rows of the tables, trees and flame graph. */
function applyFilters(data, flame) {
  const trace = byId("rank").value === "" ? null : +byId("rank").value;
  const stage = byId("stage").value;
  const rank = trace === null ? "" : String(data.traces[trace].rank);
  for (const section of document.querySelectorAll("section[data-stage]")) {
    section.classList.toggle("hidden", stage !== "" && section.dataset.stage !== stage);
  }
  for (const row of document.querySelectorAll("[data-rank]")) {
    row.classList.toggle("hidden", rank !== "" && row.dataset.rank !== "None" && row.dataset.rank !== rank);
  }
  const shown = stage || data.stages[0];
  const trees = data.trees.find((each) => each.stage === shown && (trace === null || each.trace === trace)) ?? data.trees[0];
  const where = trees ? ` (${data.traces[trees.trace].name}${trees.stage ? `, ${trees.stage}` : ""})` : "";
  byId("flame-title").textContent = `Flame graph of the stacks${where}`;
  byId("operators-title").textContent = `Operators by caller${where}`;
  byId("modules-title").textContent = `Modules${where}`;
  if (trees) {
    const hasDevice = data.traces.some((each) => each.tracks.some((track) => track.kind === "device"));
    flame.setTree(trees.flame);
    showTree(byId("operator-tree"), trees.operators, hasDevice);
    showTree(byId("module-tree"), trees.modules, hasDevice);
    byId("module-card").classList.toggle("hidden", !trees.modules[4].length);
  }
  return { trace, stage };
}

function addTooltip(timeline) {
  const { canvas } = timeline;
  const tooltip = byId("tooltip");
  canvas.addEventListener("pointermove", (event) => {
    const found = timeline.hit(event.offsetX, event.offsetY);
    tooltip.classList.toggle("hidden", !found);
    if (!found) return;
    tooltip.textContent = timeline.describe(found);
    const isRight = event.offsetX > canvas.clientWidth / 2;
    tooltip.style.left = isRight ? "auto" : `${event.offsetX + 12}px`;
    tooltip.style.right = isRight ? `${canvas.clientWidth - event.offsetX + 12}px` : "auto";
    tooltip.style.top = `${event.offsetY + 14}px`;
  });
  canvas.addEventListener("pointerleave", () => tooltip.classList.add("hidden"));
  canvas.addEventListener("click", (event) => {
    const found = timeline.hit(event.offsetX, event.offsetY);
    if (found) byId("status").textContent = timeline.describe(found);
  });
  canvas.addEventListener("dblclick", (event) => {
    const found = timeline.hit(event.offsetX, event.offsetY);
    if (!found) return;
    const start = found.track.starts[found.index];
    const duration = found.track.durations[found.index] / found.track.scale;
    timeline.show(start - duration * 0.1, start + duration * 1.1);
  });
}

function addControls(timeline) {
  const say = (text) => { byId("status").textContent = text; };
  const range = () => say(`${formatTime(timeline.start)} to ${formatTime(timeline.end)}`);
  const step = (direction) => {
    const match = timeline.step(direction);
    say(match ? `Match ${timeline.selected + 1} of ${timeline.matches.length}: ${timeline.describe(match)}` : "No match");
  };
  const actions = {
    "zoom-in": () => { timeline.zoom(2); range(); },
    "zoom-out": () => { timeline.zoom(0.5); range(); },
    reset: () => { timeline.reset(); range(); },
    previous: () => step(-1),
    next: () => step(1),
  };
  for (const [id, action] of Object.entries(actions)) byId(id).addEventListener("click", action);
  const search = byId("search");
  search.addEventListener("input", () => {
    const count = timeline.search(search.value);
    say(search.value.trim() ? `${count} ${count === 1 ? "event matches" : "events match"}` : "");
  });
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") step(event.shiftKey ? -1 : 1); });
  const keys = {
    "+": actions["zoom-in"], "=": actions["zoom-in"], ArrowUp: actions["zoom-in"],
    "-": actions["zoom-out"], ArrowDown: actions["zoom-out"],
    ArrowLeft: () => { timeline.pan(-0.15); range(); },
    ArrowRight: () => { timeline.pan(0.15); range(); },
    0: actions.reset, Home: actions.reset, n: actions.next, p: actions.previous,
  };
  timeline.canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    search.focus();
  });
}

/** Fill the table that has the timeline as text, while it is open. */
function showTimelineTable(timeline) {
  if (!byId("timeline-table").open) return;
  const rows = timeline.summarize().map((values) => {
    const row = document.createElement("tr");
    values.forEach((value, index) => {
      const each = row.insertCell();
      each.className = index < 3 ? "name" : "";
      each.textContent = value;
    });
    return row;
  });
  byId("timeline-table").querySelector("tbody").replaceChildren(...rows);
}

/** Let the keyboard reach what scrolls sideways. */
function addScrollers() {
  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  });
  for (const each of document.querySelectorAll(".scroll")) observer.observe(each);
}

async function main() {
  const data = JSON.parse(byId("data").textContent);
  const columns = await decodeColumns(data.columns);
  const hasMemory = data.traces.some((trace) => Object.keys(trace.memory).length);
  byId("memory-card").classList.toggle("hidden", !hasMemory);
  const timeline = new Timeline(byId("timeline"), data, columns, (view) => {
    if (hasMemory) byId("memory-status").textContent = paintMemory(byId("memory"), view.visibleTraces(), view);
  });
  const flame = new Flame(byId("flame"), byId("flame-status"));
  const update = () => {
    const kinds = new Set([...byId("kinds").querySelectorAll("input:checked")].map((box) => box.value));
    timeline.setFilter({ ...applyFilters(data, flame), kinds });
    showTimelineTable(timeline);
  };
  addOptions(byId("rank"), [["", "all"], ...data.traces.map((trace, index) => [index, trace.stage ? `${trace.name}, ${trace.stage}` : trace.name])]);
  addOptions(byId("stage"), [["", "all"], ...data.stages.filter(Boolean).map((stage) => [stage, stage])]);
  addKinds(data.traces, update);
  addTooltip(timeline);
  addControls(timeline);
  addScrollers();
  byId("timeline-table").addEventListener("toggle", () => showTimelineTable(timeline));
  for (const id of ["rank", "stage"]) byId(id).addEventListener("change", update);
  for (const id of ["operator-tree", "module-tree"]) addTreeKeys(byId(id));
  update();
  window.timeline = timeline;
  document.documentElement.dataset.ready = "true";
}

main();
