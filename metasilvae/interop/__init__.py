"""Models of other libraries: imported exactly, exported losslessly."""
