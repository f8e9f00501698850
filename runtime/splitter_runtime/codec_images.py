"""Images of Pillow: class, mode, size, pixels, palette, and the plain data of their info."""

from __future__ import annotations

import sys
from typing import Any

from . import codec_wire as wire
from .codec_reader import NODES as READ_NODE
from .codec_reader import Reader, damaged
from .codec_writer import FAMILIES, Put, Refusal, Writer
from .errors import CodecError

_PLAIN_INFO = (str, bytes, int, float, bool, tuple, type(None))
_PIXEL_BITS = {"1": 1, "L": 8, "P": 8, "LA": 16, "PA": 16, "La": 16, "RGB": 24, "YCbCr": 24, "LAB": 24, "HSV": 24}
_PIXEL_BITS |= dict.fromkeys(("RGBA", "RGBa", "RGBX", "CMYK", "I", "F"), 32)
_PIXEL_BITS |= dict.fromkeys(("I;16", "I;16L", "I;16B", "I;16N"), 16)


def _put_image(w: Writer, image: Any) -> None:
    cls = type(image)
    if not cls.__module__.startswith("PIL."):
        raise Refusal("R107", type=cls.__qualname__, why="it is not one of Pillow's own image classes")
    pixels = image.tobytes()  # loads the image, which may change its mode and palette
    if image.mode not in _PIXEL_BITS:
        raise Refusal("R107", type=cls.__qualname__, why=f"images of mode {image.mode} have no fixed layout")
    palette = image.palette
    colors = None
    if palette is not None and image.mode in ("P", "PA"):
        colors = (palette.mode, bytes(image.im.getpalette(palette.mode, palette.mode)))
    info = {key: value for key, value in image.info.items() if isinstance(value, _PLAIN_INFO)}
    w.out.append(wire.IMAGE)
    w.text(cls.__module__)
    w.class_ref(cls)
    w.items((image.mode, *image.size, pixels, colors, getattr(image, "filename", None), info))


def _get_image(r: Reader, slot: int) -> Any:
    module: Any = sys.modules.get("PIL.Image")
    if module is None:
        raise CodecError.of("R113", name="PIL.Image.Image")
    home = r.text()
    if home.startswith("PIL.") and home not in sys.modules:
        module.preinit()  # Pillow's own table of file formats, which it loads with the first open
    cls: Any = r.class_ref()
    if not issubclass(cls, module.Image) or not cls.__module__.startswith("PIL."):
        raise damaged(f"{cls.__qualname__} is not one of Pillow's image classes")
    mode, width, height, pixels, colors, filename, info = r.items()
    if min(width, height) < 0 or (width * _PIXEL_BITS[mode] + 7) // 8 * height != len(pixels):
        raise damaged("an image whose pixels do not fit its size")
    if colors is not None and (type(colors[0]) is not str or type(colors[1]) is not bytes):
        raise damaged("an image whose palette is no bytes")
    r.take(width * height * 4)
    image = module.new(mode, (width, height))
    image.frombytes(pixels)
    if colors is not None:
        image.putpalette(colors[1], colors[0])
    if type(info) is not dict:
        raise damaged("an image without info")
    image.info = info
    if cls is module.Image:
        return image
    made = cls.__new__(cls)
    made.__dict__.update(image.__dict__, tile=[])
    if filename is not None:
        made.filename = filename
    return made


def _image_family(cls: type) -> tuple[Put, bool] | None:
    module: Any = sys.modules.get("PIL.Image")
    return (_put_image, False) if module is not None and issubclass(cls, module.Image) else None


READ_NODE[wire.IMAGE] = _get_image
FAMILIES.insert(0, _image_family)  # before the rule for plain instances
