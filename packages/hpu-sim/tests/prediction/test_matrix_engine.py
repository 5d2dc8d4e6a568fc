"""Products on the matrix engine: figures of the vendor's unit tests, and a table by a port of its library.

Lines are those of ``mme/tests/unit_tests/mme_brain_test.cpp`` in HabanaAI/Intel_Gaudi3_Software at e6cef1c.
"""

from __future__ import annotations

import importlib
import math
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpu_sim.prediction.matrix_engine import ENGINES, peak, place, reads, seconds, share_of_peak
from hpu_sim.prediction.recording import Product

_PUBLISHED = Path(__file__).parents[2] / "bench" / "published"


def test_shares_of_the_peak_are_those_of_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 2 %, because the port does not pad K; its figures have two digits."""
    monkeypatch.syspath_prepend(_PUBLISHED)
    products = importlib.import_module("products")
    for name, product, *shares in products.SHEET:
        for generation, share in zip(ENGINES, shares, strict=True):
            found = share_of_peak(product, "bfloat16", 2, generation)
            assert found == pytest.approx(share, rel=0.02, abs=0.0006), (name, generation)


def test_tiles_of_gaudi2_that_lack_ports() -> None:
    """Lines 164 and 187: a tile of twelve, and the only one, take twice as long."""
    right = place(Product(1, 1536, 1024, 4096), "bfloat16", "GAUDI2", "4xw", reuses=False)
    down = place(Product(1, 1024, 128, 256), "bfloat16", "GAUDI2", "4xh")

    assert right.utilization == pytest.approx(12 / 13)
    assert down.utilization == pytest.approx(0.5)


def _utilization(product: Product) -> float:
    return place(product, "bfloat16", "GAUDI3", "2xh").utilization


def test_slices_of_columns_on_gaudi3() -> None:
    """Line 908: all of 1024 columns fill the engine, slices of 200 two thirds of it."""
    slices = [_utilization(Product(16, 1024, size, 256)) for size in (200,) * 5 + (24,)]

    assert _utilization(Product(16, 1024, 1024, 256)) == pytest.approx(1.0)
    assert statistics.mean(slices) == pytest.approx(2 / 3)


def test_slices_of_a_batch_on_gaudi3() -> None:
    """Line 910: four products share the engines, so that slices of five leave some empty."""
    slices = [_utilization(Product(size, 256, 256, 256)) for size in (5, 5, 5, 1)]

    assert place(Product(16, 256, 256, 256), "bfloat16", "GAUDI3", "2xh").concurrent == 4
    assert statistics.mean(slices) == pytest.approx(17 / 32)


def test_edges_of_tiles_on_gaudi3() -> None:
    """Line 915."""
    assert _utilization(Product(16, 2040, 1020, 256)) == pytest.approx((255 / 256) ** 2)


@pytest.mark.parametrize(
    ("product", "geometry"),
    [
        (Product(1, 8, 1024, 5), "4xw"),
        (Product(5, 256, 1024, 5), "2xw"),
        (Product(3, 1536, 240, 5), "2xh"),
    ],
)
def test_geometries_that_gaudi2_chooses(product: Product, geometry: str) -> None:
    """Lines 241 to 318, with their batches flattened into M: 2 of 4 rows, 8 of 32, and 8 of 192."""
    assert place(product, "bfloat16", "GAUDI2").name == geometry


def test_short_products_take_the_time_to_write_a_tile() -> None:
    assert share_of_peak(Product(1, 4096, 4096, 256), "float8", 2, "GAUDI2") == pytest.approx(0.5)
    assert share_of_peak(Product(1, 4096, 4096, 4096), "float8", 2, "GAUDI2") == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("generation", "dtype", "teraflops"),
    [
        ("GAUDI", "bfloat16", 59.0),
        ("GAUDI", "float32", 14.7),
        ("GAUDI2", "bfloat16", 432.5),
        ("GAUDI2", "tf32", 216),
        ("GAUDI3", "float8", 1677.7),
        ("GAUDI3", "float16", 419.4),
        ("GAUDI3", "float32", 209.7),
    ],
)
def test_peaks(generation: str, dtype: str, teraflops: float) -> None:
    assert 2e-12 * peak(dtype, generation) == pytest.approx(teraflops, rel=0.004)


def test_the_gradient_of_a_weight_shares_its_sum_on_gaudi2() -> None:
    """A result of 64 x 64 would leave most of the engine empty."""
    product = Product(1, 64, 64, 1 << 20, "atb")

    alone = seconds(product, "bfloat16", 2, "GAUDI2")
    shared = seconds(product._replace(is_weight_gradient=True), "bfloat16", 2, "GAUDI2")

    assert shared < alone / 4
    assert seconds(product._replace(is_weight_gradient=True), "bfloat16", 2, "GAUDI3") == seconds(
        product, "bfloat16", 2, "GAUDI3"
    )


def test_results_that_fill_little_of_a_tile_may_be_written_faster() -> None:
    product = Product(16384, 49, 49, 32)
    whole, middle, valid = (seconds(product, "bfloat16", 2, "GAUDI2", each) for each in (0.0, 0.5, 1.0))

    assert whole > middle > valid


def test_an_operand_that_fits_on_the_chip_is_fetched_once() -> None:
    product = Product(1, 4096, 4096, 4096)

    assert reads(product, "bfloat16", "GAUDI2", 96 << 20, (32 << 20, 32 << 20)) == (1, 1)
    assert sorted(reads(product, "bfloat16", "GAUDI2", 16 << 20, (32 << 20, 32 << 20))) == [1, 4]


@given(
    sizes=st.tuples(*[st.integers(1, 5000)] * 4),
    layout=st.sampled_from(["ab", "abt", "atb", "atbt"]),
    dtype=st.sampled_from(["float8", "bfloat16", "float16", "tf32", "float32"]),
    generation=st.sampled_from(["GAUDI", "GAUDI2", "GAUDI3"]),
    is_gradient=st.booleans(),
)
def test_no_product_is_faster_than_the_peak(
    sizes: tuple[int, int, int, int], layout: str, dtype: str, generation: str, *, is_gradient: bool
) -> None:
    product = Product(*sizes, layout, is_gradient)  # type: ignore[arg-type] # one of the layouts

    found = seconds(product, dtype, 2, generation, 1.0)

    assert found >= math.prod(sizes) / peak(dtype, generation) * (1 - 1e-9)
