"""Cycles of a matrix product on the engines (MME) of a generation, by the rules of Intel's published engine library.

The engines hold the accumulators of a tile, W columns by H rows of the result, and pass over K. A *geometry* is a way
to place the engines side by side and on top of each other. The compiler takes the geometry with the fewest cycles,
where a tile needs K cycles, but at least those in which the engine writes a tile out. Small products of a batch share a
tile.

Source: HabanaAI/Intel_Gaudi3_Software at e6cef1c, ``synapse/mme``: ``gaudi{,2,3}_geo_attr.cpp``,
``common_geo_attr.cpp`` and ``mme_brain.cpp``; the clocks are those of its ``*_mme_hal_reader.h``. Its own numbers rank
geometries. It says of the cycles to write a tile that they are to be verified.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpu_sim.prediction.recording import Product


@dataclass(frozen=True)
class Geometry:
    """Arrangement of the engines.

    Attributes:
        name: Its name in the library.
        width: Columns of a tile.
        height: Rows of a tile.
        across: Engines side by side.
        stacked: Engines on top of each other.
    """

    name: str
    width: int
    height: int
    across: int
    stacked: int


@dataclass(frozen=True)
class Engines:
    """Matrix engines of a generation.

    Attributes:
        clock: Cycles per second.
        geometries: Arrangements, in the order of preference.
        written: Bytes of a result that leave the accumulators per cycle.
        cycles: Cycles per element of K by dtype, relative to a tile of bfloat16.
        steps: Multiple to which K is padded, by dtype; 8 for others.
        held: Elements of K in bfloat16 up to which an operand is kept for a whole row of tiles.
    """

    clock: float
    geometries: tuple[Geometry, ...]
    written: int
    cycles: Mapping[str, float]
    steps: Mapping[str, int]
    held: int

    def cycles_of(self, dtype: str) -> float:
        """Return the cycles of a dtype; one without an entry computes as float32."""
        return self.cycles.get(dtype, self.cycles["float32"])


#: Engines by generation. float32 of GAUDI2 has 6 cycles, where the adder trees have 4: with those it would reach 108
#: TFLOP/s, and 69.7 were measured (stas00/ml-engineering). float32 of GAUDI runs through arrays of a quarter of the
#: size.
ENGINES: Final = {
    "GAUDI": Engines(
        1.8e9,
        (Geometry("4w", 256, 64, 4, 1), Geometry("2w2h", 128, 128, 2, 2), Geometry("4h", 64, 256, 1, 4)),
        256,
        {"bfloat16": 1.0, "float32": 1.0},
        {"float32": 4},
        2768,
    ),
    "GAUDI2": Engines(
        1.65e9,
        (
            Geometry("2xh", 256, 512, 1, 2),
            Geometry("2xw", 512, 256, 2, 1),
            Geometry("4xh", 128, 1024, 1, 2),
            Geometry("4xw", 1024, 128, 2, 1),
        ),
        1024,
        {"float8": 0.5, "bfloat16": 1.0, "float16": 1.0, "tf32": 2.0, "float32": 6.0},
        {"float8": 16, "tf32": 4, "float32": 2},
        2768,
    ),
    "GAUDI3": Engines(
        1.6e9,
        (
            Geometry("2xw", 1024, 512, 4, 2),
            Geometry("4xw", 2048, 256, 8, 1),
            Geometry("2xh", 512, 1024, 2, 4),
            Geometry("4xh", 256, 2048, 1, 8),
        ),
        2048,
        {"float8": 1.0, "bfloat16": 1.0, "float16": 4.0, "tf32": 4.0, "float32": 8.0},
        {"float8": 8, "tf32": 4, "float32": 2},
        3200,
    ),
}
#: Bytes of an operand's element; 4 of other dtypes.
ITEM_BYTES: Final = {"float8": 1, "bfloat16": 2, "float16": 2}
# Rows of accumulators of an engine of GAUDI3 that uses them twice as often.
_HALF_ENGINE: Final = 128
# Batches from which on GAUDI3 takes its longest geometries.
_MANY_BATCHES: Final = 4


@dataclass(frozen=True)
class Placement:
    """A product on a geometry.

    Attributes:
        name: Geometry.
        concurrent: Products of a batch that run side by side.
        tiles_across: Tiles in a row of the result.
        tiles_down: Tiles in a column of it.
        slow_tiles: Tiles whose operands arrive slower than the engine computes.
        slowness: Factor by which they do.
        batches: Times that all tiles run.
        filling: Share of the tiles that the results fill.
    """

    name: str
    concurrent: int
    tiles_across: int
    tiles_down: int
    slow_tiles: int
    slowness: float
    batches: int
    filling: float

    @property
    def utilization(self) -> float:
        """Share of the geometry that computes a result, for an endless K: the library's own measure."""
        return self.filling / (1 + self.slow_tiles * (self.slowness - 1) / (self.tiles_across * self.tiles_down))

    def cycles(self, inner: float, written: float) -> float:
        """Return the cycles of the product, with those of K of a tile, and those in which a tile is written."""
        quick = self.tiles_across * self.tiles_down - self.slow_tiles
        slow = self.slow_tiles * max(inner * self.slowness, written)
        return self.batches * (quick * max(inner, written) + slow)


