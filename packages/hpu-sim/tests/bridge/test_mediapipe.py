"""Media pipes: life cycle, graph rules, readers, decoder and operators."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import habana_frameworks.mediapipe.fn as ops
import numpy as np
import pytest
import torch
from habana_frameworks.mediapipe.media_types import dtype, imgtype, randomCropType
from habana_frameworks.mediapipe.mediapipe import MediaPipe
from habana_frameworks.mediapipe.operators import decoder
from habana_frameworks.mediapipe.operators.cpu_nodes import cpu_nodes
from habana_frameworks.mediapipe.operators.reader_nodes import read_image_from_dir, reader_nodes
from habana_frameworks.mediapipe.plugins import iterator_pytorch
from PIL import Image

import hpu_sim

from .images import write_images

if TYPE_CHECKING:
    from pathlib import Path

# fn makes its names on request, which type checkers do not see.
fn: Any = ops


class _Pipe(MediaPipe):  # type: ignore[misc] # the bridge's modules have no types
    """Pipe of a function that defines its graph."""

    def __init__(self, define: Any, **options: Any) -> None:
        super().__init__(**{"device": "mixed", "batch_size": 2, **options})
        self.define = define

    def definegraph(self) -> Any:
        return self.define()


def _reader(folder: Path, **parameters: Any) -> Any:
    return fn.ReadImageDatasetFromDir(dir=str(folder), format=["jpg"], **parameters)()


def _decoded(folder: Path, **parameters: Any) -> Any:
    jpegs, labels = _reader(folder)
    return fn.ImageDecoder(resize=[8, 6], **parameters)(jpegs), labels


def _files(folder: Path, batch_size: int = 2, *, is_legacy: bool = True, **parameters: Any) -> Any:
    names = ("drop_remainder", "pad_remainder", "last_batch_strategy", "shard_once", "seed")
    defaults = {"dir": str(folder), "format": "jpg", "num_slices": 1, "slice_index": 0, "shuffle": False}
    given = {**dict.fromkeys(names), **defaults, "label_dtype": "uint64", **parameters}
    pipe: Any = SimpleNamespace(batch_size=batch_size, is_legacy=is_legacy)
    return read_image_from_dir.ImageReader(given, pipe)


def _epoch(reader: Any) -> list[str]:
    return [file for files, _ in reader for file in files]


def test_pipe_returns_the_batches_of_an_epoch_and_stops(tmp_path: Path) -> None:
    write_images(tmp_path, 6)
    pipe = _Pipe(lambda: _decoded(tmp_path))
    with pytest.raises(RuntimeError, match="`build` must be called before `iter_init`"):
        pipe.iter_init()
    pipe.build()
    with pytest.raises(RuntimeError, match="`iter_init` must be called before `run`"):
        pipe.run()
    pipe.iter_init()

    labels = [pipe.run()[1].as_nparray().tolist() for _ in range(pipe.get_batch_count())]

    assert labels == [[0, 0], [0, 1], [1, 1]]
    with pytest.raises(StopIteration):
        pipe.run()
    pipe.iter_init()
    assert pipe.run()[0].as_cpu().as_nparray().shape == (2, 6, 8, 3)
    pipe.del_iter()
    with pytest.raises(RuntimeError, match="before `run`"):
        pipe.run()
    again = _Pipe(lambda: _decoded(tmp_path))
    again.set_repeat_count(3)
    assert len(list(again.as_iterator() or ())) == 9


def test_a_second_framework_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Other names of devices mean the old graph, as "gaudi2" does."""
    monkeypatch.setattr(MediaPipe, "_framework", None)
    pipe = _Pipe(None, device="gaudi2")
    assert pipe._device == "legacy"
    assert "device 'gaudi2' is deprecated" in capsys.readouterr().err
    pipe.set_proxy("PYT_FW", object())

    with pytest.raises(RuntimeError, match="A different framework already initialized"):
        _Pipe(None).set_proxy("PYTHON_FW", object())
    assert pipe.as_iterator() is None
    assert "not supported" in capsys.readouterr().out


def _reversed_order(folder: Path) -> Any:
    jpegs, _ = _reader(folder)
    images = fn.ImageDecoder(resize=[8, 6])(jpegs)
    return fn.RandomFlip(device="cpu", horizontal=1)(images, images)


def _two_decoders(folder: Path) -> Any:
    jpegs, _ = _reader(folder)
    return [fn.ImageDecoder(resize=[8, 6])(jpegs), fn.ImageDecoder(resize=[8, 6])(jpegs)]


