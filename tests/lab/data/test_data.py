"""Data loaders: small files made here, damaged ones, missing ones; and the real ones where there are any."""

import gzip
import io
import lzma
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from thinwire.errors import LabError
from thinwire_lab.data import Split, Task, load_task, open_task
from thinwire_lab.data import sets as cifar
from thinwire_lab.data.sets import CONTEXT, read_idx
from thinwire_lab.data.task import Remote, default_folder, download


def silent(text: str) -> None:
    """Takes what a loader says."""


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def write_mnist(folder: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 30), ("t10k", 20)):
        arrays[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (count, 28, 28), np.uint8)
        arrays[f"{part}-labels-idx1-ubyte"] = rng.integers(0, 10, count, np.uint8)
    folder.mkdir(parents=True)
    for name, array in arrays.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(idx_bytes(array)))
    return arrays


@pytest.mark.parametrize(
    ("name", "sub"), [("mnist", "mnist"), ("mnist", "MNIST/raw"), ("fashion-mnist", "fashion-mnist")]
)
def test_idx_sets_are_read_and_normalised(tmp_path: Path, name: str, sub: str) -> None:
    arrays = write_mnist(tmp_path / sub)
    task = load_task(name, tmp_path)
    assert (len(task.train), len(task.test)) == (30, 20)
    x, y = task.batch(task.train, np.array([3, 1]))
    raw = torch.from_numpy(arrays["train-images-idx3-ubyte"][[3, 1]].copy())[:, None].float() / 255
    torch.testing.assert_close(x, (raw - task.mean[0]) / task.std[0])
    assert y.tolist() == arrays["train-labels-idx1-ubyte"][[3, 1]].tolist()


def test_truncated_gzip_is_named(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(LabError, match=r"train-images-idx3-ubyte\.gz cannot be read .*: delete it"):
        load_task("mnist", tmp_path)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "not an IDX file"),
        (b"PK\x03\x04abcdef", "not an IDX file of 1 dimensions"),
        (idx_bytes(np.zeros(5, np.uint8))[:-1], "damaged: 12 bytes unpacked, shape .5. needs 13"),
        (bytes((0, 0, 8, 1, 0)), "damaged"),
    ],
)
def test_damaged_idx_is_named(tmp_path: Path, raw: bytes, sentence: str) -> None:
    (tmp_path / "labels").write_bytes(raw)
    with pytest.raises(LabError, match=sentence):
        read_idx(tmp_path / "labels", 1)


