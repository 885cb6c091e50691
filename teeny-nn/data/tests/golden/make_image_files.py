"""Writes `image_files/`: small PNG and JPEG files, and `expected.json`, their pixels as RGB.

    pip install pillow==13.0.0
    python make_image_files.py
"""

import json
from pathlib import Path

from PIL import Image, ImageDraw

FOLDER = Path(__file__).parent / "image_files"
FOLDER.mkdir(exist_ok=True)

image = Image.new("RGBA", (17, 13))
for y in range(13):
    for x in range(17):
        image.putpixel((x, y), (15 * x, 19 * y, 255 - 7 * (x + y), 255 if x > y else 11 * (x + y)))
draw = ImageDraw.Draw(image)
draw.ellipse((4, 3, 12, 10), fill=(200, 40, 90, 255))
rgb = image.convert("RGB")


def over_white(pixel):
    alpha = pixel[-1] / 255
    return [round(alpha * x + (1 - alpha) * 255) for x in pixel[:-1]]


expected = {}


def save(name, image, pixels, **options):
    image.save(FOLDER / name, **options)
    expected[name] = [x for pixel in pixels for x in pixel]


def pixels(image):
    return [image.getpixel((x, y)) for y in range(image.height) for x in range(image.width)]


save("rgb.png", rgb, pixels(rgb))
save("rgba.png", image, [over_white(pixel) for pixel in pixels(image)])
grey = rgb.convert("L")
save("grey.png", grey, [[x] * 3 for x in pixels(grey)])
la = image.convert("LA")
save("grey_alpha.png", la, [over_white(pixel) * 3 for pixel in pixels(la)])
palette = rgb.quantize(16)
save("palette.png", palette, pixels(palette.convert("RGB")))
deep = Image.new("I;16", (17, 13))
for y in range(13):
    for x in range(17):
        deep.putpixel((x, y), 257 * (10 * x + 5 * y))
save("deep.png", deep, [[10 * x + 5 * y] * 3 for y in range(13) for x in range(17)])
bits = grey.convert("1")
save("bits.png", bits, [[x] * 3 for x in pixels(bits)])

for name, source, options in [
    ("rgb.jpg", rgb, dict(subsampling=0)),
    ("subsampled.jpg", rgb, dict(subsampling=2)),
    ("progressive.jpg", rgb, dict(subsampling=0, progressive=True)),
    ("grey.jpg", grey, {}),
]:
    source.save(FOLDER / name, quality=90, **options)
    decoded = Image.open(FOLDER / name).convert("RGB")
    expected[name] = [x for pixel in pixels(decoded) for x in pixel]

rows = [f'"{name}": {json.dumps(values)}' for name, values in expected.items()]
(FOLDER / "expected.json").write_text("{" + ",\n".join(rows) + "}\n")
