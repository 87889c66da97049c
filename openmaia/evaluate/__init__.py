"""Is the description true? Images made from it must excite the unit, matched images of other things must not."""
