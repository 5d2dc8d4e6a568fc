// Timeline on a canvas: rows of events that do not overlap, drawn one pixel column at a time however many they are.
"use strict";

const ROW_HEIGHT = 15;
const HEAD_HEIGHT = 24;
const MIN_SPAN = 0.5; // microseconds

function formatTime(us) {
  const abs = Math.abs(us);
  if (abs < 999.95) return `${+us.toFixed(1)} us`;
  if (abs < 999500) return `${+(us / 1e3).toPrecision(3)} ms`;
  return `${+(us / 1e6).toFixed(2)} s`;
}

/** Return a time on an axis with the digits that tell it from its neighbors, `step` microseconds away. */
function formatTick(us, step) {
  const [size, unit] = us < 1e3 ? [1, "us"] : us < 1e6 ? [1e3, "ms"] : [1e6, "s"];
  return `${(us / size).toFixed(Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9)))} ${unit}`;
}

/** Return the first index from `low` whose value is at least `value`. */
function lowerBound(values, value, low = 0) {
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Return the columns of a track: starts in microseconds, durations, indices of names. */
function decodeTrack(track, columns, scale) {
  const { offset, count } = track;
  const starts = new Float64Array(count);
  let tick = 0;
  for (let i = 0; i < count; i++) {
    tick += columns[offset + i];
    starts[i] = tick / scale;
  }
  return {
    ...track,
    starts,
    durations: columns.subarray(offset + count, offset + 2 * count),
    names: columns.subarray(offset + 2 * count, offset + 3 * count),
    scale,
    matches: null,
  };
}

class Timeline {
  constructor(canvas, data, columns, onChange) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.names = data.names;
    this.onChange = onChange;
    this.traces = data.traces.map((trace) => ({
      ...trace,
      tracks: trace.tracks.map((track) => decodeTrack(track, columns, trace.scale)),
    }));
    this.duration = Math.max(1, ...this.traces.map((trace) => trace.duration));
    this.filter = { trace: null, stage: "", kinds: new Set() };
    this.query = "";
    this.matches = [];
    this.selected = -1;
    this.start = 0;
    this.end = this.duration;
    this.pending = 0;
    this.colors = new Map();
    this.addPointers();
    new ResizeObserver(() => this.layout()).observe(canvas.parentElement);
    for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
      matchMedia(query).addEventListener("change", () => { this.colors.clear(); this.draw(); });
    }
  }

  setFilter(filter) {
    Object.assign(this.filter, filter);
    this.search(this.query);
    this.layout();
  }

  visibleTraces() {
    return this.traces.filter((_, index) => this.filter.trace === null || this.filter.trace === index);
  }

  layout() {
    const width = this.canvas.parentElement.clientWidth;
    this.labelWidth = width < 600 ? 0 : 120;
    this.rows = [];
    let y = 20;
    for (const trace of this.visibleTraces()) {
      this.rows.push({ trace, y, height: HEAD_HEIGHT });
      y += HEAD_HEIGHT;
      for (const track of trace.tracks) {
        if (!this.filter.kinds.has(track.kind)) continue;
        // Without a column for labels, a title needs a line of its own.
        if (track.title && !this.labelWidth) { this.rows.push({ trace, title: track.title, y, height: 14 }); y += 14; }
        this.rows.push({ trace, track, y, height: ROW_HEIGHT });
        y += ROW_HEIGHT + (track.kind === "step" ? 4 : 0);
      }
      y += 8;
    }
    const ratio = devicePixelRatio || 1;
    this.width = width;
    this.height = y;
    this.canvas.width = width * ratio;
    this.canvas.height = y * ratio;
    this.canvas.style.height = `${y}px`;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.paint();
  }

  draw() {
    if (!this.pending) this.pending = requestAnimationFrame(() => { this.pending = 0; this.paint(); });
  }

  /** Return the colors of a kind of events by the index of their name. */
  palette(kind) {
    if (!this.colors.has(kind)) {
      const style = getComputedStyle(document.documentElement);
      this.colors.set(kind, this.names.map((name) => style.getPropertyValue(`--${colorName(kind, name)}`).trim()));
    }
    return this.colors.get(kind);
  }

  paint() {
    const { context, width, height, labelWidth } = this;
    const style = getComputedStyle(document.documentElement);
    this.text = style.getPropertyValue("--text");
    this.muted = style.getPropertyValue("--muted");
    context.clearRect(0, 0, width, height);
    this.pixels = (width - labelWidth) / (this.end - this.start);
    this.paintAxis(style);
    for (const row of this.rows) {
      context.font = "12px system-ui, sans-serif";
      if (row.track) this.paintRow(row, style);
      else if (row.title) this.paintText(row.title, 4, row.y + 11, this.muted);
      else this.paintHead(row, style);
    }
    if (this.filter.stage) this.paintOtherStages(style);
    this.onChange(this);
  }

  paintAxis(style) {
    const { context, labelWidth, width } = this;
    const rough = (this.end - this.start) / Math.max((width - labelWidth) / 110, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
    context.font = "11px system-ui, sans-serif";
    for (let time = Math.ceil(this.start / step) * step; time < this.end; time += step) {
      const x = labelWidth + (time - this.start) * this.pixels;
      context.fillStyle = style.getPropertyValue("--border");
      context.fillRect(x, 16, 1, this.height);
      this.paintText(formatTick(time, step), x + 3, 12, this.muted);
    }
  }

  paintHead(row, style) {
    const { context, labelWidth } = this;
    context.font = "600 12px system-ui, sans-serif";
    this.paintText(row.trace.name, 4, row.y + 16, this.text);
    for (const [stage, from, to] of row.trace.segments) {
      const x0 = Math.max(labelWidth + (from - this.start) * this.pixels, labelWidth || 70);
      const x1 = Math.min(labelWidth + (to - this.start) * this.pixels, this.width);
      if (x1 <= x0) continue;
      context.fillStyle = style.getPropertyValue(`--${stage}`);
      context.fillRect(x0, row.y + 19, Math.max(x1 - x0 - 1, 1), 3);
      if (x1 - x0 > 50) this.paintText(stage, x0 + 2, row.y + 15, this.muted);
    }
  }

  paintText(text, x, y, color) {
    this.context.fillStyle = color;
    this.context.fillText(text, x, y);
  }

  paintRow({ track, y }, style) {
    const { context, labelWidth } = this;
    if (track.title && labelWidth) {
      const title = track.title.length > 17 ? `${track.title.slice(0, 16)}…` : track.title;
      this.paintText(title, 4, y + 11, this.muted);
    }
    context.save();
    context.beginPath();
    context.rect(labelWidth, y, this.width - labelWidth, ROW_HEIGHT);
    context.clip();
    this.paintEvents(track, track.starts, null, y, this.query ? 0.25 : 1);
    if (track.matches) this.paintEvents(track, track.matchStarts, track.matches, y, 1);
    const match = this.matches[this.selected];
    if (match && match.track === track) {
      const [x, w] = this.place(track, match.index);
      context.strokeStyle = style.getPropertyValue("--text");
      context.lineWidth = 2;
      context.strokeRect(x, y + 1, Math.max(w, 3), ROW_HEIGHT - 3);
    }
    context.restore();
  }

  /**
   * Draw the events of a row, or those with the given indices, by their starts. Events that share a pixel column with the
   * one before are skipped by binary search.
   */
  paintEvents(track, starts, indices, y, alpha) {
    const { context } = this;
    const palette = this.palette(track.kind);
    let color = "";
    context.globalAlpha = alpha;
    let i = Math.max(lowerBound(starts, this.start) - 1, 0);
    while (i < starts.length && starts[i] < this.end) {
      const index = indices ? indices[i] : i;
      const [x, w] = this.place(track, index);
      if (x + w >= this.labelWidth) {
        const name = track.names[index];
        // The browser parses a color each time it is set.
        if (palette[name] !== color) context.fillStyle = color = palette[name];
        context.fillRect(x, y, Math.max(w - 0.5, 1), ROW_HEIGHT - 2);
        if (w > 34) {
          this.paintLabel(this.names[name], x, w, y, labelColor(palette[name]));
          color = "";
        }
      }
      i = w < 1 ? lowerBound(starts, starts[i] + 1 / this.pixels, i + 1) : i + 1;
    }
    context.globalAlpha = 1;
  }

  paintLabel(name, x, w, y, color) {
    const left = Math.max(x, this.labelWidth);
    const room = Math.floor((x + w - left - 6) / 6.2);
    if (room < 4) return;
    const text = shortName(name);
    this.context.font = "11px system-ui, sans-serif";
    this.paintText(text.length > room ? `${text.slice(0, room - 1)}…` : text, left + 3, y + 10.5, color);
  }

  place(track, index) {
    const x = this.labelWidth + (track.starts[index] - this.start) * this.pixels;
    return [x, (track.durations[index] / track.scale) * this.pixels];
  }

  paintOtherStages(style) {
    const { context, labelWidth } = this;
    context.fillStyle = style.getPropertyValue("--empty");
    context.globalAlpha = 0.8;
    for (const row of this.rows) {
      if (!row.track) continue;
      let from = 0;
      for (const [stage, start, end] of [...row.trace.segments, ["", row.trace.duration, row.trace.duration]]) {
        if (stage && stage !== this.filter.stage) continue;
        const x0 = Math.max(labelWidth + (from - this.start) * this.pixels, labelWidth);
        const x1 = labelWidth + (start - this.start) * this.pixels;
        if (x1 > x0) context.fillRect(x0, row.y, x1 - x0, row.height);
        from = end;
      }
    }
    context.globalAlpha = 1;
  }

  /** Return the rows of the timeline as text: trace, track, longest event, number of events, total time. */
  summarize() {
    const groups = [];
    for (const trace of this.visibleTraces()) {
      for (const track of trace.tracks) {
        if (!this.filter.kinds.has(track.kind)) continue;
        // Events that overlap have rows of their own, without a title.
        const last = groups.at(-1);
        if (!track.title && last?.trace === trace && last.kind === track.kind) last.tracks.push(track);
        else groups.push({ trace, kind: track.kind, title: track.title, tracks: [track] });
      }
    }
    return groups.map(({ trace, kind, title, tracks }) => {
      let [count, total, longest, name] = [0, 0, 0, ""];
      for (const { durations, names, scale } of tracks) {
        count += durations.length;
        for (let i = 0; i < durations.length; i++) {
          const duration = durations[i] / scale;
          total += duration;
          if (duration >= longest) [longest, name] = [duration, this.names[names[i]]];
        }
      }
      const what = title && title !== KINDS[kind] ? `${KINDS[kind]}: ${title}` : KINDS[kind];
      const where = trace.stage ? `${trace.name}, ${trace.stage}` : trace.name;
      return [where, what, `${shortName(name)}, ${formatTime(longest)}`, count, formatTime(total)];
    });
  }

  timeAt(x) {
    return this.start + (x - this.labelWidth) / this.pixels;
  }

  /** Return the track and index of the event at a point of the canvas, or null. */
  hit(x, y) {
    const row = this.rows.find((each) => each.track && y >= each.y && y < each.y + each.height);
    if (!row || x < this.labelWidth) return null;
    const tolerance = 1 / this.pixels;
    const time = this.timeAt(x);
    const index = lowerBound(row.track.starts, time + tolerance) - 1;
    if (index < 0) return null;
    const end = row.track.starts[index] + row.track.durations[index] / row.track.scale;
    return end + tolerance >= time ? { trace: row.trace, track: row.track, index } : null;
  }

  describe({ trace, track, index }) {
    const name = this.names[track.names[index]];
    const duration = formatTime(track.durations[index] / track.scale);
    return `${name}: ${duration}, at ${formatTime(track.starts[index])}, ${trace.name}`;
  }

  show(start, end) {
    const span = Math.min(Math.max(end - start, MIN_SPAN), this.duration);
    this.start = Math.min(Math.max(start, 0), this.duration - span);
    this.end = this.start + span;
    this.draw();
  }

  zoom(factor, center = (this.start + this.end) / 2) {
    this.show(center - (center - this.start) / factor, center + (this.end - center) / factor);
  }

  pan(fraction) {
    const shift = (this.end - this.start) * fraction;
    this.show(this.start + shift, this.end + shift);
  }

  reset() {
    this.show(0, this.duration);
  }

  /** Find the events whose name contains a text; return their number. */
  search(query) {
    this.query = query.trim().toLowerCase();
    this.matches = [];
    this.selected = -1;
    const isMatch = this.names.map((name) => this.query !== "" && name.toLowerCase().includes(this.query));
    for (const trace of this.visibleTraces()) {
      for (const track of trace.tracks) {
        track.matches = null;
        if (!this.query || !this.filter.kinds.has(track.kind)) continue;
        track.matches = Array.from(track.names.keys()).filter((index) => isMatch[track.names[index]]);
        track.matchStarts = Float64Array.from(track.matches, (index) => track.starts[index]);
        for (const index of track.matches) this.matches.push({ trace, track, index });
      }
    }
    this.matches.sort((a, b) => a.track.starts[a.index] - b.track.starts[b.index]);
    this.draw();
    return this.matches.length;
  }

  /** Select the next or the previous match and bring it into view; return it, or null. */
  step(direction) {
    const count = this.matches.length;
    if (!count) return null;
    const first = direction > 0 ? 0 : count - 1;
    this.selected = this.selected < 0 ? first : (this.selected + direction + count) % count;
    const match = this.matches[this.selected];
    const start = match.track.starts[match.index];
    const duration = match.track.durations[match.index] / match.track.scale;
    const span = Math.min(this.end - this.start, Math.max(duration * 20, MIN_SPAN));
    const center = start + duration / 2;
    this.show(center - span / 2, center + span / 2);
    return match;
  }

  addPointers() {
    const { canvas } = this;
    const pointers = new Map();
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan((event.deltaX || event.deltaY) / 1500);
      else this.zoom(Math.exp(-event.deltaY / 400), this.timeAt(event.offsetX));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, event.offsetX);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!pointers.has(event.pointerId)) return;
      const before = [...pointers.values()];
      pointers.set(event.pointerId, event.offsetX);
      const after = [...pointers.values()];
      if (after.length === 1) this.pan((before[0] - after[0]) / (this.width - this.labelWidth));
      else this.zoom(Math.abs(after[0] - after[1]) / Math.max(Math.abs(before[0] - before[1]), 1), this.timeAt((after[0] + after[1]) / 2));
    });
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, (event) => pointers.delete(event.pointerId));
    }
  }
}

const COLLECTIVE = /hccl|nccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast/i;
const DATA_LOADING = /dataloader_next$|\.(val|test|predict|sanity_check)_next$|^enumerate\(DataLoader\)/;

/** Return the name of the CSS variable with the color of an event. */
function colorName(kind, name) {
  if (kind === "device") {
    if (COLLECTIVE.test(name)) return "collective";
    return /memcpy|memset/i.test(name) ? "memcpy" : "kernel";
  }
  if (kind === "annotation" && DATA_LOADING.test(name)) return "data-loading";
  return kind;
}

const labelColors = new Map();

/** Return black or white, whichever has more contrast to a color such as "#2f74b5". */
function labelColor(color) {
  if (!labelColors.has(color)) {
    const [red, green, blue] = [1, 3, 5]
      .map((start) => parseInt(color.slice(start, start + 2), 16) / 255)
      .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    labelColors.set(color, 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff");
  }
  return labelColors.get(color);
}

function shortName(name) {
  return name.replace(/^\[pl\]\[(profile|module)\]/, "").replace(/^aten::|^autograd::engine::evaluate_function: /, "").replace(/^ProfilerStep#/, "step ");
}
