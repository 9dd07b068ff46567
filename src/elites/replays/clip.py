"""Captions, tiles, and the file of a clip, which is never left incomplete."""

from __future__ import annotations

import functools
import subprocess
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from elites.errors import ElitesError
from elites.files import convert_os_errors, partial_path

FORMATS = (".mp4", ".gif")
EMPTY = 232
DIMMED = 0.55
COLOURS = 255  # of a GIF


@functools.cache
def _font(height: int) -> Any:
    return ImageFont.load_default(size=max(10, height // 16))


def add_caption(picture: np.ndarray, text: str, size: tuple[int, int], *, at_end: bool) -> np.ndarray:
    """The picture in this size, with a text in its corner; pale if its episode is over."""
    image = Image.fromarray(picture)
    if image.size != size:
        image = ImageOps.pad(image, size, Image.Resampling.LANCZOS, color=(EMPTY,) * 3)
    if at_end:
        image = Image.blend(image, Image.new("RGB", size, (EMPTY,) * 3), DIMMED)
    if text:
        draw, font, margin = ImageDraw.Draw(image, "RGBA"), _font(size[1]), max(3, size[1] // 60)
        box = draw.multiline_textbbox((margin, margin), text, font=font, spacing=2)
        draw.rectangle(
            (box[0] - margin, box[1] - margin, box[2] + margin, box[3] + margin), (255, 255, 255, 190)
        )
        draw.multiline_text((margin, margin), text, (20, 20, 20), font, spacing=2)
    return np.asarray(image)


def blank_tile(size: tuple[int, int]) -> np.ndarray:
    """The tile of a region without an elite."""
    return add_caption(np.full((size[1], size[0], 3), EMPTY, np.uint8), "no elite", size, at_end=False)


def tile_pictures(pictures: list[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """Pictures of one size, row by row."""
    rows, columns = shape
    height, width, _ = pictures[0].shape
    stacked = np.stack(pictures).reshape(rows, columns, height, width, 3)
    whole = stacked.transpose(0, 2, 1, 3, 4).reshape(rows * height, columns * width, 3).copy()
    whole[height::height] = 255
    whole[:, width::width] = 255
    return whole


class Clip:
    """A clip that is written picture by picture, at `rate` pictures per second.

    A GIF has the colours of its first picture, or of `palette`.
    """

    def __init__(self, path: Path, rate: float, palette: np.ndarray | None = None) -> None:
        self.path, self.rate, self.palette = path, rate, palette
        self._partial = partial_path(path)
        self._film: subprocess.Popen[bytes] | None = None
        self._images: list[Image.Image] = []
        self._colours: Image.Image | None = None

    def __enter__(self) -> Clip:
        with convert_os_errors(f"cannot write {self.path}"):
            self._partial.unlink(missing_ok=True)  # the encoder of a killed replay may still write to it
            self._partial.open("wb").close()
        return self

    def add(self, picture: np.ndarray) -> None:
        """The next picture `[height, width, 3]`."""
        if self.path.suffix == ".gif":
            # All pictures have the same colours: parts that do not move take no space.
            if self._colours is None:
                first = picture if self.palette is None else self.palette
                self._colours = Image.fromarray(first).quantize(COLOURS, dither=Image.Dither.NONE)
            image = Image.fromarray(picture).quantize(palette=self._colours, dither=Image.Dither.NONE)
            self._images.append(image)
            return
        if self._film is None:
            self._film = self._start_encoder(picture.shape[1], picture.shape[0])
        assert self._film.stdin is not None
        try:
            self._film.stdin.write(picture.tobytes())
        except BrokenPipeError:
            self._finish(self._film)

    def _start_encoder(self, width: int, height: int) -> subprocess.Popen[bytes]:
        """A process that encodes the pictures; imageio's own writer would fork this process."""
        import imageio_ffmpeg

        options = ("-y", "-v", "error")
        source = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{self.rate:.4f}")
        coding = ("-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "23", "-movflags", "+faststart")
        target = (*coding, "-f", "mp4")  # which the name of an incomplete file does not say
        # It gets the open file, not its name: if this process is killed, it can still finish the file.
        with self._partial.open("r+b") as file:
            return subprocess.Popen(
                [
                    *(imageio_ffmpeg.get_ffmpeg_exe(), *options, *source, "-i", "-"),
                    *(*target, f"/dev/fd/{file.fileno()}"),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(file.fileno(),),
            )

    def _finish(self, film: subprocess.Popen[bytes]) -> None:
        message = film.communicate()[1].decode(errors="replace")
        if film.returncode:
            raise ElitesError(f"cannot write {self.path}: {' '.join(message.split())}")

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if self._film is not None:
                if kind is not None:
                    self._film.kill()
                    self._film.communicate()
                else:
                    self._finish(self._film)
            if kind is None:
                with convert_os_errors(f"cannot write {self.path}"):
                    if self._images:
                        self._save()
                    if not self._partial.stat().st_size:
                        raise ElitesError(f"cannot write {self.path}: nothing was drawn")
                    self._partial.replace(self.path)
        finally:
            self._partial.unlink(missing_ok=True)

    def _save(self) -> None:
        first, *others = self._images
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first.save(
                self._partial,
                format="GIF",
                save_all=True,
                append_images=others,
                duration=max(2, round(100 / self.rate)) * 10,  # ms; files count hundredths
                loop=0,
                optimize=False,
                disposal=1,
            )
