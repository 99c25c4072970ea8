"""The contestants of `mapping.py`: each reads what is not timed, and returns the function that is."""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

THREADS, CHIP, BATCH = 2, 256, 8
# A library has its operators as long as it is referenced.
OPERATORS: list[Any] = []


@dataclass(frozen=True)
class Job:
    """Folder of `mapping.build`, name of one of its scenes, and the folder to write to."""

    folder: Path
    scene: str
    out: Path

    @property
    def tiles(self) -> Path:
        """The store of the scene."""
        return self.folder / self.scene / "tiles.zarr"

    @property
    def outputs(self) -> tuple[Path, Path]:
        """Classes and probabilities."""
        return self.out / "classes.tif", self.out / "probabilities.tif"


def eopipe(job: Job) -> Callable[[], None]:
    """The stage predict, with memory and libraries as its command sets them up."""
    from eopipe.cli import set_up_libraries
    from eopipe.contract import stage
    from eopipe.stages.predict import predict

    set_up_libraries(stage("predict"))
    return lambda: predict(job.folder / "model", (job.tiles,), *job.outputs, device="cpu", threads=THREADS)


def _windows(job: Job, normalised: bool) -> Iterator[tuple[Any, tuple[slice, slice], tuple[slice, slice]]]:
    """Images (1, band, y, x) of the windows of the stage with their halo; rows and columns in image and scene."""
    from eopipe.inference.images import read_normalised, read_valid
    from eopipe.inference.predictor import PredictorSettings, open_predictor, padded_slice
    from eopipe.models.model_folder import read_trained_model
    from eopipe.tiles.store import Tiles

    trained, store = read_trained_model(job.folder / "model"), Tiles(job.tiles)
    settings = PredictorSettings(512, None, "cpu", THREADS)
    predictor = open_predictor(trained, job.folder / "model", [store], settings)
    mean, std = (np.float32(values)[:, None, None] for values in (trained.normaliser.mean, trained.normaliser.std))
    for window in predictor.windows():
        padded = [
            padded_slice(edge, axis, predictor.halo, predictor.factor)
            for edge, axis in zip(store.shape, window, strict=True)
        ]
        valid = read_valid(store, *padded)
        image = read_normalised(store, trained.bands, trained.normaliser, padded, valid)
        part = [slice(a.start - b.start, a.stop - b.start) for a, b in zip(window, padded, strict=True)]
        # The exported graph normalises by itself.
        yield (image if normalised else image * std + mean)[None], (part[0], part[1]), window


def forward(job: Job) -> Callable[[], Any]:
    """PyTorch on windows in memory: probabilities (class, y, x)."""
    import torch

    from eopipe.models.model_folder import read_trained_model

    torch.set_num_threads(THREADS)
    trained, parts = read_trained_model(job.folder / "model"), [*_windows(job, normalised=True)]
    module = trained.build(job.folder / "model").eval()

    @torch.inference_mode()
    def run(image: Any) -> Any:
        return module(torch.from_numpy(image)).softmax(1).numpy()

    return lambda: _assembled(parts, run)


