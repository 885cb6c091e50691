// The drawing area: strokes by mouse, pen, finger or keyboard, and the image of 28 x 28 that a
// network sees.

import { penOf, style } from './plot.js';

const SIDE = 28; // of the network's image
const BOX = 20; // of the digit in it, as in MNIST
const SMALL = 8; // of the stored digits, which the built-in data set enlarges to BOX
const KEY_STEP = 10; // in pixels of the canvas, for each press of an arrow key
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const STROKE = 26; // in pixels of the canvas, as thick as the strokes of the data set

export class Pad {
  /**
   * @param cursor the element that shows where the keyboard draws
   * @param changed called after each change of the picture
   * @param said called with what a key has done, in words
   */
  constructor(canvas, cursor, changed, said) {
    Object.assign(this, { canvas, cursor, changed, said, strokes: [], pixels: null });
    Object.assign(this, { isDown: false, place: [canvas.width / 2, canvas.height / 2] });
    this.pen = penOf(canvas);
    canvas.addEventListener('pointerdown', event => {
      event.preventDefault();
      this.lift();
      cursor.hidden = true;
      canvas.setPointerCapture(event.pointerId);
      if (this.pixels) this.clear();
      this.strokes.push([this.position(event)]);
      this.redraw();
    });
    canvas.addEventListener('pointermove', event => {
      if (!canvas.hasPointerCapture(event.pointerId) || this.strokes.length === 0) return;
      const events = event.getCoalescedEvents?.() ?? [];
      (events.length ? events : [event]).forEach(e => this.strokes.at(-1).push(this.position(e)));
      this.redraw();
    });
    canvas.addEventListener('keydown', event => {
      if (event.ctrlKey || event.altKey || event.metaKey || !this.pressed(event.key)) return;
      event.preventDefault();
      this.showCursor();
    });
    canvas.addEventListener('focus', () => {
      if (canvas.matches(':focus-visible')) this.showCursor();
    });
    canvas.addEventListener('blur', () => {
      this.lift();
      cursor.hidden = true;
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.paint());
    this.paint();
  }

  /** Acts on a key; false if it has no meaning here. */
  pressed(key) {
    const { width, height } = this.canvas;
    if (key in ARROWS) {
      const [x, y] = ARROWS[key];
      const within = (value, end) => Math.min(Math.max(value, 0), end);
      this.place = [within(this.place[0] + KEY_STEP * x, width),
        within(this.place[1] + KEY_STEP * y, height)];
      if (this.isDown) {
        this.strokes.at(-1).push(this.place);
        this.redraw();
      }
    } else if (key === ' ') {
      if (this.isDown) {
        this.lift();
        this.said('Pen lifted');
      } else {
        if (this.pixels) this.clear();
        this.isDown = true;
        this.strokes.push([this.place]);
        this.redraw();
        this.said('Pen down');
      }
    } else if (key === 'Escape') {
      this.clear();
      this.said('Cleared');
    } else {
      return false;
    }
    return true;
  }

  lift() {
    this.isDown = false;
    this.cursor.classList.remove('down');
  }

  showCursor() {
    const { cursor, canvas, place: [x, y] } = this;
    cursor.hidden = false;
    cursor.classList.toggle('down', this.isDown);
    cursor.style.left = `${100 * x / canvas.width}%`;
    cursor.style.top = `${100 * y / canvas.height}%`;
  }

  position(event) {
    const box = this.canvas.getBoundingClientRect();
    const scale = this.canvas.width / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  }

  clear() {
    this.lift();
    this.strokes = [];
    this.pixels = null;
    this.redraw();
  }

  /** Shows an image of 28 x 28 bytes. */
  show(pixels) {
    this.lift();
    this.strokes = [];
    this.pixels = Float32Array.from(pixels, ink => ink / 255);
    this.redraw();
  }

  get isEmpty() {
    return this.strokes.length === 0 && this.pixels === null;
  }

  redraw() {
    this.paint();
    this.changed();
  }

  paint() {
    const { pen, canvas } = this;
    pen.clearRect(0, 0, canvas.width, canvas.height);
    if (this.pixels) {
      const picture = document.createElement('canvas');
      drawInk(picture, this.pixels);
      pen.imageSmoothingEnabled = false;
      pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
      return;
    }
    pen.strokeStyle = style('--ink');
    pen.lineWidth = STROKE;
    pen.lineCap = pen.lineJoin = 'round';
    for (const stroke of this.strokes) {
      pen.beginPath();
      pen.moveTo(...stroke[0]);
      // a dot is a line to itself
      (stroke.length > 1 ? stroke.slice(1) : stroke).forEach(point => pen.lineTo(...point));
      pen.stroke();
    }
  }

  /**
   * The network's image, ink from 0 to 1. As in MNIST, the drawing is cut out, scaled to 20 x 20
   * with its proportions kept, and put into the centre. As in the built-in data set, it passes
   * through 8 x 8 before, so that it is as sharp as the images that the network knows.
   */
  image() {
    if (this.pixels) return this.pixels;
    const { width, height } = this.canvas;
    const ink = this.pen.getImageData(0, 0, width, height).data; // the alpha of each pixel counts
    let [left, right, top, bottom] = [width, -1, height, -1];
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        if (ink[4 * (y * width + x) + 3] === 0) continue;
        [left, right] = [Math.min(left, x), Math.max(right, x)];
        [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
      }
    }
    if (right < 0) return new Float32Array(SIDE * SIDE);
    const side = Math.max(right - left, bottom - top) + 1;
    const [x0, y0] = [(left + right + 1 - side) / 2, (top + bottom + 1 - side) / 2];
    const small = average(side, (x, y) => {
      const [px, py] = [Math.floor(x0 + x), Math.floor(y0 + y)];
      const inside = px >= 0 && py >= 0 && px < width && py < height;
      return inside ? ink[4 * (py * width + px) + 3] / 255 : 0;
    });
    return enlarge(small);
  }
}

