"""Intel's media loader: a pipe with a reader of the program's own and the card's decoder, as hpu-data builds it."""

from typing import Any

from hpu_core import bridge
from hpu_doctor.verify.assumption import SkippedError, Subject

# Loaders of earlier releases call `inspect.getargspec`, which Python 3.11 lacks.
SUBJECT = Subject("Media loader", releases=">=1.18", generations=("GAUDI2", "GAUDI3"))


def _write_jpeg(path: str) -> None:
    """Write an image of 32 x 16 pixels, whose left half is red and whose right half is blue."""
    try:
        from PIL import Image
    except ImportError as error:
        raise SkippedError(f"Pillow cannot be imported: {error}") from error
    image = Image.new("RGB", (32, 16), (255, 0, 0))
    image.paste((0, 0, 255), (16, 0, 32, 16))
    image.save(path, quality=95)


def _pipe(  # noqa: C901 - two classes of the vendor's.
    files: list[str], windows: list[list[float]], rows: list[list[int]]
) -> Any:
    """Return Intel's iterator of a pipe that reads one batch."""
    try:
        import numpy as np

        fn, types, pipes = (bridge.load_media(name) for name in ("fn", "media_types", "mediapipe"))
        readers = bridge.load_media("operators.reader_nodes.reader_nodes")
    except ImportError as error:
        raise SkippedError(f"the media loader is not installed: {error}") from error

    class Reader(readers.media_ext_reader_op_impl):  # type: ignore[misc,name-defined] # made at run time
        def __init__(self, params: Any, fw_params: Any) -> None:
            del params, fw_params
            self._batches: Any = iter(())

        def __iter__(self) -> Any:
            self._batches = iter([(files, np.array(windows, np.float32), np.array(rows, np.int32))])
            return self

        def __next__(self) -> Any:
            return next(self._batches)

        def __len__(self) -> int:
            return 1

        def gen_output_info(self) -> list[Any]:
            info, kinds, size = readers.media_ext_reader_op_tensor_info, types.dtype, len(files)
            shapes = ((kinds.NDT, [size]), (kinds.FLOAT32, [4, size]), (kinds.INT32, [3, size]))
            return [info(kind, np.array(shape, dtype=np.uint32), "") for kind, shape in shapes]

        def get_largest_file(self) -> str:
            return files[0]

        def get_media_output_type(self) -> Any:
            return types.readerOutType.FILE_LIST

    class Pipe(pipes.MediaPipe):  # type: ignore[misc,name-defined] # made at run time
        def __init__(self) -> None:
            super().__init__(device="legacy", prefetch_depth=3, batch_size=len(files), pipe_name="hpu-doctor")

        def definegraph(self) -> Any:
            jpegs, cuts, others = fn.MediaExtReaderOp(impl=Reader, num_outputs=3)()
            kind, filter_ = types.imgtype.RGB_P, types.ftype.BI_LINEAR
            decode = fn.ImageDecoder(device="hpu", output_format=kind, resize=[8, 12], resampling_mode=filter_)
            return decode(jpegs, cuts), others

    return bridge.load_media("plugins.iterator_pytorch").HPUGenericPytorchIterator(mediapipe=Pipe())


@SUBJECT.assume(
    source="Intel's page of the media loader; optimum-habana's example for CLIP (clip_media_pipe.py)",
    expected=[["hpu", "torch.uint8", [2, 3, 12, 8], [[1, 2, 3], [4, 5, 6]], True, True]] * 2,
    means={"hpu-data": "images that the card decodes would be others than those of the host, or in another order."},
)
def pipe_decodes_what_a_reader_names() -> object:
    """In each epoch a pipe gives the rows of its reader, and the images as NCHW, cut to their windows (x, y, w, h)."""
    _write_jpeg("image.jpg")
    windows = [[0.5, 0, 0.5, 1], [0, 0, 0.5, 1]]
    iterator = _pipe(["image.jpg"] * 2, windows, [[1, 2, 3], [4, 5, 6]])
    seen = []
    for _ in range(2):
        images, rows = next(iter(iterator))
        blue, red = (image.cpu().float().mean((1, 2)) for image in images)
        colors = [bool(color[high] > 200 and color[low] < 50) for color, high, low in ((blue, 2, 0), (red, 0, 2))]  # noqa: PLR2004 - of 255.
        seen.append([images.device.type, str(images.dtype), list(images.shape), rows.cpu().tolist(), *colors])
    iterator.pipe.del_iter()
    return seen
