"""The functions and the text of their arguments; see `benchmarks.functions`."""

from __future__ import annotations


def _below(module: str, functions: dict[str, str]) -> dict[str, str]:
    return {f"{module}.{name}": arguments for name, arguments in functions.items()}


SCIKIT_IMAGE = {
    "scikit-image": {
        **_below(
            "skimage.filters",
            {
                "gaussian": "gray, sigma=2", "sobel": "gray", "sobel_h": "gray", "scharr": "gray", "prewitt": "gray64",
                "roberts": "gray", "farid": "gray", "laplace": "gray", "median": "bytes_",
                "unsharp_mask": "rgb, channel_axis=2", "difference_of_gaussians": "gray, 1, 3",
                "threshold_otsu": "bytes_", "threshold_li": "gray", "threshold_yen": "bytes_",
                "threshold_isodata": "bytes_", "threshold_triangle": "bytes_", "threshold_mean": "gray",
                "threshold_minimum": "noisy_bytes", "threshold_local": "gray, 15", "threshold_niblack": "gray",
                "threshold_sauvola": "gray", "apply_hysteresis_threshold": "gray, 0.4, 0.6",
                "meijering": "gray, sigmas=[1, 2]", "sato": "gray, sigmas=[1, 2]", "frangi": "gray, sigmas=[1, 2]",
                "hessian": "gray, sigmas=[1, 2]", "gabor": "gray, 0.2", "butterworth": "gray",
            },
        ),
        **_below(
            "skimage.exposure",
            {
                "equalize_hist": "gray", "equalize_adapthist": "gray", "adjust_gamma": "rgb, 0.7",
                "adjust_log": "gray", "adjust_sigmoid": "gray", "rescale_intensity": "bytes_", "histogram": "bytes_",
                "cumulative_distribution": "bytes_", "is_low_contrast": "gray",
                "match_histograms": "bytes_, noisy_bytes",
            },
        ),
        **_below(
            "skimage.color",
            {
                "rgb2gray": "rgb", "rgb2hsv": "rgb", "hsv2rgb": "rgb", "rgb2lab": "rgb", "lab2rgb": "lab",
                "rgb2luv": "rgb", "rgb2xyz": "rgb64", "rgb2yuv": "rgb", "rgb2ycbcr": "rgb_bytes", "rgb2hed": "rgb",
                "gray2rgb": "gray", "label2rgb": "labels, rgb", "deltaE_cie76": "lab, other_lab",
                "deltaE_ciede94": "lab, other_lab", "deltaE_ciede2000": "lab, other_lab",
            },
        ),
        **_below(
            "skimage.transform",
            {
                "resize": "gray, (h // 2, w // 2)", "rescale": "gray, 0.5", "rotate": "gray, 30",
                "downscale_local_mean": "gray, (2, 2)", "swirl": "gray", "pyramid_reduce": "gray",
                "pyramid_expand": "gray", "integral_image": "gray", "resize_local_mean": "gray, (h // 2, w // 2)",
            },
        ),
        **_below(
            "skimage.feature",
            {
                "canny": "gray", "corner_harris": "gray", "corner_shi_tomasi": "gray",
                "corner_kitchen_rosenfeld": "gray", "corner_foerstner": "gray", "hessian_matrix_det": "gray",
                "structure_tensor": "gray", "shape_index": "gray", "local_binary_pattern": "bytes_, 8, 1",
                "hog": "gray", "peak_local_max": "gray, min_distance=5", "match_template": "gray, gray[:16, :16]",
                "blob_dog": "gray, max_sigma=8",
            },
        ),
        **_below(
            "skimage.restoration",
            {
                "denoise_tv_chambolle": "noisy, max_num_iter=20", "denoise_tv_bregman": "noisy, max_num_iter=10",
                "denoise_nl_means": "noisy, patch_size=3, patch_distance=3", "wiener": "gray64, psf, 0.1",
                "richardson_lucy": "gray64, psf, num_iter=5", "rolling_ball": "gray, radius=5",
            },
        ),
        **_below(
            "skimage.morphology",
            {
                "erosion": "bytes_", "dilation": "bytes_, disc", "opening": "bytes_", "closing": "gray",
                "white_tophat": "bytes_", "black_tophat": "bytes_", "isotropic_dilation": "mask, 3",
                "isotropic_erosion": "mask, 3", "reconstruction": "gray - 0.1, gray", "local_maxima": "gray",
                "skeletonize": "mask", "thin": "mask", "medial_axis": "mask, rng=0", "convex_hull_image": "mask",
                "area_opening": "bytes_, 32", "flood_fill": "bytes_, (0, 0), 255",
            },
        ),
        **_below(
            "skimage.util",
            {
                "img_as_ubyte": "gray", "img_as_float32": "bytes_", "img_as_uint": "gray", "invert": "bytes_",
                "compare_images": "gray, noisy", "montage": "stack",
            },
        ),
        **_below(
            "skimage.metrics",
            {
                "mean_squared_error": "gray, noisy", "peak_signal_noise_ratio": "bytes_, noisy_bytes",
                "structural_similarity": "gray, noisy, data_range=1.0", "normalized_root_mse": "gray, noisy",
                "normalized_mutual_information": "gray, noisy", "variation_of_information": "labels, other_labels",
                "adapted_rand_error": "labels, other_labels",
            },
        ),
        **_below(
            "skimage.measure",
            {
                "block_reduce": "gray, (4, 4)", "blur_effect": "gray", "shannon_entropy": "bytes_", "label": "mask",
                "perimeter": "mask", "euler_number": "mask", "moments": "gray64", "moments_central": "gray64",
                "centroid": "gray64", "profile_line": "gray, (2, 3), (20, 30)", "find_contours": "gray, 0.5",
            },
        ),
        **_below(
            "skimage.segmentation",
            {
                "slic": "rgb, n_segments=50, max_num_iter=3", "find_boundaries": "labels",
                "mark_boundaries": "rgb, labels", "clear_border": "labels", "expand_labels": "labels, 3",
                "chan_vese": "gray, max_num_iter=3", "morphological_chan_vese": "gray, 4",
                "join_segmentations": "labels, other_labels", "inverse_gaussian_gradient": "gray",
            },
        ),
    }
}  # fmt: skip

