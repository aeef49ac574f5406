"""k-means against scikit-learn's, at every scale, and where there is nothing to find."""

import pytest
import torch
from sklearn.cluster import KMeans

from cutlayer.kernels.fits.k_means import distances, k_means


def blobs(n=900, clusters=4, gap=6.0, d=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(clusters, (n,), generator=generator)
    centres = gap * torch.randn(clusters, d, generator=generator, dtype=torch.float64)
    return centres[codes] + torch.randn(n, d, generator=generator, dtype=torch.float64)


def inertia(points, centres):
    return float(distances(points, centres).amin(dim=1).sum())


@pytest.mark.parametrize("clusters", [1, 2, 4, 9])
@pytest.mark.parametrize("n", [900, 3000])
def test_is_as_tight_as_scikit_learn(clusters, n):
    points = blobs(n, clusters)
    theirs = KMeans(clusters, n_init=10, random_state=0).fit(points.numpy()).inertia_
    assert inertia(points, k_means(points, clusters)) <= 1.01 * theirs


@pytest.mark.parametrize("scale", [1e-200, 1e-25, 1e25])
def test_scale_does_not_matter(scale):
    points = blobs()
    torch.testing.assert_close(k_means(points * scale, 4) / scale, k_means(points, 4))


def test_the_same_seed_gives_the_same_centres():
    points = blobs(gap=0.5)
    assert torch.equal(k_means(points, 4, seed=2), k_means(points, 4, seed=2))


@pytest.mark.parametrize("distinct", [1, 2])
def test_fewer_distinct_rows_than_clusters(distinct):
    points = torch.arange(distinct, dtype=torch.float64).repeat(10)[:, None]
    centres = k_means(points, 3)
    assert centres.shape == (3, 1)
    assert inertia(points, centres) == 0


def test_distances_are_those_of_cdist():
    points, centres = blobs(50), blobs(5, seed=1)
    torch.testing.assert_close(distances(points, centres), torch.cdist(points, centres) ** 2)
