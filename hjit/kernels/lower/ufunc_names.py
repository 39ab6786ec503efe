"""ufuncs that are single operations, for both back ends."""

ALIASES = {
    "divide": "true_divide",
    "mod": "remainder",
    "float_power": "power",
    "abs": "absolute",
    "fabs": "absolute",
    "deg2rad": "radians",
    "rad2deg": "degrees",
    "bitwise_not": "invert",
}
