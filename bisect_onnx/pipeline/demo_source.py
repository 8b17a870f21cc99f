"""The text of the demo's model: written to a file, so that reports can show the line a node came from."""

from typing import Final

__all__ = ["SOURCE"]

SOURCE: Final = '''\
"""A small segmentation net: an encoder, a decoder with three resizes, and a head."""

import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Down(nn.Module):
    """Halve the height and width."""

    def __init__(self, channels, wider):
        super().__init__()
        self.conv = nn.Conv2d(channels, wider, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(wider)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.act(self.norm(self.conv(x)))


class Up(nn.Module):
    """Resize to the skip connection, add it, and mix."""

    def __init__(self, channels, narrower):
        super().__init__()
        self.reduce = nn.Conv2d(channels, narrower, 1)
        self.mix = nn.Conv2d(narrower, narrower, 3, padding=1)
        self.act = nn.SiLU()

    def forward(self, x, skip):
        x = self.reduce(x)
        x = F.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=False)
        return self.act(self.mix(x + skip))


class Head(nn.Module):
    """Class scores at the size of the image."""

    def __init__(self, channels, classes):
        super().__init__()
        self.classify = nn.Conv2d(channels, classes, 1)

    def forward(self, x):
        return F.interpolate(self.classify(x), scale_factor=2.0, mode="bilinear", align_corners=False)


class Segmentation(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.down1 = Down(3, 12)
        self.down2 = Down(12, 16)
        self.down3 = Down(16, 24)
        self.up2 = Up(24, 16)
        self.up1 = Up(16, 12)
        self.head = Head(12, classes)

    def forward(self, image):
        half = self.down1(image)
        quarter = self.down2(half)
        eighth = self.down3(quarter)
        x = self.up2(eighth, quarter)
        x = self.up1(x, half)
        return self.head(x)


def build():
    """The net in evaluation mode; its weights are in segmentation.pt."""
    return Segmentation().eval()


def main():
    """Make the weights, one image, and the ONNX file."""
    folder = pathlib.Path(__file__).parent
    torch.manual_seed(0)
    net = build()
    for name, buffer in net.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(std=0.1)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
    image = torch.rand(1, 3, 64, 96) * 2 - 1
    torch.save(net.state_dict(), folder / "segmentation.pt")
    np.savez(folder / "image.npz", image=image.numpy())
    torch.onnx.export(
        net,
        (image,),
        folder / "segmentation.onnx",
        input_names=["image"],
        output_names=["scores"],
        dynamo=True,
        external_data=False,
        verbose=False,
    )


if __name__ == "__main__":
    main()
'''