/** The means of ink over 8 x 8 parts of a square of `side` pixels. */
function average(side, ink) {
  const small = new Float32Array(SMALL * SMALL);
  const samples = 10; // along each axis of a part
  const step = side / SMALL / samples;
  small.forEach((_, i) => {
    const [column, row] = [i % SMALL, Math.floor(i / SMALL)];
    for (let s = 0; s < samples * samples; s++) {
      const x = (column * samples + s % samples + 0.5) * step;
      const y = (row * samples + Math.floor(s / samples) + 0.5) * step;
      small[i] += ink(x, y) / (samples * samples);
    }
  });
  return small;
}

/** 8 x 8 as 20 x 20 in the centre of 28 x 28, by bilinear interpolation between pixel centres. */
function enlarge(small) {
  const large = new Float32Array(SIDE * SIDE);
  const place = i => Math.min(Math.max((i + 0.5) * SMALL / BOX - 0.5, 0), SMALL - 1);
  for (let i = 0; i < BOX * BOX; i++) {
    const [column, row] = [i % BOX, Math.floor(i / BOX)];
    const [x, y] = [place(column), place(row)];
    const [left, top] = [Math.floor(x), Math.floor(y)];
    const [right, bottom] = [Math.min(left + 1, SMALL - 1), Math.min(top + 1, SMALL - 1)];
    const [u, v] = [x - left, y - top];
    const at = (r, c) => small[r * SMALL + c];
    const value = (1 - v) * ((1 - u) * at(top, left) + u * at(top, right))
      + v * ((1 - u) * at(bottom, left) + u * at(bottom, right));
    large[(row + (SIDE - BOX) / 2) * SIDE + column + (SIDE - BOX) / 2] = value;
  }
  return large;
}

/** Draws ink from 0 to 1, row by row of 28, as pixels of a canvas of 28 x 28. */
export function drawInk(canvas, ink) {
  canvas.width = canvas.height = SIDE;
  const pen = penOf(canvas);
  const picture = pen.createImageData(SIDE, SIDE);
  const [r, g, b] = channels(style('--ink'));
  ink.forEach((value, i) => picture.data.set([r, g, b, 255 * value], 4 * i));
  pen.putImageData(picture, 0, 0);
}

/**
 * Draws square pictures of weights in a grid: the colours of the style sheet for their signs, full
 * for the largest of each picture.
 */
export function drawWeights(canvas, values, side) {
  const count = values.length / (side * side);
  const columns = Math.min(count, 16);
  const [cell, rows] = [side + 1, Math.ceil(count / columns)];
  canvas.width = columns * cell + 1;
  canvas.height = rows * cell + 1;
  const pen = penOf(canvas);
  const picture = pen.createImageData(canvas.width, canvas.height);
  const [positive, negative] = ['--positive', '--negative'].map(name => channels(style(name)));
  // 100,000 pixels: plain loops, which take 2 ms
  for (let n = 0; n < count; n++) {
    const begin = n * side * side;
    let largest = 1e-12;
    for (let i = 0; i < side * side; i++) largest = Math.max(largest, Math.abs(values[begin + i]));
    for (let i = 0; i < side * side; i++) {
      const value = values[begin + i];
      const x = n % columns * cell + 1 + i % side;
      const y = Math.floor(n / columns) * cell + 1 + Math.floor(i / side);
      const color = value > 0 ? positive : negative;
      const place = 4 * (y * canvas.width + x);
      for (let channel = 0; channel < 3; channel++) picture.data[place + channel] = color[channel];
      picture.data[place + 3] = 255 * Math.abs(value) / largest;
    }
  }
  pen.putImageData(picture, 0, 0);
}

/** `#rrggbb` as numbers. */
function channels(color) {
  return [1, 3, 5].map(i => parseInt(color.slice(i, i + 2), 16));
}