def test_labels_and_images_of_different_count_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    labels = gzip.compress(idx_bytes(np.zeros(29, np.uint8)))
    (tmp_path / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(labels)
    with pytest.raises(LabError, match="30 train images but 29 labels"):
        load_task("mnist", tmp_path)


@pytest.fixture
def few_pictures(monkeypatch: pytest.MonkeyPatch) -> int:
    """CIFAR-10 files of 7 pictures instead of 10,000, so that making them takes no time."""
    monkeypatch.setattr(cifar, "IMAGES_PER_FILE", 7)
    monkeypatch.setattr(cifar, "FILE_BYTES", 7 * 3073)
    return 7


def made_cifar(count: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Labels and images (N, C, H, W) of each file."""
    rng = np.random.default_rng(1)
    names = (*cifar.TRAIN, cifar.TEST)
    return {
        n: (rng.integers(0, 10, count, np.uint8), rng.integers(0, 256, (count, 3, 32, 32), np.uint8))
        for n in names
    }


def binary(labels: np.ndarray, images: np.ndarray) -> bytes:
    return np.concatenate([labels[:, None], images.reshape(len(labels), -1)], axis=1).tobytes()


def write_packed(folder: Path, files: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    (folder / "cifar-10").mkdir()
    for name, (labels, images) in files.items():
        raw = labels.tobytes() + images.transpose(0, 2, 3, 1).tobytes()
        (folder / "cifar-10" / f"{name}.xz").write_bytes(lzma.compress(raw))


def write_binary(folder: Path, files: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    (folder / "cifar-10-batches-bin").mkdir()
    for name, pair in files.items():
        (folder / "cifar-10-batches-bin" / f"{name}.bin").write_bytes(binary(*pair))


def write_archive(folder: Path, files: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for name, pair in files.items():
            raw = binary(*pair)
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))


@pytest.mark.parametrize("write", [write_packed, write_binary, write_archive])
def test_all_layouts_of_cifar_give_the_same_pictures(tmp_path: Path, few_pictures: int, write) -> None:
    files = made_cifar(few_pictures)
    write(tmp_path, files)
    task = load_task("cifar10", tmp_path)
    assert np.array_equal(task.train.x, np.concatenate([files[name][1] for name in cifar.TRAIN]))
    assert np.array_equal(task.train.y, np.concatenate([files[name][0] for name in cifar.TRAIN]))
    assert np.array_equal(task.test.x, files[cifar.TEST][1])


def test_truncated_cifar_files_are_named(tmp_path: Path, few_pictures: int) -> None:
    write_packed(tmp_path, made_cifar(few_pictures))
    path = tmp_path / "cifar-10" / "data_batch_2.xz"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LabError, match=r"data_batch_2\.xz is damaged"):
        load_task("cifar10", tmp_path)
    path.unlink()
    with pytest.raises(LabError, match=r"data_batch_2\.xz cannot be read .*six batch files"):
        load_task("cifar10", tmp_path)


def test_archive_without_a_batch_is_refused(tmp_path: Path, few_pictures: int) -> None:
    files = made_cifar(few_pictures)
    del files["data_batch_3"]
    write_archive(tmp_path, files)
    with pytest.raises(LabError, match="lacks data_batch_3"):
        load_task("cifar10", tmp_path)


def test_wrong_labels_are_refused(tmp_path: Path, few_pictures: int) -> None:
    files = made_cifar(few_pictures)
    files["data_batch_1"][0][2] = 77
    write_binary(tmp_path, files)
    with pytest.raises(LabError, match="label 77"):
        load_task("cifar10", tmp_path)


def test_shakespeare_predicts_the_next_character(tmp_path: Path) -> None:
    text = "To be, or not to be: that is the question.\n" * 60
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "tinyshakespeare.txt").write_text(text)
    task = load_task("shakespeare", tmp_path)
    assert task.classes == len(set(text))
    x, y = task.batch(task.train, np.arange(3))
    assert x.shape == y.shape == (3, CONTEXT)
    assert torch.equal(x.flatten()[1:], y.flatten()[:-1])
    alphabet = sorted(set(text))
    assert "".join(alphabet[k] for k in x[0]) == text[:CONTEXT]


def test_digits_need_no_files() -> None:
    task = load_task("digits", Path("does-not-exist"))
    assert (len(task.train), len(task.test), task.classes) == (1437, 360, 10)
    x, y = task.batch(task.train, np.arange(len(task.train)))
    assert abs(x.mean()) < 0.02
    assert abs(x.std() - 1) < 0.02
    assert set(y.tolist()) == set(range(10))


def test_saved_task_opens_the_same(tmp_path: Path) -> None:
    task = load_task("digits")
    task.save(tmp_path / "task")
    opened = open_task(tmp_path / "task")
    for split, other in ((task.train, opened.train), (task.test, opened.test)):
        assert np.array_equal(split.x, other.x)
        assert np.array_equal(split.y, other.y)
    indices = np.array([0, 5])
    assert torch.equal(task.batch(task.test, indices)[0], opened.batch(opened.test, indices)[0])


def test_score_is_accuracy_or_bits() -> None:
    empty = Split(np.zeros((0, 1), np.uint8), np.zeros(0, np.uint8))
    assert Task("a", empty, empty, 2, 1.0, (), ()).score(9.9, 0.25) == 0.25
    assert Task("b", empty, empty, 2, 1.0, (), (), "bits per character").score(float(np.log(2)), 0.5) == 1.0


def test_unknown_task_lists_the_known_ones() -> None:
    with pytest.raises(LabError, match="unknown task 'imagenet': choose one of digits, mnist"):
        load_task("imagenet")


def test_named_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(
        LabError, match=r"data folder .*/no does not exist: name an existing folder with --data"
    ):
        load_task("mnist", tmp_path / "no")


def test_cache_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "thinwire" / "data"


# Downloads, from a server on loopback.


class Publisher(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/good" else 404)
        self.end_headers()
        self.wfile.write(b"the file")

    def log_message(self, format: str, *args: object) -> None:
        """Not shown."""


@pytest.fixture
def publisher():
    server = HTTPServer(("127.0.0.1", 0), Publisher)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_download_writes_the_file_whole(tmp_path: Path, publisher: str) -> None:
    import hashlib

    md5 = hashlib.md5(b"the file").hexdigest()
    path = download(tmp_path, Remote("sub/file", f"{publisher}/good", md5), silent)
    assert path == tmp_path / "sub" / "file"
    assert path.read_bytes() == b"the file"
    assert list((tmp_path / "sub").iterdir()) == [path]


def test_download_with_a_wrong_sum_leaves_nothing(tmp_path: Path, publisher: str) -> None:
    with pytest.raises(LabError, match=r"arrived with md5 .*, not 0000"):
        download(tmp_path, Remote("file", f"{publisher}/good", "0000"), silent)
    assert list(tmp_path.iterdir()) == []


def test_failed_download_names_folder_file_and_way_out(tmp_path: Path, publisher: str) -> None:
    with pytest.raises(LabError) as caught:
        download(tmp_path, Remote("mnist/file", f"{publisher}/bad", "0000"), silent)
    sentence = str(caught.value)
    assert str(tmp_path) in sentence
    assert "mnist/file" in sentence
    assert "--data DIR" in sentence
    assert list((tmp_path / "mnist").iterdir()) == []


# The real thing, where it is.


@pytest.mark.parametrize(
    ("name", "train", "test", "classes"),
    [
        ("mnist", 60_000, 10_000, 10),
        ("fashion-mnist", 60_000, 10_000, 10),
        ("shakespeare", 15_685, 1_742, 65),
    ],
)
def test_real_data(data_dir: Path, name: str, train: int, test: int, classes: int) -> None:
    task = load_task(name, data_dir)
    assert (len(task.train), len(task.test), task.classes) == (train, test, classes)
    if task.mean:
        x, _ = task.batch(task.train, np.arange(2000))
        assert abs(x.mean()) < 0.05
