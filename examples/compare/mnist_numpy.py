"""The network of `mnist` (784-128-10, ReLU, cross-entropy, SGD) in NumPy, to compare its time.

Usage: python3 mnist_numpy.py DIR [epochs] [learning rate]

DIR has MNIST's four files, gzipped.
Prints the seconds of the training loop alone and the accuracy on the test images.
"""

import gzip
import os
import sys
import time

import numpy as np


def idx(path):
    with gzip.open(path) as f:
        raw = f.read()
    sizes = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * len(sizes)).reshape(sizes)


def main():
    folder = sys.argv[1]
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    lr = np.float32(sys.argv[3]) if len(sys.argv) > 3 else np.float32(0.4)
    read = lambda name: idx(os.path.join(folder, name + ".gz"))
    x_train = read("train-images-idx3-ubyte").reshape(-1, 784).astype(np.float32) / np.float32(255)
    y_train = read("train-labels-idx1-ubyte")
    x_test = read("t10k-images-idx3-ubyte").reshape(-1, 784).astype(np.float32) / np.float32(255)
    y_test = read("t10k-labels-idx1-ubyte")

    rng = np.random.default_rng(0)
    w1 = (rng.standard_normal((784, 128)) * 0.02).astype(np.float32)
    b1 = np.zeros(128, np.float32)
    w2 = (rng.standard_normal((128, 10)) * 0.02).astype(np.float32)
    b2 = np.zeros(10, np.float32)

    batch = 64
    rows = np.arange(batch)
    start = time.perf_counter()
    for _ in range(epochs):
        order = rng.permutation(len(x_train))
        for i in range(0, len(order) - batch + 1, batch):
            take = order[i : i + batch]
            x, y = x_train[take], y_train[take]
            h = np.maximum(x @ w1 + b1, 0)
            z = h @ w2 + b2
            z -= z.max(1, keepdims=True)
            p = np.exp(z)
            p /= p.sum(1, keepdims=True)
            p[rows, y] -= 1
            p /= batch
            dw2, db2 = h.T @ p, p.sum(0)
            dh = p @ w2.T
            dh[h <= 0] = 0
            w1 -= lr * (x.T @ dh)
            b1 -= lr * dh.sum(0)
            w2 -= lr * dw2
            b2 -= lr * db2
    seconds = time.perf_counter() - start
    z = np.maximum(x_test @ w1 + b1, 0) @ w2 + b2
    print(
        f"numpy {np.__version__}: {epochs} epochs in {seconds:.3f} s, "
        f"test accuracy {100 * (z.argmax(1) == y_test).mean():.2f} %"
    )


if __name__ == "__main__":
    main()
