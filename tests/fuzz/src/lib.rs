//! Fuzz targets for whatever reads bytes from outside.
