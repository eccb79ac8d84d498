import numpy as np

from edgefl.data.sets.synthetic import Synthetic


def test_sizes_and_shapes_are_those_asked_for():
    spec = Synthetic(shape=(3, 9, 7), classes=4, train=41, test=10, clients=4)
    train, test = spec.read()
    assert train.inputs.shape == (41, 3, 9, 7)
    assert test.inputs.shape == (10, 3, 9, 7)
    assert np.bincount(train.labels).tolist() == list(spec.declared().train)
    assert np.bincount(test.labels).tolist() == list(spec.declared().test)


def test_the_nearest_class_mean_tells_the_classes_apart_but_a_single_pixel_does_not():
    train, test = Synthetic(train=2000, test=1000).read()
    means = np.stack([train.inputs[train.labels == label].mean(axis=0).ravel() for label in range(10)])
    flat = test.inputs.reshape(1000, -1).astype(float)
    nearest = ((flat[:, None] - means[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == test.labels).mean() > 0.95
    pixel = np.abs(flat[:, None, 300] - means[None, :, 300]).argmin(axis=1)
    assert (pixel == test.labels).mean() < 0.5
