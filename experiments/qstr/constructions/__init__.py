"""The paper's weights, as parameters of `sepfx.models`."""
