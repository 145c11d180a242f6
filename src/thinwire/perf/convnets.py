"""Tables of convolutional networks for 224x224 pictures and 1000 classes, as papers and Caffe have them."""

from __future__ import annotations

from thinwire.perf.network import LAST, Layer, Network, joined, norm, weighted

CLASSES = 1000


def alexnet() -> Network:
    """AlexNet with its two halves (Krizhevsky et al. 2012, Caffe's bvlc_alexnet): 60,965,224 parameters."""
    convolutions = (
        ("conv1", (96, 3, 11, 11), 55),
        ("conv2", (256, 48, 5, 5), 27),
        ("conv3", (384, 256, 3, 3), 13),
        ("conv4", (384, 192, 3, 3), 13),
        ("conv5", (256, 192, 3, 3), 13),
    )
    layers = joined(
        *(weighted(name, shape, side * side) for name, shape, side in convolutions),
        weighted("fc6", (4096, 9216), 1),
        weighted("fc7", (4096, 4096), 1),
        weighted("fc8", (CLASSES, 4096), 1, LAST),
    )
    return Network("alexnet", layers, batch=128, source="Caffe's bvlc_alexnet")


def vgg_a() -> Network:
    """VGG-A, of 11 layers (Simonyan and Zisserman 2014): 132,863,336 parameters."""
    early = ((3, 64, 224), (64, 128, 112), (128, 256, 56), (256, 256, 56))
    late = ((256, 512, 28), (512, 512, 28), (512, 512, 14), (512, 512, 14))
    layers = joined(
        *(
            weighted(f"conv{k}", (wide, narrow, 3, 3), side * side)
            for k, (narrow, wide, side) in enumerate(early + late, 1)
        ),
        weighted("fc6", (4096, 512 * 7 * 7), 1),
        weighted("fc7", (4096, 4096), 1),
        weighted("fc8", (CLASSES, 4096), 1, LAST),
    )
    return Network("vgg-a", layers, batch=32, source="VGG's table 1, column A")


# in, 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection, side: table 1 of the paper
_INCEPTIONS = {
    "3a": (192, 64, 96, 128, 16, 32, 32, 28),
    "3b": (256, 128, 128, 192, 32, 96, 64, 28),
    "4a": (480, 192, 96, 208, 16, 48, 64, 14),
    "4b": (512, 160, 112, 224, 24, 64, 64, 14),
    "4c": (512, 128, 128, 256, 24, 64, 64, 14),
    "4d": (512, 112, 144, 288, 32, 64, 64, 14),
    "4e": (528, 256, 160, 320, 32, 128, 128, 14),
    "5a": (832, 256, 160, 320, 32, 128, 128, 7),
    "5b": (832, 384, 192, 384, 48, 128, 128, 7),
}


def _inception(name: str) -> list[Layer]:
    narrow, one, three_in, three, five_in, five, pool, side = _INCEPTIONS[name]
    shapes = (
        ("1x1", (one, narrow, 1, 1)),
        ("3x3_reduce", (three_in, narrow, 1, 1)),
        ("3x3", (three, three_in, 3, 3)),
        ("5x5_reduce", (five_in, narrow, 1, 1)),
        ("5x5", (five, five_in, 5, 5)),
        ("pool_proj", (pool, narrow, 1, 1)),
    )
    return list(joined(*(weighted(f"inception_{name}.{what}", s, side * side) for what, s in shapes)))


def googlenet() -> Network:
    """GoogLeNet without auxiliary heads (Szegedy et al. 2014, as in Caffe): 6,998,552 parameters."""
    layers = joined(
        weighted("conv1", (64, 3, 7, 7), 112 * 112),
        weighted("conv2_reduce", (64, 64, 1, 1), 56 * 56),
        weighted("conv2", (192, 64, 3, 3), 56 * 56),
        *(_inception(name) for name in _INCEPTIONS),
        weighted("fc", (CLASSES, 1024), 1, LAST),
    )
    return Network("googlenet", layers, batch=64, source="Caffe's bvlc_googlenet, no auxiliary heads")


def resnet50() -> Network:
    """ResNet-50 with the stride in the 3x3 convolution (torchvision's): 25,557,032 parameters."""
    layers = [*_normed("conv1", (64, 3, 7, 7), 112)]
    narrow = 64
    for stage, (width, blocks, side) in enumerate(((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)), 1):
        for block in range(blocks):
            layers += _bottleneck(f"layer{stage}.{block}", narrow, width, side, block == 0 and stage > 1)
            narrow = 4 * width
    layers += weighted("fc", (CLASSES, 2048), 1, LAST)
    return Network("resnet50", tuple(layers), batch=64, source="torchvision's resnet50")


def _normed(name: str, shape: tuple[int, ...], side: int) -> list[Layer]:
    return [*weighted(name, shape, side * side, bias=False), *norm(f"{name}_bn", shape[0])]


def _bottleneck(name: str, narrow: int, width: int, side: int, strided: bool) -> list[Layer]:
    layers = [
        *_normed(f"{name}.conv1", (width, narrow, 1, 1), 2 * side if strided else side),
        *_normed(f"{name}.conv2", (width, width, 3, 3), side),
        *_normed(f"{name}.conv3", (4 * width, width, 1, 1), side),
    ]
    if narrow != 4 * width:
        layers += _normed(f"{name}.downsample", (4 * width, narrow, 1, 1), side)
    return layers
