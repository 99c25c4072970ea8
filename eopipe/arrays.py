"""One vocabulary for the types of NumPy arrays: an alias says the data type, a parameter's name says what is inside."""

from typing import Any

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]
UInt8Array = npt.NDArray[np.uint8]
UInt16Array = npt.NDArray[np.uint16]
Int32Array = npt.NDArray[np.int32]
UInt64Array = npt.NDArray[np.uint64]
# Counts, and positions in a table or an image.
IntArray = npt.NDArray[np.int64]
# What NumPy itself takes as an index on this platform.
IndexArray = npt.NDArray[np.intp]
# Pixels and what a network reads.
FloatArray = npt.NDArray[np.float32]
# Sums, coordinates and scores.
Float64Array = npt.NDArray[np.float64]
# Single or double precision.
AnyFloatArray = npt.NDArray[np.floating[Any]]
ObjectArray = npt.NDArray[np.object_]
