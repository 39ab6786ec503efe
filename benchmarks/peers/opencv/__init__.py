"""The applications in OpenCV, one file each."""
