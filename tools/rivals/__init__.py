"""Comparisons with other systems on one machine: tools/compare-kafka and tools/compare-blobs."""
