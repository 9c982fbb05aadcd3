SHADES = " .:-=+*#"


def ascii_rows(weights, floor=0.05):
    """One line of characters per row of attention weights; small ones are left blank."""
    picture = weights.detach().clone()
    picture[picture < floor] = 0
    top = len(SHADES) - 1
    return ["".join(SHADES[min(top, int(v * top + 0.999))] for v in row) for row in picture.tolist()]
