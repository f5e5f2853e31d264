"""The page of a simulation or a comparison: one HTML file that asks for nothing, drawn here in Python.

It has no script. Its pictures are inline SVG without text, so that they may be stretched to any width while words and
numbers around them stay as large as the reader wants; each picture has its numbers in a table beside it.
"""