def _window(folder: Path) -> Any:
    jpegs, _ = _reader(folder)
    return fn.ImageDecoder(resize=[8, 6])(jpegs, fn.CropWindowGen(type=randomCropType.CENTER_CROP)(jpegs))


@pytest.mark.parametrize(
    ("device", "define", "error", "message"),
    [
        ("mixed", _reversed_order, ValueError, "Detect CPU/HPU and decoder mix up: RandomFlip"),
        ("cpu", _decoded, RuntimeError, r"a part on hpu \(ImageDecoder\): use 'mixed'"),
        ("cpu", lambda folder: _reader(folder)[1].as_hpu(), RuntimeError, r"a part on hpu \(as_hpu\)"),
        ("mixed", lambda folder: _decoded(folder)[0].as_hpu(), ValueError, "must be called on a tensor of the CPU"),
        ("legacy", _two_decoders, ValueError, "must have one decoder"),
        ("legacy", _reader, ValueError, "must have a decoder or another node on hpu"),
        ("legacy", _window, NotImplementedError, "CropWindowGen exists in C"),
    ],
)
def test_rules_of_graphs(device: str, define: Any, error: type[Exception], message: str, tmp_path: Path) -> None:
    write_images(tmp_path, 2)

    with pytest.raises(error, match=message):
        _Pipe(lambda: define(tmp_path), device=device).build()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fn.ImageDecoder(size=3), RuntimeError, "param size for operator ImageDecoder is invalid"),
        (lambda: fn.ImageDecoder(device="cpu"), RuntimeError, "ImageDecoder not implemented in cpu"),
        (lambda: fn.MediaConst(device="hpu"), RuntimeError, "MediaConst not implemented in hpu"),
        (fn.RandomFlip(), ValueError, "input input of operator RandomFlip is missing"),
        (lambda: fn.RandomFlip()(pred=None), ValueError, "input pred for operator RandomFlip is invalid"),
        (lambda: fn.ImageDecoder()(1, 2, 3), RuntimeError, "ImageDecoder has 2 inputs, got 3"),
        (fn.SSDEncode, NotImplementedError, "and not SSDEncode"),
        (fn.CocoReader, NotImplementedError, "and not CocoReader"),
        (lambda: fn.Nothing, AttributeError, "has no attribute 'Nothing'"),
        (lambda: _Pipe(None, num_threads="2"), ValueError, "`num_threads` must be an int, got '2'"),
        (lambda: iterator_pytorch.HPUSsdPytorchIterator(mediapipe=None), NotImplementedError, "and not HPUSsd"),
    ],
)
def test_operators_check_parameters_and_inputs(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_files_are_sorted_and_one_level_deep(tmp_path: Path) -> None:
    """Other extensions and deeper folders are absent, and labels are the indices of the sorted folders."""
    files = write_images(tmp_path, 6, "ba")
    (tmp_path / "a" / "other.png").touch()
    (tmp_path / "a" / "deep").mkdir()
    (tmp_path / "a" / "deep" / "image.jpg").touch()

    reader = _files(tmp_path)

    assert _epoch(reader) == files
    assert [labels.tolist() for _, labels in reader] == [[0, 0], [0, 1], [1, 1]]
    assert next(iter(reader))[1].dtype == np.uint64


@pytest.mark.parametrize(
    ("count", "parameters", "expected"),
    [
        # 10 images of two slices are 5 each, and 4 in whole batches of 2.
        (10, {"drop_remainder": True}, ([0, 2, 4, 6], [1, 3, 5, 7])),
        (10, {"pad_remainder": True}, ([0, 2, 4, 6, 8, 8], [1, 3, 5, 7, 9, 9])),
        (9, {"pad_remainder": True}, ([0, 2, 4, 6, 8, 8], [1, 3, 5, 7, 8, 8])),
        (9, {"drop_remainder": True}, ([0, 2, 4, 6], [1, 3, 5, 7])),
    ],
)
def test_slices_and_padding(count: int, parameters: Any, expected: Any, tmp_path: Path) -> None:
    """The files are rounded to the slices, dealt out, and rounded to the batch."""
    files = write_images(tmp_path, count)

    slices = [_epoch(_files(tmp_path, num_slices=2, slice_index=index, **parameters)) for index in range(2)]

    assert slices == [[files[index] for index in indices] for indices in expected]


def test_padding_is_drawn_without_replacement_and_sorted(tmp_path: Path) -> None:
    files = write_images(tmp_path, 5)
    rng = np.random.default_rng(3)
    drawn = sorted(rng.choice(5, 3, replace=False))

    assert _epoch(_files(tmp_path, 4, seed=3)) == files + [files[index] for index in drawn]
    with pytest.raises(ValueError, match="larger sample than population"):
        _files(tmp_path, 11)


def test_epochs_shuffle_the_slice_in_place(tmp_path: Path) -> None:
    """Ranks never exchange images, and each epoch shuffles the order of the one before."""
    files = write_images(tmp_path, 8)
    reader = _files(tmp_path, num_slices=2, slice_index=1, shuffle=True, seed=5)
    rng, order = np.random.default_rng(5), files[1::2]

    for _ in range(3):
        rng.shuffle(order)
        assert _epoch(reader) == order


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"num_slices": 2, "slice_index": 2}, ValueError, "`slice_index` must be less than `num_slices`, 2, got 2"),
        ({"drop_remainder": True, "batch_size": 9}, ValueError, "nothing is left of 4 images"),
        ({"last_batch_strategy": 1}, ValueError, "must be None in a legacy pipe"),
        ({"shard_once": True}, ValueError, "must be None in a legacy pipe"),
        ({"last_batch_strategy": 2, "is_legacy": False}, NotImplementedError, "does not simulate"),
        ({"format": "png"}, ValueError, "must have images of png"),
    ],
)
def test_parameters_of_the_reader(parameters: Any, error: type[Exception], message: str, tmp_path: Path) -> None:
    write_images(tmp_path, 4)

    with pytest.raises(error, match=message):
        _files(tmp_path, **parameters)


