"""Figures: text in any script, the same bytes whatever the machine's settings, maps with correct axes."""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from affine import Affine
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.font_manager import fontManager
from odc.geo.geobox import GeoBox
from PIL import Image
from pyproj import Transformer

from eopipe.arrays import AnyArray
from eopipe.reporting.figures import (
    figure_style,
    font_families,
    new_figure,
    rgb,
    save_png,
    save_svg,
    shorten_to_width,
    text_width,
    wrapped,
)
from eopipe.reporting.maps import MapContent, MapPanel, degrees, label_degrees, write_map
from eopipe.tiles.cells import Frame

FOREST = "森林"
# No character has this number, so that no font has a glyph for it.
UNASSIGNED = "\u0378"


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only the fonts that matplotlib ships."""
    shipped = [entry for entry in fontManager.ttflist if Path(entry.fname).is_relative_to(mpl.get_data_path())]
    monkeypatch.setattr(fontManager, "ttflist", shipped)
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", list)
    # Its search for a face is cached.
    fontManager._findfont_cached.cache_clear()
    yield
    fontManager._findfont_cached.cache_clear()


@pytest.fixture
def forest_font(tmp_path: Path) -> Path:
    """A font that has nothing but two triangles, for the characters of a forest."""
    names = [".notdef", *(f"uni{ord(c):04X}" for c in FOREST)]
    glyphs = {}
    for name in names:
        pen = TTGlyphPen(None)
        pen.moveTo((100, 0))
        pen.lineTo((900, 0))
        pen.lineTo((500, 800 if name != names[-1] else 400))
        pen.closePath()
        glyphs[name] = pen.glyph()
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder(names)
    font.setupCharacterMap({ord(c): name for c, name in zip(FOREST, names[1:], strict=True)})
    font.setupGlyf(glyphs)
    font.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": "Two Trees", "styleName": "Regular"})
    font.setupOS2(usWeightClass=400)
    font.setupPost()
    font.save(tmp_path / "trees.ttf")
    return tmp_path / "trees.ttf"


def drawn(text: str, folder: Path) -> AnyArray:
    """The pixels of a text, in grey."""
    with figure_style(text):
        figure = new_figure(2, 0.5)
        figure.text(0.05, 0.3, text, size=16)
        save_png(figure, folder / "text.png")
    with Image.open(folder / "text.png") as image:
        return np.asarray(image.convert("L"))


@pytest.mark.usefixtures("bundled")
@pytest.mark.parametrize("text", ["Карта лесов", "Χάρτης δασών", "Carte forêt œuvre", "Łódź"])
def test_latin_greek_and_cyrillic_letters_are_drawn_on_every_machine(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert font_families(text) == ["DejaVu Sans"]
    missing = drawn(UNASSIGNED, tmp_path)
    assert (missing < 128).any(), "a missing glyph is a box"
    caplog.clear()
    shapes = {letter: drawn(letter, tmp_path) for letter in set(text) - {" "}}
    assert all((shape < 128).any() and (shape != missing).any() for shape in shapes.values())
    assert len({shape.tobytes() for shape in shapes.values()}) == len(shapes), "letters differ from each other"
    assert caplog.messages == []


@pytest.mark.usefixtures("bundled")
def test_characters_that_the_font_lacks_are_taken_from_a_face_that_has_them(
    forest_font: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    missing = drawn(FOREST[0], tmp_path)
    assert len(caplog.messages) == 1
    caplog.clear()
    fontManager.addfont(forest_font)
    assert font_families(f"forest {FOREST}") == ["DejaVu Sans", "Two Trees"]
    first, second = (drawn(letter, tmp_path) for letter in FOREST)
    assert (first != missing).any()
    assert (first < 128).sum() > 1.5 * (second < 128).sum() > 0, "one triangle is twice as high as the other"
    assert caplog.messages == []


@pytest.mark.usefixtures("bundled")
def test_a_font_that_was_installed_after_matplotlib_listed_the_fonts_is_used(
    forest_font: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda: [str(forest_font)])
    assert font_families(FOREST) == ["DejaVu Sans", "Two Trees"]


@pytest.mark.usefixtures("bundled")
def test_characters_without_a_font_are_named_once_and_never_question_marks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "eopipe"):
        box = drawn(FOREST + FOREST, tmp_path)
    assert caplog.messages == [
        "event=no_font characters='林 (CJK UNIFIED IDEOGRAPH-6797), 森 (CJK UNIFIED IDEOGRAPH-68EE)' "
        "remedy='install a font that has them, such as one of the Noto family'"
    ]
    assert (box != drawn("????", tmp_path)).any()


def test_a_dollar_is_a_dollar(tmp_path: Path) -> None:
    assert (drawn("$a$", tmp_path) != drawn("a", tmp_path)).any()


def test_settings_of_the_user_change_nothing(tmp_path: Path) -> None:
    plain = drawn("Forest", tmp_path)
    with mpl.rc_context({"font.size": 30, "text.color": "red", "font.family": "serif", "savefig.facecolor": "black"}):
        assert (drawn("Forest", tmp_path) == plain).all()
        assert mpl.rcParams["font.size"] == 30, "and theirs are as they were"


def test_a_read_only_home_gives_no_complaint(tmp_path: Path) -> None:
    code = "from pathlib import Path; from eopipe.reporting.figures import *\n"
    code += "with figure_style('a'): figure = new_figure(1, 1); save_png(figure, Path('a.png'))"
    private = ("MPLCONFIGDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in private}
    environment |= {"HOME": "/proc", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "a.png").is_file()


def test_text_is_wrapped_and_shortened_to_the_width(tmp_path: Path) -> None:
    with figure_style():
        lines = wrapped("Scenes of 1\u202f234 places and averyverylongwordthatfitsnowhere", 10, 1.2)
        assert all(text_width(line, 10) <= 1.2 for line in lines)
        assert "1\u202f234" in " ".join(lines), "a number is not cut at its thousands"
        assert lines[-1].startswith("averyv")
        assert lines[-1].endswith("where")
        assert (wrapped("", 10, 1), shorten_to_width("short", 10, 1)) == ([], "short")


def test_an_svg_for_the_page_holds_no_style_no_repeated_id_and_its_texts_unchanged() -> None:
    with figure_style(salt="chart"):
        figure = new_figure(3, 2)
        axes = figure.subplots()
        axes.plot([0, 1], [0.025, 0.075], clip_on=False)
        axes.set_yticks([0.025, 0.075])
        axes.set_title("a < b & c")
        text = save_svg(figure, 'an "alt" text')
    assert text.startswith('<svg class="chart" viewBox="0 0 216 144" role="img" aria-label="an &#34;alt&#34; text">')
    for word in ("<style", "url(", "xlink", "<metadata", "#1e2528", "http"):
        assert word not in text
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    assert {">0.025<", ">0.075<", ">a &lt; b &amp; c<"} <= set(re.findall(r">[^<>]+<", text))


GRID = GeoBox((60, 100), Affine(10, 0, 500000, 0, -10, 5000000), "EPSG:32633")


def content(numbers: AnyArray, grid: GeoBox = GRID, **changes: object) -> MapContent:
    window = (slice(0, numbers.shape[0]), slice(0, numbers.shape[1]))
    parts = {"title": "A map", "subtitle": "", "credit": "", "classes": ("a", "b"), "colors": ("#e69f00", "#56b4e9")}
    panels = [MapPanel("", numbers, window, grid)]
    return MapContent(**(parts | {"frame": Frame.of_grids([grid]), "step": 1, "panels": panels} | changes))  # type: ignore[arg-type]


def test_a_map_shows_every_cell_in_the_colour_of_its_class_and_alike_in_size(tmp_path: Path) -> None:
    numbers = np.random.default_rng(1).integers(0, 2, (60, 100)).astype(np.uint8)
    numbers[0] = numbers[-1] = numbers[:, 0] = numbers[:, -1] = 1
    write_map(tmp_path / "map.png", content(numbers))
    with Image.open(tmp_path / "map.png") as image:
        pixels = np.asarray(image.convert("RGB"))
    assert pixels.shape[1] == 1400
    blue = (pixels == rgb("#56b4e9")).all(-1)
    # The frame of the axes covers the outer dots; the widest run of blue is a row at the edge of the map.
    runs = blue.sum(1)
    row = int(np.flatnonzero(runs == runs.max())[0])
    left, right = np.flatnonzero(blue[row])[[0, -1]]
    size = round((right - left) / 100)
    across = left + (np.arange(100) + 0.5) * size
    down = row + (np.arange(60) + 0.5) * size
    drawn_cells = blue[np.ix_(down.astype(int), across.astype(int))]
    np.testing.assert_array_equal(drawn_cells, numbers == 1)


@given(
    zone=st.integers(1, 60),
    south=st.booleans(),
    north=st.floats(1e5, 7e6),
    size=st.floats(500, 3e5),
    ratio=st.floats(0.2, 5),
)
@settings(max_examples=30, deadline=None)
def test_ticks_of_a_map_are_where_their_degrees_are(
    zone: int, south: bool, north: float, size: float, ratio: float
) -> None:
    crs = f"EPSG:{327 if south else 326}{zone:02}"
    with figure_style():
        axes = new_figure(6, 6 * min(ratio, 1.5)).add_axes((0, 0, 1, 1))
        axes.set(xlim=(5e5 - size / 2, 5e5 + size / 2), ylim=(north, north + size * ratio))
        label_degrees(axes, crs)
        to_degrees = Transformer.from_crs(crs, "EPSG:4326", always_xy=True)
        for axis, edge in ((axes.xaxis, 0), (axes.yaxis, 1)):
            labels = [label.get_text() for label in axis.get_ticklabels()]
            assert len(labels) == len(set(labels))
            for tick, label in zip(axis.get_ticklocs(), labels, strict=True):
                corner = (tick, north) if edge == 0 else (5e5 - size / 2, tick)
                value, *side = label.replace("°", "").split()
                expected = to_degrees.transform(*corner)[edge]
                difference = float(value) * {"W": -1, "S": -1}.get("".join(side), 1) - expected
                assert (difference + 180) % 360 - 180 == pytest.approx(0, abs=1e-3)


def test_a_map_across_180_degrees_and_one_of_a_pole_have_ticks_too() -> None:
    with figure_style():
        axes = new_figure(6, 6).add_axes((0, 0, 1, 1))
        axes.set(xlim=(2e5, 4e5), ylim=(7e6, 7.2e6))
        label_degrees(axes, "EPSG:32601")
        names = [label.get_text() for label in axes.get_xticklabels()]
        assert {name[-1] for name in names} <= {"E", "W", "°"}
        axes.set(xlim=(-5e5, 5e5), ylim=(-5e5, 5e5))
        label_degrees(axes, "EPSG:3413")
        assert "-400,000" in [label.get_text() for label in axes.get_xticklabels()]


@pytest.mark.parametrize(("value", "step", "text"), [(22.15, 0.05, "22.15° E"), (-3, 1, "3° W"), (0.0, 0.5, "0.0°")])
def test_degrees_have_the_digits_that_their_step_needs(value: float, step: float, text: str) -> None:
    assert degrees(value, step, "WE") == text


def test_degrees_of_a_geographic_grid_are_drawn_as_long_as_they_are_on_the_ground(tmp_path: Path) -> None:
    # At 60 degrees north a degree of longitude is half as long as one of latitude.
    grid = GeoBox((100, 100), Affine(0.001, 0, 10, 0, -0.001, 60.05), "EPSG:4326")
    write_map(tmp_path / "map.png", content(np.zeros((100, 100), np.uint8), grid))
    with Image.open(tmp_path / "map.png") as image:
        area = (np.asarray(image.convert("RGB")) == rgb("#e69f00")).all(-1)
    width, height = area.sum(1).max() - 60, area.sum(0).max()
    assert height / width == pytest.approx(2, rel=0.15)
