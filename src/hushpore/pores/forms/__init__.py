"""Forms: results in the symbols, units and order that the field of a reader reports them in."""