def test_strategy_of_the_reader_in_cpp(tmp_path: Path) -> None:
    files = write_images(tmp_path, 5)

    assert _epoch(_files(tmp_path, is_legacy=False, last_batch_strategy=1)) == files[:4]
    assert _epoch(_files(tmp_path, is_legacy=False, last_batch_strategy=3)) == [*files, files[-1]]


def test_decoder_crops_whole_pixels_and_resizes_as_pillow(tmp_path: Path) -> None:
    """The window of fractions is the box of pixels that it was made of."""
    [file] = write_images(tmp_path, 1)

    class Reader(reader_nodes.media_ext_reader_op_impl):  # type: ignore[misc] # as above
        def __init__(self, params: Any, fw_params: Any) -> None:
            assert fw_params.batch_size == 1
            self.left = 1

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            if not self.left:
                raise StopIteration
            self.left -= 1
            with Image.open(file) as image:
                box = np.array([[7 / image.width, 5 / image.height, 20 / image.width, 30 / image.height]])
            return [file], box.astype(np.float32)

        def __len__(self) -> int:
            return 1

        def gen_output_info(self) -> Any:
            info = reader_nodes.media_ext_reader_op_tensor_info
            return [info(dtype.NDT, np.array([1], "uint32"), ""), info(dtype.FLOAT32, np.array([4, 1], "uint32"), "")]

        def get_largest_file(self) -> str:
            return str(read_image_from_dir.get_max_file([file]))

        def get_media_output_type(self) -> int:
            return 0

    def define() -> Any:
        jpegs, window = fn.MediaExtReaderOp(impl=Reader, num_outputs=2)()
        return fn.ImageDecoder(resize=[8, 6], output_format=imgtype.RGB_P)(jpegs, window)

    pipe = _Pipe(define, device="legacy", batch_size=1)
    [batch] = list(pipe.as_iterator() or ())
    with Image.open(file) as image:
        expected = image.crop((7, 5, 27, 35)).resize((8, 6), Image.Resampling.BILINEAR)

    assert (batch[0].as_cpu().as_nparray()[0] == np.asarray(expected).transpose(2, 0, 1)).all()


def test_first_generation_has_no_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path, 2)
    monkeypatch.setattr(decoder, "active_config", lambda: SimpleNamespace(generation="GAUDI"))

    with pytest.raises(RuntimeError, match="needs Gaudi 2 or newer"):
        _Pipe(lambda: _decoded(tmp_path)).build()


def test_other_files_than_jpeg_are_refused(tmp_path: Path) -> None:
    [file, _] = write_images(tmp_path, 2)
    Image.new("RGB", (4, 4)).save(file, format="PNG")
    pipe = _Pipe(lambda: _decoded(tmp_path))
    pipe.build()

    with pytest.raises(RuntimeError, match=r"decodes JPEG files only, got PNG in .*00\.jpg"):
        pipe.iter_init()