SCIPY = {
    "scipy.ndimage": _below(
        "scipy.ndimage",
        {
            "gaussian_filter": "gray, 2", "gaussian_laplace": "gray, 2", "gaussian_gradient_magnitude": "gray, 2",
            "uniform_filter": "gray, 7", "sobel": "gray", "prewitt": "gray", "laplace": "gray",
            "median_filter": "bytes_, 3", "percentile_filter": "bytes_, 30, 3", "rank_filter": "bytes_, 2, 3",
            "minimum_filter": "bytes_, 5", "maximum_filter": "gray, 5", "grey_opening": "bytes_, (5, 5)",
            "grey_closing": "gray, (3, 3)", "morphological_gradient": "gray, (3, 3)", "white_tophat": "gray, (5, 5)",
            "binary_erosion": "mask", "binary_opening": "mask", "binary_fill_holes": "mask", "convolve": "gray, psf",
            "correlate1d": "gray, [1.0, 2.0, 1.0]", "zoom": "gray, 0.5", "rotate": "gray, 20.0, order=1",
            "shift": "gray, (1.5, 2.5)", "label": "mask", "sum_labels": "gray, labels, np.arange(5)",
            "center_of_mass": "gray64", "distance_transform_edt": "mask",
            "map_coordinates": "gray, np.mgrid[:9, :9] * 1.5",
        },
    ),
    "scipy.signal": _below(
        "scipy.signal",
        {
            "convolve2d": "gray, psf, mode='same'", "correlate2d": "gray, psf, mode='same', boundary='symm'",
            "fftconvolve": "gray, psf, mode='same'", "oaconvolve": "gray, psf, mode='same'",
            "sepfir2d": "gray, [1.0, 2.0, 1.0], [1.0, 2.0, 1.0]", "medfilt2d": "gray, 3", "wiener": "gray64, 5",
            "lfilter": "[0.1, 0.2], [1.0, -0.7], gray64", "filtfilt": "[0.1, 0.2], [1.0, -0.7], gray64",
            "savgol_filter": "gray64, 7, 2", "detrend": "gray64", "decimate": "gray64, 2", "hilbert": "gray64",
        },
    ),
}  # fmt: skip

SEWAR_AND_COLOUR = {
    "colour-science": _below(
        "colour",
        {
            "RGB_to_HSV": "rgb64", "HSV_to_RGB": "rgb64", "RGB_to_HSL": "rgb64", "HSL_to_RGB": "rgb64",
            "XYZ_to_Lab": "rgb64", "Lab_to_XYZ": "lab", "XYZ_to_xyY": "rgb64", "XYZ_to_Luv": "rgb64",
            "XYZ_to_Oklab": "rgb64", "XYZ_to_sRGB": "rgb64", "sRGB_to_XYZ": "rgb64", "RGB_to_YCbCr": "rgb64",
            "delta_E": "lab, other_lab", "cctf_encoding": "rgb64", "cctf_decoding": "rgb64",
        },
    ),
    "colour-demosaicing": _below(
        "colour_demosaicing",
        {
            "mosaicing_CFA_Bayer": "rgb64", "demosaicing_CFA_Bayer_bilinear": "gray64",
            "demosaicing_CFA_Bayer_Malvar2004": "gray64", "demosaicing_CFA_Bayer_Menon2007": "gray64",
        },
    ),
    "sewar": _below(
        "sewar.full_ref",
        dict.fromkeys(
            ("mse", "rmse", "psnr", "uqi", "ssim", "ergas", "scc", "rase", "sam", "vifp"), "rgb_bytes, noisy_rgb_bytes"
        ),
    ),
}  # fmt: skip

