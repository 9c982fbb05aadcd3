import numpy as np
import torch


def spectral_angle(predicted, reference):
    """Mean angle between spectra, in radians."""
    a = predicted.detach().numpy()
    b = reference.numpy()
    cos = (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    angle = np.arccos(np.clip(cos, -0.9999, 0.9999)).mean()
    return torch.as_tensor(angle)