def test_missing_pillow_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)

    with pytest.raises(ModuleNotFoundError, match=r'pip install "hpu-sim\[media\]"'):
        decoder.size_of("image.jpg")


def test_classes_of_the_program_fail_as_on_1_17(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bridge calls a function that Python 3.11 lacks."""
    monkeypatch.setattr(cpu_nodes, "features", lambda: SimpleNamespace(media_uses_getargspec=True))
    monkeypatch.setattr(cpu_nodes.sys, "version_info", (3, 11))

    with pytest.raises(AttributeError, match="getargspec"):
        cpu_nodes.check_user_classes()
    monkeypatch.setattr(cpu_nodes.sys, "version_info", (3, 10))
    cpu_nodes.check_user_classes()


def test_random_crops_have_the_areas_and_ratios_of_their_ranges() -> None:
    rng = np.random.default_rng(0)
    ranges = {"scale_min": 0.2, "scale_max": 0.6, "ratio_min": 0.8, "ratio_max": 1.25}
    kind = randomCropType.RANDOMIZED_AREA_AND_ASPECT_RATIO_CROP

    windows = np.array([decoder.random_window(rng, (400, 300), kind, ranges) for _ in range(500)])

    areas, ratios = windows[:, 2] * windows[:, 3], windows[:, 2] * 400 / (windows[:, 3] * 300)
    assert 0.19 < areas.min() < 0.22
    assert 0.58 < areas.max() < 0.61
    assert areas.mean() == pytest.approx(0.4, abs=0.02)
    assert np.log(ratios).mean() == pytest.approx(0, abs=0.02)
    assert (windows[:, 0] + windows[:, 2]).max() <= 1
    assert decoder.random_window(rng, (400, 300), randomCropType.CENTER_CROP, ranges) == (0.125, 0, 0.75, 1)


def _computed(operator: Any, *inputs: Any, **parameters: Any) -> Any:
    """Return what an operator computes of arrays."""
    node = operator(**parameters)(*[None] * len(inputs))
    pipe: Any = SimpleNamespace(batch_size=len(inputs[0]) if inputs else 3, is_legacy=True)
    compute = node.node.operator.make(node.node.parameters, pipe)
    return compute(**dict(zip(node.node.operator.inputs, inputs, strict=False)))


@pytest.mark.parametrize("shape", [(2, 3, 6, 8), (2, 6, 8, 3)], ids=["planar", "interleaved"])
def test_crop_mirror_norm_is_the_documented_formula(shape: tuple[int, ...]) -> None:
    """(x - mean) * inv_std of the crop, whose position is a share of what is left."""
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    is_planar = shape[1] == 3
    mean, inv = (
        np.array(each, "float32").reshape((3, 1, 1) if is_planar else (1, 1, 3)) for each in ((1, 2, 3), (4, 5, 6))
    )

    found = _computed(
        fn.CropMirrorNorm, images, mean, inv, crop_w=4, crop_h=4, crop_pos_x=0.5, crop_pos_y=1.0, mirror=1
    )

    crop = images[:, :, 2:6, 2:6][..., ::-1] if is_planar else images[:, 2:6, 2:6][:, :, ::-1]
    assert found.dtype == np.float32
    assert (found == (crop.astype(np.float32) - mean) * inv).all()
    scaled = _computed(
        fn.CropMirrorNorm, images, mean, inv, crop_w=8, crop_h=6, dtype=dtype.UINT8, output_scale=8.0, output_zerop=128
    )
    assert (scaled == np.clip(np.rint((images - mean) * inv / 8 + 128), 0, 255)).all()


def test_random_flip_flips_where_the_predicate_says() -> None:
    """Without `dtype` it returns uint8, also of floats."""
    images = np.random.default_rng(0).random((2, 3, 4, 6)).astype(np.float32)

    found = _computed(fn.RandomFlip, images, np.array([1, 0], "int8"), horizontal=1, dtype=dtype.FLOAT32)
    vertical = _computed(fn.RandomFlip, images * 255, np.array([0, 1], "int8"), vertical=1)

    assert (found == np.stack([images[0, :, :, ::-1], images[1]])).all()
    assert vertical.dtype == np.uint8
    assert (vertical[1] == np.rint(images[1] * 255)[:, ::-1]).all()


@pytest.mark.parametrize("name", ["Brightness", "Contrast", "Saturation"])
def test_colors_keep_the_image_at_the_neutral_factor(name: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 6), dtype=np.uint8)

    assert (_computed(getattr(fn, name), images, np.array([1, 1], "float32")) == images).all()
    half = _computed(getattr(fn, name), images, np.array([1, 0], "float32"))
    assert (half[0] == images[0]).all()
    # Black, the mean gray, and gray.
    axes = {"Brightness": None, "Contrast": (0, 1, 2), "Saturation": 0}[name]
    assert np.ptp(half[1], axes).max() == 0


def test_hue_rotates_about_gray() -> None:
    images = np.random.default_rng(0).integers(60, 190, (1, 3, 4, 6), dtype=np.uint8)
    gray = np.full((1, 3, 2, 2), 77, dtype=np.uint8)

    full = _computed(fn.Hue, images, np.array([360], "float32"))

    assert np.abs(full.astype(int) - images).max() <= 1
    assert np.abs(_computed(fn.Hue, images, np.array([90], "float32")).astype(int) - images).max() > 5
    assert np.abs(_computed(fn.Hue, gray, np.array([90], "float32")).astype(int) - 77).max() <= 1


def test_functions_of_the_program_constants_and_random_numbers() -> None:
    class Double(cpu_nodes.media_function):  # type: ignore[misc] # as above
        def __call__(self, *args: Any) -> Any:
            return args[0] * self.params["priv_params"]

    data = np.arange(3, dtype=np.float32)

    assert _computed(fn.MediaFunc, np.array([1, 2], "float32"), func=Double, priv_params=2).tolist() == [2, 4]
    assert _computed(fn.MediaConst, data=data, shape=[1, 1, 3], dtype=dtype.FLOAT32).shape == (3, 3, 1, 1)
    with pytest.raises(ValueError, match="must be of `dtype`, 'uint8', got 'float32'"):
        _computed(fn.MediaConst, data=data, shape=[3], dtype=dtype.UINT8)
    assert _computed(fn.Constant, constant=0.25).tolist() == [[0.25]] * 3
    assert set(_computed(fn.CoinFlip, seed=1).tolist()) <= {0, 1}
    assert _computed(fn.CoinFlip, np.array([0, 1, 0], "float32"), seed=1).tolist() == [0, 1, 0]
    assert (np.abs(_computed(fn.RandomUniform, seed=1, low=2.0, high=3.0) - 2.5) <= 0.5).all()
    assert _computed(fn.Reshape, np.zeros((3, 2)), size=[1, 1, 2, 3]).shape == (3, 2, 1, 1)


@pytest.mark.parametrize(
    ("device", "is_on_card"), [("mixed", [True, False]), ("legacy", [True, True])], ids=["mixed", "legacy"]
)
def test_iterator_returns_tensors_of_torch(device: str, is_on_card: list[bool], tmp_path: Path) -> None:
    """A mixed pipe leaves on the host what was computed there; labels are int64."""
    write_images(tmp_path, 6)
    iterator = iterator_pytorch.HPUResnetPytorchIterator(mediapipe=_Pipe(lambda: _decoded(tmp_path), device=device))

    batches = list(iterator)

    assert len(iterator) == len(batches) == 3
    assert [tensor.device.type == "hpu" for tensor in batches[0]] == is_on_card
    assert batches[0][1].dtype == torch.int64
    assert [label for _, labels in batches for label in labels.tolist()] == [0, 0, 0, 1, 1, 1]


def test_batches_ahead_take_memory_of_the_card(tmp_path: Path) -> None:
    write_images(tmp_path, 8)
    pipe = _Pipe(lambda: _decoded(tmp_path)[0], prefetch_depth=3)
    iterator = iterator_pytorch.HPUGenericPytorchIterator(mediapipe=pipe)
    before = hpu_sim.stats()["allocated_bytes"]

    iter(iterator)

    assert hpu_sim.stats()["allocated_bytes"] - before >= 3 * 2 * 6 * 8 * 3
    pipe.del_iter()
    assert hpu_sim.stats()["allocated_bytes"] == before


def test_iterators_and_types_are_those_of_the_release() -> None:
    """The vendor's models import the mixed one from 1.22 on; the default release here is newer."""
    assert issubclass(iterator_pytorch.CPUHPUResnetPytorchIterator, iterator_pytorch.HPUResnetPytorchIterator)
    with pytest.raises(KeyError, match="float64"):
        iterator_pytorch._TorchProxy.new_tensor(np.zeros(2), "float64", is_on_hpu=False)
    unsigned = iterator_pytorch._TorchProxy.new_tensor(np.array([2**32 - 1], "uint32"), "uint32", is_on_hpu=False)
    assert (unsigned.dtype, unsigned.item()) == (torch.int32, -1)