_FOLDER = "benchmarks.functions"
NUMPY_WRITTEN = {
    "hashing (imagehash's kind)": _below(
        f"{_FOLDER}.hashing",
        {"average_hash": "gray", "difference_hash": "gray", "perceptual_hash": "gray", "wavelet_hash": "gray",
         "block_mean_hash": "bytes_", "colour_hash": "rgb"},
    ),
    "wavelets": _below(
        f"{_FOLDER}.wavelets",
        {"haar": "gray64", "inverse_haar": "gray64", "daubechies4": "gray", "lifting_cdf53": "bytes_",
         "lifting_cdf97": "gray64", "a_trous": "gray", "soft_threshold": "noisy", "denoised": "noisy"},
    ),
    "astronomy (astropy's kind)": _below(
        f"{_FOLDER}.astronomy",
        {"convolve_with_gaps": "np.where(mask, np.nan, gray64), psf", "sigma_clipped_mean": "gray64",
         "sigma_clipped_stack": "stack", "median_stack": "stack", "weighted_stack": "stack", "background": "gray64",
         "asinh_stretch": "gray", "zscale_limits": "gray64", "aperture_sum": "gray64", "moffat": "gray64",
         "cosmic_rays": "gray", "clipped_background": "gray64", "percentile_stretch": "np.where(mask, np.nan, gray)",
         "spread_of_stack": "stack"},
    ),
    "band indices (rasterio's kind)": _below(
        f"{_FOLDER}.bands",
        {"ndvi": "nir, red", "evi": "nir, red, blue", "savi": "nir, red", "ndwi": "green, nir", "nbr": "nir, swir",
         "msavi": "nir, red", "bare_soil": "swir, red, nir, blue",
         "tasselled_cap": "np.stack([blue, green, red, nir, swir])",
         "reflectance": "bytes_", "cloud_mask": "blue, green, red, nir, swir", "hillshade": "gray64",
         "slope": "gray64", "to_composite": "red, green, blue", "masked_mean": "gray, mask"},
    ),
    "tutorials (OpenCV's kind)": _below(
        f"{_FOLDER}.tutorials",
        {"brighten": "rgb_bytes, 1.3, 20", "equalised": "bytes_", "otsu": "bytes_", "sobel_edges": "gray",
         "sharpen": "rgb_bytes", "sepia": "rgb_bytes", "gamma_table": "rgb_bytes, 2.2",
         "blend": "rgb_bytes, noisy_rgb_bytes, 0.3",
         "box_blur": "gray", "median3": "bytes_", "emboss": "gray", "harris": "gray", "laplacian_pyramid": "gray",
         "bilinear_resize": "gray, h // 2, w // 2", "enlarged": "gray, 2", "affine_warp": "gray", "grey_world": "rgb",
         "kmeans_colours": "rgb, 4",
         "floyd_steinberg": "gray64[:40, :60]",
         "back_projection": "rgb_bytes", "posterise": "rgb_bytes, 4",
         "mutual_information": "gray, noisy", "balanced_by_percentiles": "rgb", "regions_as_means": "gray, labels"},
    ),
    "kernels (npbench's kind)": _below(
        f"{_FOLDER}.kernels",
        {"jacobi_2d": "square, 10",
         "heat_3d": "square.ravel()[: side * side // 1024 * 1024].reshape(-1, 32, 32), 5",
         "seidel_2d": "square[:40, :40], 2",
         "fdtd_2d": "square, 5", "hdiff": "square",
         "arc_distance": "square, square.T.copy(), square * 0.5, square + 0.1",
         "go_fast": "square", "softmax": "square", "mandelbrot": "side // 2, side // 2, 20",
         "gemm": "square, square",
         "mvt": "square[0], square[1], square[2], square[3], square", "adi": "square[:60, :60], 5",
         "covariance": "square", "correlation": "square", "gram_schmidt": "square[:, :20]",
         "compute": "square, 2.0, 3.0",
         "conv2d": "gray64, np.ones((3, 3, 8))", "azimuthal": "square", "lenet_pool": "gray",
         "spectral_norm": "square, 5",
         "crc16": "bytes_[0]", "cholesky": "square[:24, :24] @ square[:24, :24].T + np.eye(24) * 30"},
    ),
}  # fmt: skip
