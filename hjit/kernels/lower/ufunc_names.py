"""Names of ufuncs that are one operation, for both back ends."""

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