@functools.lru_cache(maxsize=8192)
def seconds(product: Product, dtype: str, item: int, generation: str, valid: float = 0.5) -> float:
    """Return the time of a product at the engine's full clock.

    Args:
        product: Product.
        dtype: Type of the operands; one without an entry computes as float32.
        item: Bytes of an element of the result.
        generation: Generation of the engines.
        valid: Exponent of the filled share of a tile in the cycles to write it. 0 is the library's rule, by which all
            of a tile is written; 1 writes only what the results fill.
    """
    engines = ENGINES[generation]
    placement = place(product, dtype, generation)
    inner = engines.cycles_of(dtype) * _padded(product, dtype, generation)
    written = _area(dtype, generation) * item / engines.written * placement.filling**valid
    if product.is_weight_gradient and generation == "GAUDI2":
        # Engines that the result does not fill share K.
        inner /= placement.concurrent
    return placement.cycles(inner, written) / engines.clock


def share_of_peak(product: Product, dtype: str, item: int, generation: str) -> float:
    """Return the share of the peak of its dtype that a product reaches.

    >>> from hpu_sim.prediction.recording import Product
    >>> share_of_peak(Product(1, 4096, 4096, 128), "bfloat16", 2, "GAUDI2")
    0.5
    """
    return math.prod(product[:4]) / peak(dtype, generation) / seconds(product, dtype, item, generation, 0.0)


def peak(dtype: str, generation: str) -> float:
    """Return the products of two numbers per second at the engine's full clock."""
    engines = ENGINES[generation]
    return _area(dtype, generation) / engines.cycles_of(dtype) * engines.clock


@functools.lru_cache(maxsize=4096)
def place(product: Product, dtype: str, generation: str, geometry: str = "", *, reuses: bool = True) -> Placement:
    """Return the placement with the fewest cycles by the library's own constants, on a geometry if one is named.

    Operands are kept for several tiles, unless ``reuses`` is False.
    """
    engines = ENGINES[generation]
    found = _geometries(dtype, generation)
    if geometry:
        found = tuple(each for each in found if each.name == geometry)
    elif generation == "GAUDI3":
        found = _preferred(product, found)
    # The library counts a cycle per element of K, and results of two bytes.
    inner, written = _padded(product, dtype, generation), _area(dtype, generation) * 2 / engines.written
    placements = [_place(product, each, dtype, generation, reuses=reuses) for each in found]
    return min(placements, key=lambda each: each.cycles(inner, written))