def onnx(job: Job) -> Callable[[], Any]:
    """ONNX Runtime on windows in memory: probabilities (class, y, x)."""
    import onnxruntime

    options, parts = onnxruntime.SessionOptions(), [*_windows(job, normalised=False)]
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(job.folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    return lambda: _assembled(parts, lambda image: session.run(None, {"image": image})[0])


def _assembled(parts: list[Any], run: Callable[[Any], Any]) -> Any:
    height, width = (max(window[axis].stop for _, _, window in parts) for axis in (0, 1))
    whole: Any = None
    for image, part, window in parts:
        output = run(image)[0]
        whole = np.empty((len(output), height, width), np.float32) if whole is None else whole
        whole[:, *window] = output[:, *part]
    return whole


def torchgeo(job: Job) -> Callable[[], None]:
    """RasterDataset, GridGeoSampler and DataLoader."""
    import torch

    if not OPERATORS:
        # torchvision's wheels hold operators for CUDA's torch alone; TorchGeo reads without them.
        OPERATORS.append(torch.library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            OPERATORS[0].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    data: Any = importlib.import_module("torchgeo.datasets")
    sampling: Any = importlib.import_module("torchgeo.samplers")

    class Scene(data.RasterDataset):  # type: ignore[misc]
        filename_glob = "scene.tif"

    def batches() -> Iterator[tuple[Any, list[tuple[int, int]]]]:
        scene = Scene(str(job.folder / job.scene))
        sampler = sampling.GridGeoSampler(scene, size=CHIP, stride=CHIP)
        loader: Any = torch.utils.data.DataLoader(
            scene, batch_size=BATCH, sampler=sampler, collate_fn=data.stack_samples
        )
        top = scene.bounds[1].stop
        for batch in loader:
            corners = [(round((top - y.stop) / 10), round(x.start / 10)) for x, y, *_ in batch["bounds"]]
            yield batch["image"].float(), corners

    return lambda: _map_chips(job, batches())


def chip_loop(job: Job) -> Callable[[], None]:
    """The loop of TorchGeo's users without TorchGeo: chips of a lattice by rasterio, and a DataLoader."""
    import rasterio
    import torch
    from rasterio.windows import Window

    class Lattice(torch.utils.data.Dataset[Any]):
        def __init__(self) -> None:
            self.file = rasterio.open(job.folder / job.scene / "scene.tif")
            edges = [range(0, edge, CHIP) for edge in self.file.shape]
            self.corners = [(row, column) for row in edges[0] for column in edges[1]]

        def __len__(self) -> int:
            return len(self.corners)

        def __getitem__(self, number: int) -> Any:
            row, column = self.corners[number]
            pixels = self.file.read(window=Window(column, row, CHIP, CHIP), boundless=True, fill_value=0)
            return torch.from_numpy(pixels.astype(np.float32)), number

    def batches() -> Iterator[tuple[Any, list[tuple[int, int]]]]:
        scene = Lattice()
        loader: Any = torch.utils.data.DataLoader(scene, batch_size=BATCH)
        for images, numbers in loader:
            yield images, [scene.corners[number] for number in numbers.tolist()]

    return lambda: _map_chips(job, batches())


def _map_chips(job: Job, batches: Iterator[tuple[Any, list[tuple[int, int]]]]) -> None:
    """Predict batches of chips, and write the classes as a GeoTIFF."""
    import rasterio
    import torch

    from eopipe.models.model_folder import read_trained_model

    torch.set_num_threads(THREADS)
    trained = read_trained_model(job.folder / "model")
    module = trained.build(job.folder / "model").eval()
    mean, std = (torch.tensor(values)[:, None, None] for values in (trained.normaliser.mean, trained.normaliser.std))
    with rasterio.open(job.folder / job.scene / "scene.tif") as source:
        profile = {"crs": source.crs, "transform": source.transform, "height": source.height, "width": source.width}
    classes = np.zeros((profile["height"], profile["width"]), np.uint8)
    with torch.inference_mode():
        for images, corners in batches:
            predicted = module((images * 1e-4 - mean) / std).softmax(1).argmax(1).numpy().astype(np.uint8)
            for chip, (row, column) in zip(predicted, corners, strict=True):
                part = classes[row : row + CHIP, column : column + CHIP]
                part[:] = chip[: part.shape[0], : part.shape[1]]
    job.out.mkdir(parents=True, exist_ok=True)
    options = {"driver": "GTiff", "dtype": "uint8", "count": 1, "compress": "deflate", "tiled": True}
    with rasterio.open(job.outputs[0], "w", **profile, **options) as file:
        file.write(classes, 1)


CONTESTANTS: dict[str, Callable[[Job], Callable[[], Any]]] = {
    "eopipe": eopipe,
    "forward": forward,
    "onnx": onnx,
    "torchgeo": torchgeo,
    "chip_loop": chip_loop,
}


def differences(folder: Path, out: Path) -> str:
    """One sentence on the probabilities and classes of other ways to make the same map."""
    import rasterio

    by_torch, by_onnx = (contestant(Job(folder, "large", out))() for contestant in (forward, onnx))
    jobs = [Job(folder, "large", out / name) for name in ("stage", "chips")]
    for job, contestant in zip(jobs, (eopipe, chip_loop), strict=True):
        contestant(job)()
    maps = []
    for job in jobs:
        with rasterio.open(job.outputs[0]) as file:
            maps.append(file.read(1))
    changed = int((by_torch.argmax(0) != by_onnx.argmax(0)).sum())
    return (
        f"largest difference of probabilities of ONNX Runtime and PyTorch: {np.abs(by_torch - by_onnx).max():.1e}, "
        f"{changed} of {maps[0].size} pixels with another class; stage and bare forward: "
        f"{int((by_torch.argmax(0) != maps[0]).sum())} pixels; stage and loop of chips: "
        f"{int((maps[0] != maps[1]).sum())} pixels"
    )
