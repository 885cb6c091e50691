// A line plot on a canvas: points are added, and drawn once a frame at most.

const MAX_POINTS = 1200; // then neighbours are averaged
const TEXT = 0.75; // the size of text, as a share of the page's own: it grows with that

/**
 * The pen of a canvas in the memory of this thread. An accelerated one would wait for the browser's
 * GPU process, which is busy with training.
 */
export function penOf(canvas) {
  return canvas.getContext('2d', { willReadFrequently: true });
}

/** A colour of the style sheet. */
export function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export class Plot {
  /**
   * @param canvas the element
   * @param options `name`; `logarithmic`; `range` of y if it is fixed; `guide`, a y with a dashed
   *   line; `format` of y
   */
  constructor(canvas, options) {
    Object.assign(this, { canvas, options, points: [], end: 0, pending: false });
    this.empty = canvas.parentElement.querySelector('.empty');
    new ResizeObserver(() => this.request()).observe(canvas);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.request());
  }

  clear() {
    this.points = [];
    this.end = 0;
    this.request();
  }

  /** Lets the axis end at `x` at least. */
  extend(x) {
    if (x <= this.end) return;
    this.end = x;
    this.request();
  }

  add(x, y) {
    this.end = Math.max(this.end, x);
    this.points.push([x, y]);
    if (this.points.length > MAX_POINTS) {
      const pairs = [];
      for (let i = 0; i + 1 < this.points.length; i += 2) {
        const [[a, b], [c, d]] = [this.points[i], this.points[i + 1]];
        pairs.push([c, (b + d) / 2]);
      }
      this.points = pairs;
    }
    this.request();
  }

  request() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.draw();
    });
  }

  /** The smallest and largest y, on the scale of the axis. */
  range() {
    if (this.options.range) return this.options.range;
    const values = this.points.map(p => this.scale(p[1]));
    let [low, high] = [Math.min(...values), Math.max(...values)];
    if (values.length === 0) [low, high] = [-2, 0.5];
    const margin = Math.max(0.05 * (high - low), 0.05);
    return [low - margin, high + margin];
  }

  scale(y) {
    return this.options.logarithmic ? Math.log10(Math.max(y, 1e-8)) : y;
  }

  ticks([low, high]) {
    if (!this.options.logarithmic) return [0, 0.25, 0.5, 0.75, 1];
    const all = [];
    const steps = high - low > 2 ? [1] : [1, 2, 5];
    for (let e = Math.floor(low); e <= high; e++) all.push(...steps.map(s => s * 10 ** e));
    return all.filter(y => this.scale(y) >= low && this.scale(y) <= high);
  }

  draw() {
    const { canvas, options } = this;
    const ratio = devicePixelRatio;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (width === 0) return;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = penOf(canvas);
    pen.scale(ratio, ratio);
    const size = TEXT * parseFloat(getComputedStyle(document.documentElement).fontSize);
    pen.font = `${size}px system-ui, sans-serif`;
    const [low, high] = this.range();
    const labels = this.ticks([low, high]).map(y => [y, options.format(y)]);
    const widest = Math.max(...labels.map(([, text]) => pen.measureText(text).width));
    const [left, right] = [Math.ceil(widest) + 10, width - 8];
    const [top, bottom] = [size, height - 1.75 * size];
    const end = Math.max(this.end, 10);
    const px = x => left + (right - left) * x / end;
    const py = y => bottom - (bottom - top) * (this.scale(y) - low) / (high - low);
    const line = (points, color, thickness) => {
      pen.strokeStyle = color;
      pen.lineWidth = thickness;
      pen.beginPath();
      points.forEach(([x, y], i) => pen[i ? 'lineTo' : 'moveTo'](px(x), py(y)));
      pen.stroke();
    };
    pen.textBaseline = 'middle';
    pen.textAlign = 'right';
    pen.fillStyle = style('--muted');
    let free = Infinity; // the height above which the next label has its place
    for (const [y, text] of labels) {
      line([[0, y], [end, y]], style('--line'), 1);
      if (py(y) > free) continue;
      pen.fillText(text, left - 8, py(y));
      free = py(y) - 1.2 * size;
    }
    if (options.guide !== undefined) {
      pen.setLineDash([4, 4]);
      line([[0, options.guide], [end, options.guide]], style('--positive'), 1);
      pen.setLineDash([]);
    }
    pen.textBaseline = 'top';
    pen.fillText(`step ${end}`, right, bottom + size / 2);
    pen.textAlign = 'left';
    pen.fillText('0', left, bottom + size / 2);
    this.empty.hidden = this.points.length > 0;
    if (this.points.length === 0) return;
    if (options.logarithmic) {
      pen.globalAlpha = 0.35;
      line(this.points, style('--accent'), 1);
      pen.globalAlpha = 1;
      line(this.smoothed(), style('--accent'), 2);
    } else {
      line(this.points, style('--accent'), 2);
    }
    const [x, y] = this.points.at(-1);
    pen.fillStyle = style('--accent');
    pen.beginPath();
    pen.arc(px(x), py(y), 3, 0, 2 * Math.PI);
    if (!options.logarithmic) pen.fill();
    canvas.setAttribute('aria-label', `${options.name} by step: ${options.format(y)} at step ${x}`);
  }

  /** A moving average on the scale of the axis. */
  smoothed() {
    const keep = 1 - 1 / Math.max(1, Math.min(20, this.points.length / 10));
    let mean = null;
    return this.points.map(([x, y]) => {
      mean = mean === null ? this.scale(y) : keep * mean + (1 - keep) * this.scale(y);
      return [x, this.options.logarithmic ? 10 ** mean : mean];
    });
  }
}
