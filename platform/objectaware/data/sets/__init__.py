"""One file per layout or published data set. Each registers all that others know of it (`objectaware.data.dataset`).

Whatever reads a configuration imports all of these files: they import OpenCV, PyArrow, SciPy and pycocotools inside
the functions that use them.
"""
