"""Builds a folder of real photographs, in the layout that torchvision's ImageFolder reads.

    python tools/photos.py OUT --count 1500 --val 300 --seed 0

The photographs are the ones inside the scikit-image and scikit-learn packages; nothing is downloaded. Each file is a
tile of one of them, 200 to 500 pixels a side, some flipped, saved as JPEG in a quality between 75 and 95. The class of
a tile is the photograph that it came from. The same arguments and versions give the same files.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from PIL import Image, ImageOps

# (class, package, file in the package)
PHOTOGRAPHS = (
    ("astronaut", "skimage", "data/astronaut.png"),
    ("camera", "skimage", "data/camera.png"),
    ("cat", "skimage", "data/chelsea.png"),
    ("coffee", "skimage", "data/coffee.png"),
    ("motorcycle", "skimage", "data/motorcycle_left.png"),
    ("rocket", "skimage", "data/rocket.jpg"),
    ("flower", "sklearn", "datasets/images/flower.jpg"),
    ("temple", "sklearn", "datasets/images/china.jpg"),
)
SMALLEST, LARGEST = 200, 500  # pixels a side


class PhotosError(Exception):
    """The folder can't be made; the message is one line for the user."""


@dataclass(frozen=True)
class Tile:
    """One file to write: a box of a photograph."""

    box: tuple[int, int, int, int]  # left, upper, right, lower, in pixels of the photograph
    mirrored: bool
    quality: int  # of the JPEG, 1 to 95


def choose_tile(chooser: random.Random, size: tuple[int, int]) -> Tile:
    """Choose a tile of a photograph of `size` (width, height) pixels."""
    width, height = (chooser.randint(SMALLEST, min(LARGEST, side)) for side in size)
    left = chooser.randint(0, size[0] - width)
    upper = chooser.randint(0, size[1] - height)
    return Tile((left, upper, left + width, upper + height), chooser.random() < 0.5, chooser.randint(75, 95))


def open_photograph(package: str, name: str) -> Image.Image:
    """Read one of the packages' photographs as RGB, without importing the package."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise PhotosError(f"the package {package} isn't installed: run `make setup`")
    path = Path(spec.origin).parent / name
    if not path.is_file():
        raise PhotosError(f"{package} doesn't ship {name}: install another version of it")
    with Image.open(path) as image:
        return image.convert("RGB")


def write_photos(out: Path, *, train: int, val: int, seed: int) -> int:
    """Write `train` and `val` files below `out`, shared evenly among the classes, and return how many were written.

    Raises PhotosError when `out` holds anything already, or a photograph is missing.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise PhotosError(f"{out} isn't an empty folder: name a new one")
    if train < len(PHOTOGRAPHS) or val < len(PHOTOGRAPHS):
        raise PhotosError(f"--count and --val must be at least {len(PHOTOGRAPHS)}, one file for each class")
    photographs = [(label, open_photograph(package, name)) for label, package, name in PHOTOGRAPHS]
    for part, count in (("train", train), ("val", val)):
        chooser = random.Random(f"{seed} {part}")
        for label, _ in photographs:
            (out / part / label).mkdir(parents=True)
        for number in range(count):
            label, photograph = photographs[number % len(photographs)]
            tile = choose_tile(chooser, photograph.size)
            image = photograph.crop(tile.box)
            if tile.mirrored:
                image = ImageOps.mirror(image)
            image.save(out / part / label / f"{number:05d}.jpg", quality=tile.quality)
    return train + val


def write_photos_once(out: Path, *, train: int, val: int) -> None:
    """Write the photographs of seed 0 unless `out` exists; a run that is interrupted leaves no `out`."""
    if out.exists():
        return
    unfinished = out.with_name(out.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    write_photos(unfinished, train=train, val=val, seed=0)
    unfinished.rename(out)


def main() -> int:
    parser = argparse.ArgumentParser(description="Build a folder of real photographs.")
    parser.add_argument("out", metavar="OUT", type=Path, help="a new or empty folder")
    parser.add_argument("--count", type=int, default=1500, help="files under train/ (default: 1500)")
    parser.add_argument("--val", type=int, default=300, help="files under val/ (default: 300)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    try:
        written = write_photos(args.out, train=args.count, val=args.val, seed=args.seed)
    except (PhotosError, OSError) as error:
        print(f"photos: {error}", file=sys.stderr)
        return 2
    print(f"{args.out}: {written} photographs in {len(PHOTOGRAPHS)} classes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