def reads(product: Product, dtype: str, generation: str, chip: int, size: tuple[int, int]) -> tuple[int, int]:
    """Return how often the operands of a product are fetched from the card's memory.

    One operand is fetched once. The other one is fetched for each row, or column, of tiles, unless it stays on the
    chip (of so many bytes): the compiler cuts the first one into slices that fit there beside the next slice. ``size``
    has the bytes of both operands.
    """
    placement = place(product, dtype, generation)
    first, second = size
    half = max(chip // 2, 1)
    fetches_second = min(placement.tiles_down, -(-first // half))
    fetches_first = min(placement.tiles_across, -(-second // half))
    is_second = first + fetches_second * second <= fetches_first * first + second
    return (1, max(fetches_second, 1)) if is_second else (max(fetches_first, 1), 1)


def _padded(product: Product, dtype: str, generation: str) -> int:
    step = ENGINES[generation].steps.get(dtype, 8)
    return -(-product.inner // step) * step


@functools.cache
def _area(dtype: str, generation: str) -> int:
    """Return the accumulators of a tile, of which every geometry has as many."""
    first = _geometries(dtype, generation)[0]
    return first.width * first.height


@functools.cache
def _geometries(dtype: str, generation: str) -> tuple[Geometry, ...]:
    found = ENGINES[generation].geometries
    if generation == "GAUDI" and dtype not in {"bfloat16", "float16"}:
        return tuple(replace(each, width=each.width // 2, height=each.height // 2) for each in found)
    return found


def _preferred(product: Product, found: tuple[Geometry, ...]) -> tuple[Geometry, ...]:
    """Return the geometries that GAUDI3 considers for a product of this size."""
    rows, columns = product.rows, product.columns
    if product.batch >= _MANY_BATCHES:
        names = {"4xh"} if max(rows, columns) <= 256 else {"4xh", "4xw"}  # noqa: PLR2004 - this and below: the library's
        return tuple(each for each in found if each.name in names)
    conditions = {
        "2xw": columns >= 512 and rows >= 512,  # noqa: PLR2004
        "4xw": columns >= 1024,  # noqa: PLR2004
        "2xh": columns > 256 and rows >= 512,  # noqa: PLR2004
        "4xh": rows >= 1024,  # noqa: PLR2004
    }
    name = next((name for name, holds in conditions.items() if holds), "2xh")
    return tuple(each for each in found if each.name == name)


def _place(product: Product, geometry: Geometry, dtype: str, generation: str, *, reuses: bool) -> Placement:
    width, height, concurrent, is_split = _shared(product, geometry, dtype, generation)
    batches = -(-product.batch // concurrent)
    tiles = -(-product.columns // width), -(-product.rows // height)
    slow = 0, 1.0
    if generation == "GAUDI2" and dtype not in {"float32", "tf32"}:
        slow = _port_limit(product, geometry.name, dtype, tiles, is_split=is_split, reuses=reuses)
    parts = concurrent if product.is_weight_gradient and generation == "GAUDI2" else 1
    results = product.batch * parts * product.rows * product.columns
    filling = min(results / (batches * concurrent * math.prod(tiles) * width * height), 1.0)
    return Placement(geometry.name, concurrent, *tiles, *slow, batches, filling)


def _shared(product: Product, geometry: Geometry, dtype: str, generation: str) -> tuple[int, int, int, bool]:
    """Return width and height of one product's tile, how many share the engines, and whether one is split."""
    rows, columns = product.rows, product.columns
    across, stacked, concurrent = geometry.across, geometry.stacked, 1
    engine_width, engine_height = geometry.width // across, geometry.height // stacked
    while across > 1 and across * engine_width // 2 >= columns:
        across, concurrent = across // 2, concurrent * 2

    def height() -> int:
        half = _HALF_ENGINE * stacked
        is_first = product.layout[:2] == "at"
        fits = rows <= 64 if is_first else 4 * stacked <= rows <= half  # noqa: PLR2004 - the library's
        return half if generation == "GAUDI3" and fits else engine_height * stacked

    while stacked > 1 and height() // 2 >= rows:
        stacked, concurrent = stacked // 2, concurrent * 2
    if generation == "GAUDI":
        # Its engines have two descriptors.
        concurrent = min(concurrent, 2)
    width, tall = across * engine_width, height()
    inside = _inside(product, geometry.name, dtype, generation) if across == stacked == 1 else 1
    return (
        width // 2 if inside > 1 and geometry.name != "4xh" else width,
        tall // 2 if inside == 4 or (inside > 1 and geometry.name == "4xh") else tall,  # noqa: PLR2004 - both sides
        concurrent * inside,
        inside > 1,
    )


def _inside(product: Product, geometry: str, dtype: str, generation: str) -> int:
    """Return how many products run side by side in one engine."""
    rows, columns, is_float8 = product.rows, product.columns, dtype == "float8"
    if generation == "GAUDI3":
        tall = 128 if product.layout[:2] == "at" else 64
        return 2 if columns <= 128 and rows <= tall else 1  # noqa: PLR2004 - this and below: the library's
    if generation != "GAUDI2":
        return 1
    if max(rows, columns) <= 64 and not is_float8:  # noqa: PLR2004
        return 4
    limits = {"2xh": (128, 128), "2xw": (128, 128), "4xh": (128 if is_float8 else 64, 256), "4xw": (256, 64)}
    most_columns, most_rows = limits[geometry]
    return 2 if columns <= most_columns and rows <= most_rows else 1


def _port_limit(  # noqa: PLR0913 - the conditions of the library
    product: Product, geometry: str, dtype: str, tiles: tuple[int, int], *, is_split: bool, reuses: bool
) -> tuple[int, float]:
    """Return the tiles of GAUDI2's narrow geometries, which need ten ports of eight, and how much slower they are."""
    across, down = tiles
    is_tall = geometry == "4xh"
    if geometry not in {"4xh", "4xw"}:
        return 0, 1.0
    is_first = product.layout[:2] == "at"
    if is_tall and is_first and product.rows <= 192 and dtype != "float8":  # noqa: PLR2004 - the library's
        return 0, 1.0
    slow = (down if across > 1 else 1) if is_tall else (across if down > 1 else 1)
    if reuses and product.inner > ENGINES["GAUDI2"].held:
        # Operands are then kept for four tiles only.
        slow = min(slow * -(-(across if is_tall else down) // 4), across * down)
    if product.layout == "atb":
        return slow, 2.0
    # Rows of an operand that one port fetches.
    ports = (4 if is_split else 16) if is_tall else (1 if is_split else 2)
    slowness = 2.0 if product.layout == "atbt" else 1 + -(-product.rows // ports) / 64
    if product.layout.endswith("bt"):
        slowness = min(slowness, 1 + min(product.columns, 64) / 64)
    return slow, min(slowness, 2.0)
