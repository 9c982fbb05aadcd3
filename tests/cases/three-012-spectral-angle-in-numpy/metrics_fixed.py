import torch


def spectral_angle(predicted, reference):
    """Mean angle between spectra, in radians."""
    cos = torch.nn.functional.cosine_similarity(predicted, reference, dim=1)
    return torch.arccos(cos.clamp(-0.9999, 0.9999)).mean()
