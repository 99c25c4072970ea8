"""Seconds that the gaps between the chips of two splits take: `python benchmarks/chip_gaps.py 16384 100000`.

Places as in `chip_sets.py`, a kilometre apart in twelve UTM zones, in blocks of 50 km: 70 % train, 15 % val and test.
"""

import sys
import time

import numpy as np
from pyproj import Transformer

from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.chip_table import ChipGround, equal_area_blocks

EDGE, ZONES = 64, 12


def made_up_places(count: int) -> ChipPlaces:
    """Chips without pixels."""
    rows = []
    for zone in range(ZONES):
        crs, place = f"EPSG:{32601 + 5 * zone}", np.arange(-(-(count - zone) // ZONES))
        x, y = 400_000 + place % 200 * 1000.0, 4_000_000 + place // 200 * 1000.0
        half = EDGE * 10 / 2
        degrees = Transformer.from_crs(crs, 4326, always_xy=True).transform(x + half, y - half)
        for left, top, longitude, latitude in zip(x, y, *degrees, strict=True):
            transform = [10.0, 0.0, left, 0.0, -10.0, top]
            row = {"id": str(len(rows)), "crs": crs, "transform": transform, "width": EDGE, "height": EDGE}
            rows.append(row | {"longitude": longitude, "latitude": latitude})
    slots = np.arange(count)
    return ChipPlaces(EDGE, np.column_stack([0 * slots, slots // EDGE * EDGE, slots % EDGE * EDGE]), tuple(rows))


def main() -> None:
    """Measure each number of chips."""
    for count in map(int, sys.argv[1:]):
        places = made_up_places(count)
        _, blocks = np.unique(equal_area_blocks(places.degrees, 50), axis=0, return_inverse=True)
        of_block = np.random.default_rng(0).choice(3, blocks.max() + 1, p=[0.7, 0.15, 0.15])
        train, test = (np.flatnonzero(of_block[blocks.ravel()] == number) for number in (0, 2))
        # Computed once for all pairs of splits.
        ground = ChipGround.of_set(places)
        len(ground.half_axes), len(ground.centres)
        start = time.perf_counter()
        gaps, _ = ground.gaps(train, test)
        print(
            f"{count} chips, {len(test)} of test: {time.perf_counter() - start:.2f} s, sum of gaps {gaps.sum():.0f} m"
        )


if __name__ == "__main__":
    main()
