"""All roles on real engines: one deployment, which all tests of this package share."""
