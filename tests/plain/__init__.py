"""Plain models that tests check the product against."""
