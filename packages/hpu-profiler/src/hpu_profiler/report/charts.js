// Charts next to the timeline: memory over time, and the flame graph of a call tree.

const FLAME_ROW = 18;
const MAX_FLAME_ROWS = 48;
const MAX_CALLERS = 3;

function fitCanvas(canvas, height) {
  const ratio = devicePixelRatio || 1;
  const width = canvas.parentElement.clientWidth;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = "11px system-ui, sans-serif";
  return [context, width];
}

function formatBytes(size) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; Math.abs(size) >= 1024 && unit < units.length - 1; unit++) size /= 1024;
  return `${+size.toFixed(1)} ${units[unit]}`;
}

/** Draw the allocated memory of the traces below the timeline's view; return a sentence about its peak. */
function paintMemory(canvas, traces, { start, end, labelWidth }) {
  const height = 140;
  const [context, width] = fitCanvas(canvas, height);
  const style = getComputedStyle(document.documentElement);
  const lines = traces.flatMap((trace) => Object.entries(trace.memory).map(([device, samples]) => ({ trace, device, samples })));
  const top = Math.max(1, ...lines.map(({ samples }) => Math.max(...samples[1])));
  const colors = ["kernel", "collective", "memcpy", "data-loading", "host-sync"].map((name) => style.getPropertyValue(`--${name}`));
  lines.forEach(({ samples: [times, values] }, index) => {
    context.strokeStyle = colors[index % colors.length];
    context.lineWidth = 1.5;
    context.save();
    context.beginPath();
    context.rect(labelWidth, 0, width, height);
    context.clip();
    context.beginPath();
    let y = height;
    times.forEach((time, i) => {
      const x = labelWidth + ((time - start) / (end - start)) * (width - labelWidth);
      context.lineTo(x, y);
      y = height - 4 - (values[i] / top) * (height - 24);
      context.lineTo(x, y);
    });
    context.stroke();
    context.restore();
  });
  context.fillStyle = style.getPropertyValue("--muted");
  context.fillText(formatBytes(top), 4, 12);
  return lines.map(({ trace, device, samples }) => `${trace.name}, ${device}: peak ${formatBytes(Math.max(...samples[1]))}`).join(" · ");
}

/** Flame graph of a tree of [name, time, calls, device time, children]; the callers are at the top. */
class Flame {
  constructor(canvas, status) {
    this.canvas = canvas;
    this.status = status;
    this.path = [];
    canvas.addEventListener("click", (event) => {
      const box = this.boxes.find((each) => this.contains(each, event));
      if (box) this.focus(box.path);
    });
    canvas.addEventListener("pointermove", (event) => {
      const box = this.boxes.find((each) => this.contains(each, event));
      if (box) this.describe(box.path.at(-1));
    });
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.paint()).observe(canvas.parentElement);
  }

  contains(box, event) {
    return event.offsetX >= box.x && event.offsetX < box.x + box.w && event.offsetY >= box.y && event.offsetY < box.y + FLAME_ROW;
  }

  /** Show a tree from the first function with more than one callee of weight. */
  setTree(root) {
    const path = [root];
    for (let child = root[4][0]; child && child[1] > 0.97 * path.at(-1)[1]; child = child[4][0]) path.push(child);
    this.focus(path);
  }

  focus(path) {
    this.path = path;
    this.describe(path.at(-1));
    this.paint();
  }

  describe([name, time, calls]) {
    const share = this.path[0][1] ? ((100 * time) / this.path[0][1]).toFixed(1) : 0;
    this.status.textContent = `${name}: ${formatTime(time)}, ${share} %${calls ? `, ${calls} calls` : ""}`;
  }

  onKey(event) {
    const node = this.path.at(-1);
    const siblings = this.path.length > 1 ? this.path.at(-2)[4] : [node];
    const position = siblings.indexOf(node);
    const moves = {
      ArrowDown: () => node[4].length && this.focus([...this.path, node[4][0]]),
      ArrowUp: () => this.path.length > 1 && this.focus(this.path.slice(0, -1)),
      ArrowRight: () => siblings[position + 1] && this.focus([...this.path.slice(0, -1), siblings[position + 1]]),
      ArrowLeft: () => siblings[position - 1] && this.focus([...this.path.slice(0, -1), siblings[position - 1]]),
      Escape: () => this.focus(this.path.slice(0, 1)),
      Home: () => this.focus(this.path.slice(0, 1)),
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
  }

  /** Collect the boxes below the focused node; its nearest callers span the whole width. */
  place(width) {
    const first = Math.max(this.path.length - 1 - MAX_CALLERS, 0);
    this.first = first;
    this.boxes = [];
    for (let depth = first; depth < this.path.length - 1; depth++) {
      this.boxes.push({ path: this.path.slice(0, depth + 1), x: 0, w: width, y: (depth - first) * FLAME_ROW });
    }
    const visit = (path, x, w) => {
      this.boxes.push({ path, x, w, y: (path.length - 1 - first) * FLAME_ROW });
      const [, time, , , children] = path.at(-1);
      if (path.length >= this.path.length + MAX_FLAME_ROWS) return;
      let left = x;
      for (const child of children) {
        const childWidth = time ? (child[1] / time) * w : 0;
        if (childWidth >= 1) visit([...path, child], left, childWidth);
        left += childWidth;
      }
    };
    visit(this.path, 0, width);
  }

  paint() {
    if (!this.path.length) return;
    this.place(this.canvas.parentElement.clientWidth);
    const rows = Math.max(...this.boxes.map((box) => box.path.length)) - this.first;
    const [context] = fitCanvas(this.canvas, rows * FLAME_ROW + 2);
    for (const { path, x, w, y } of this.boxes) {
      const name = shortName(path.at(-1)[0]);
      context.fillStyle = flameColor(name, path.length < this.path.length);
      context.fillRect(x, y, Math.max(w - 1, 0.5), FLAME_ROW - 1);
      const room = Math.floor((w - 6) / 6.2);
      if (room < 4) continue;
      context.fillStyle = "#201a14";
      context.fillText(name.length > room ? `${name.slice(0, room - 1)}…` : name, x + 3, y + 12.5);
    }
  }
}

/** Return a color by the file of a function: libraries are gray, other names vary in hue. */
function flameColor(name, isCaller) {
  const file = name.replace(/\(\d+\).*/, "");
  let hash = 0;
  for (let i = 0; i < file.length; i++) hash = (hash * 31 + file.charCodeAt(i)) >>> 0;
  if (/^(torch|lightning|lightning_\w+|pytorch_lightning|hpu_\w+)\//.test(name)) return `hsl(${210 + (hash % 30)} 18% ${isCaller ? 82 : 74}%)`;
  return `hsl(${20 + (hash % 35)} ${isCaller ? 45 : 80}% ${isCaller ? 80 : 68}%)`;
}
