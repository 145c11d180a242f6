"""Plain convolutional networks for pictures of 8x8, 28x28 and 32x32 pixels."""

from __future__ import annotations

from torch import nn

from thinwire_lab.models.named_layers import named


def digits_cnn(classes: int) -> nn.Module:
    """Two convolutions and two fully-connected layers for 8x8 pictures: 151,306 parameters."""
    return named(
        conv1=nn.Conv2d(1, 32, 3, padding=1),
        relu1=nn.ReLU(),
        conv2=nn.Conv2d(32, 64, 3, padding=1),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flat=nn.Flatten(),
        fc1=nn.Linear(64 * 4 * 4, 128),
        relu3=nn.ReLU(),
        fc2=nn.Linear(128, classes),
    )


def lenet(classes: int) -> nn.Module:
    """Caffe's LeNet (20-50-500) for 28x28 pictures: 431,080 parameters."""
    return named(
        conv1=nn.Conv2d(1, 20, 5),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(20, 50, 5),
        pool2=nn.MaxPool2d(2),
        flat=nn.Flatten(),
        fc1=nn.Linear(50 * 4 * 4, 500),
        relu1=nn.ReLU(),
        fc2=nn.Linear(500, classes),
    )


def cifarnet(classes: int) -> nn.Module:
    """The CIFAR-10 network of TernGrad's experiments (TensorFlow's tutorial: two convolutions, 384, 192)."""
    return named(
        conv1=nn.Conv2d(3, 64, 5, padding=2),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(3, 2, 1),
        norm1=nn.LocalResponseNorm(9, 0.009, 0.75),
        conv2=nn.Conv2d(64, 64, 5, padding=2),
        relu2=nn.ReLU(),
        norm2=nn.LocalResponseNorm(9, 0.009, 0.75),
        pool2=nn.MaxPool2d(3, 2, 1),
        flat=nn.Flatten(),
        fc1=nn.Linear(64 * 8 * 8, 384),
        relu3=nn.ReLU(),
        fc2=nn.Linear(384, 192),
        relu4=nn.ReLU(),
        fc3=nn.Linear(192, classes),
    )


def alexnet(classes: int, dropout: float = 0.2) -> nn.Module:
    """AlexNet's shape for 32x32 pictures: cheap convolutions, 95 % of 5.8 M parameters fully connected.

    Dropout is 0.2 as in TernGrad's AlexNet, not 0.5 as in the original.
    """
    return named(
        conv1=nn.Conv2d(3, 32, 5, stride=2, padding=2),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(32, 96, 3, padding=1),
        relu2=nn.ReLU(),
        conv3=nn.Conv2d(96, 128, 3, padding=1),
        relu3=nn.ReLU(),
        conv4=nn.Conv2d(128, 128, 3, padding=1),
        relu4=nn.ReLU(),
        pool4=nn.MaxPool2d(2),
        flat=nn.Flatten(),
        drop1=nn.Dropout(dropout),
        fc1=nn.Linear(128 * 4 * 4, 1536),
        relu5=nn.ReLU(),
        drop2=nn.Dropout(dropout),
        fc2=nn.Linear(1536, 1536),
        relu6=nn.ReLU(),
        fc3=nn.Linear(1536, classes),
    )


def alexnet_dropout(classes: int) -> nn.Module:
    """The same with the dropout of the original, 0.5."""
    return alexnet(classes, dropout=0.5)


def vgg(classes: int) -> nn.Module:
    """VGG's shape with strides instead of pools: 3.9 M parameters, nearly all in cheap 3x3 convolutions."""
    layers: list[nn.Module] = []
    for narrow, wide, stride in ((3, 64, 2), (64, 128, 2), (128, 256, 2), (256, 512, 2), (512, 512, 1)):
        layers += [nn.Conv2d(narrow, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU()]
    return named(
        features=nn.Sequential(*layers),
        pool=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
        fc=nn.Linear(512, classes),
    )
