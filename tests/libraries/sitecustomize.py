"""For processes with torchvision beside a torch for CPUs: its wheels have compiled operators for CUDA's torch only.

With their names declared its Python modules can be imported; the operators, of boxes and regions, do not compute.
"""

from importlib.util import find_spec

if find_spec("torchvision"):
    import torch

    library = torch.library.Library("torchvision", "DEF")
    BOXES = "Tensor input, Tensor rois, float scale, SymInt height, SymInt width"
    for schema in (
        "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        f"roi_align({BOXES}, int sampling_ratio, bool aligned) -> Tensor",
        f"_roi_align_backward({BOXES}, int sampling_ratio, bool aligned) -> Tensor",
        f"roi_pool({BOXES}) -> (Tensor, Tensor)",
        f"_roi_pool_backward({BOXES}) -> Tensor",
        f"ps_roi_align({BOXES}, int sampling_ratio) -> (Tensor, Tensor)",
        f"_ps_roi_align_backward({BOXES}) -> Tensor",
        f"ps_roi_pool({BOXES}) -> (Tensor, Tensor)",
        f"_ps_roi_pool_backward({BOXES}) -> Tensor",
        "deform_conv2d(Tensor input) -> Tensor",
        "_deform_conv2d_backward(Tensor input) -> Tensor",
    ):
        library.define(schema)
