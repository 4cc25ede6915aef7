"""Arrays of other libraries: DLPack, carriers, and the matrix of paths and dtypes."""
