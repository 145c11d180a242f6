"""Ring-LWE: parameters, keys, and convolutions as products of polynomials."""
