"""The pictures of a clip."""

import re
import subprocess

import imageio_ffmpeg
import numpy as np
from PIL import Image


def frames(path):
    """The pictures of a clip, and how many there are a second."""
    if path.suffix == ".gif":
        with Image.open(path) as image:
            pictures = []
            for index in range(image.n_frames):
                image.seek(index)
                pictures.append(np.asarray(image.convert("RGB")))
            return pictures, 1000 / image.info["duration"]
    program = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(program, capture_output=True, check=True)
    width, height, rate = re.search(rb"Video: h264.* (\d+)x(\d+).* ([\d.]+) fps", done.stderr).groups()
    return list(np.frombuffer(done.stdout, np.uint8).reshape(-1, int(height), int(width), 3)), float(rate)


def reddish(picture):
    """Whether a pixel is the robot's."""
    red, green, blue = (picture[..., channel].astype(int) for channel in range(3))
    return (red > green + 40) & (green > blue + 15)
